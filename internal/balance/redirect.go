package balance

import (
	"net/http"
	"net/url"
	"strings"
)

// redirect lets the client follow a redirect of a replica to itself or to
// another replica: the client only knows the target's URL, takes anything else
// for another origin, and would not send credentials there. from is the URL that
// the replica was asked for.
func (t *tripper) redirect(a *attempt, resp *http.Response, from *url.URL) {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return
	}
	to, err := from.Parse(location)
	if err != nil {
		return // the transport deals with it
	}
	for _, r := range t.replicas {
		if !leadsTo(to, r.url) {
			continue
		}
		a.next = r
		if given, err := url.Parse(location); err == nil && given.Host != "" {
			to.Host = hostFor(a.url, to.Scheme)
			resp.Header.Set("Location", to.String())
		}
		return
	}
}

// leadsTo reports whether a URL is on the origin of a replica, or on https of
// the same host when both have default ports.
func leadsTo(to, replica *url.URL) bool {
	return origin(to) == origin(replica) ||
		strings.EqualFold(to.Hostname(), replica.Hostname()) &&
			replica.Scheme == "http" && port(replica) == "80" && to.Scheme == "https" && port(to) == "443"
}

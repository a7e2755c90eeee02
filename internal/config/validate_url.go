package config

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

func (r *report) urlTarget(key string, t *Target) {
	r.uselessForURL(key, "a target with a url")
	if _, _, ok := t.Socket(); ok {
		r.useless(key+".headers", "a socket, which has none")
		r.transport(key, t.Transport, TransportAuto)
	} else {
		r.transport(key, t.Transport, TransportAuto, TransportStreamableHTTP, TransportSSE)
	}
	r.endpoint(key+".url", t.URL)
	r.headers(key+".headers", t.Headers)
}

func (r *report) uselessForURL(key, where string) {
	for _, name := range []string{"env", "cwd", "restart"} {
		r.useless(key+"."+name, where)
	}
}

func (r *report) urlsTarget(key string, t *Target) {
	r.uselessForURL(key, "a target with urls")
	if t.Transport == TransportSSE {
		r.add(key+".transport", "sse binds a session to one server, and any of the urls may get a request; write a single url, or remove sse")
	} else {
		r.transport(key, t.Transport, TransportAuto, TransportStreamableHTTP)
	}
	r.replicas(key+".urls", t.URLs)
	r.headers(key+".headers", t.Headers)
}

// replicas checks URLs that differ in where they lead and in nothing else.
func (r *report) replicas(key string, urls []string) {
	var first *url.URL
	seen := make(map[string]int, len(urls))
	for i, text := range urls {
		at := fmt.Sprintf("%s[%d]", key, i)
		if r.failed(at) {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || !isHTTP(u) {
			r.add(at, "must be an http:// or https:// URL, such as https://host/mcp; a socket can only be a single url")
			continue
		}
		if !r.httpEndpoint(at, u) {
			continue
		}
		if first == nil {
			first = u
		}
		earlier, twice := seen[hostPort(u)]
		switch {
		case u.Scheme != first.Scheme || u.RequestURI() != first.RequestURI():
			r.add(at, "differs from the others in its scheme, path or query; replicas of one server differ in host and port only, another server is a target of its own")
		case twice:
			r.add(at, "has the host and port of urls[%d]; remove one", earlier)
		default:
			seen[hostPort(u)] = i
		}
	}
}

// hostPort returns what to dial, in one spelling.
func hostPort(u *url.URL) string {
	port := 80
	if u.Scheme == "https" {
		port = 443
	}
	if n, err := strconv.Atoi(u.Port()); err == nil {
		port = n
	}
	return fmt.Sprintf("%s %d", strings.ToLower(u.Hostname()), port)
}

// transport checks that a known transport is one of those that fit the target.
func (r *report) transport(key string, value Transport, fitting ...Transport) {
	key += ".transport"
	if slices.Contains(transports(), value) && !slices.Contains(fitting, value) {
		r.add(key, "%s does not fit this target; remove it or write %s", value, orList(fitting))
		return
	}
	oneOf(r, key, value, transports())
}

// endpoint never quotes the URL: a reference in it may have brought a secret.
func (r *report) endpoint(key, text string) {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.Scheme == schemeUnix:
		r.socketPath(key, u)
	case err == nil && u.Scheme == schemeTCP:
		if u.Hostname() == "" || !validPort(u.Port()) || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" || u.User != nil {
			r.add(key, "must be tcp:// with a host, a port from 1 to 65535 and nothing else, such as tcp://host:9000")
		}
	case err != nil || !isHTTP(u):
		r.add(key, "must be an http:// or https:// URL, such as https://host/mcp, or unix:///path or tcp://host:port for a socket")
	default:
		r.httpEndpoint(key, u)
	}
}

// httpEndpoint reports whether u, which isHTTP, can be used.
func (r *report) httpEndpoint(key string, u *url.URL) bool {
	switch {
	case u.User != nil:
		r.add(key, "must not contain a user name or password; put them into headers, as Authorization")
	case u.Fragment != "":
		r.add(key, "must not contain a # fragment; it is never sent")
	case u.Port() != "" && !validPort(u.Port()):
		r.add(key, "has a port outside 1 to 65535")
	default:
		return true
	}
	return false
}

// maxSocketPath is what the address of a Unix socket holds on Linux.
const maxSocketPath = 107

func (r *report) socketPath(key string, u *url.URL) {
	switch {
	case u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery+u.Fragment != "" || u.User != nil:
		r.add(key, "must be unix:// with an absolute path and nothing else, such as unix:///run/server.sock")
	case strings.HasSuffix(u.Path, "/") || path.Clean(u.Path) == "/":
		r.add(key, "names a directory; write the path of the socket in it, such as unix:///run/server.sock")
	case len(u.Path) > maxSocketPath || strings.ContainsRune(u.Path, 0):
		r.add(key, "has a path that no socket can have: at most %d bytes without a NUL", maxSocketPath)
	}
}

// Schemes of URLs whose server speaks the framing of stdio on a socket.
const (
	schemeUnix = "unix"
	schemeTCP  = "tcp"
)

// Socket returns what to dial when URL is that of a socket: the network, "unix"
// or "tcp", and the address.
func (t *Target) Socket() (network, address string, ok bool) {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil:
	case u.Scheme == schemeUnix:
		return "unix", u.Path, true
	case u.Scheme == schemeTCP:
		return "tcp", u.Host, true
	}
	return "", "", false
}

func isHTTP(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func validPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/bufbuild/httplb"
	"github.com/bufbuild/httplb/resolver"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// tripper spreads the requests of one target.
type tripper struct {
	base     *http.Transport
	front    *url.URL // the target's URL, for httplb
	replicas []*replica
	byHost   map[string]*replica
	turns    turns
	lb       *httplb.Client
}

func newTripper(b *Balancer, base *http.Transport) *tripper {
	t := &tripper{base: base, front: b.urls[0], byHost: make(map[string]*replica, len(b.urls))}
	dial := base.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, b.timeout)
		defer cancel()
		return dial(ctx, network, address)
	}
	addresses := make(fixed, 0, len(b.urls))
	for _, u := range b.urls {
		r := newReplica(u, base, b.log)
		t.replicas = append(t.replicas, r)
		t.byHost[u.Host] = r
		addresses = append(addresses, resolver.Address{HostPort: u.Host})
	}
	t.lb = httplb.NewClient(
		httplb.WithResolver(addresses),
		httplb.WithPicker(t.newChooser),
		httplb.WithHealthChecks(watcher{t}),
		httplb.WithTransport(t.front.Scheme, leaves{t}),
		httplb.WithAllowBackendTarget(t.front.Scheme, t.front.Host), // keeps it from closing when idle
	)
	// httplb sets itself up in the first request, and that one would wait for
	// ever if it were closed meanwhile. This one ends at the picker.
	_, _ = t.lb.Transport.RoundTrip(&http.Request{Method: http.MethodGet, URL: t.front}) //nolint:bodyclose // there is none; it always fails
	return t
}

// close ends httplb's goroutines once no request is under way.
func (t *tripper) close() {
	_ = t.lb.Close() // it never fails
	t.base.CloseIdleConnections()
}

// CloseIdleConnections is for http.Client.
func (t *tripper) CloseIdleConnections() { t.base.CloseIdleConnections() }

// fixed is the resolver of replicas that never change.
type fixed []resolver.Address

// New tells the addresses at once.
func (f fixed) New(_ context.Context, _, _ string, to resolver.Receiver, _ <-chan struct{}) io.Closer {
	to.OnResolve(f)
	return stopper(func() {})
}

// attempt is one request on its way to a replica, with its redirects.
type attempt struct {
	out   *transport.Outgoing
	url   *url.URL   // as the client asks for it
	only  *replica   // nil = any
	tried []*replica // it surely was not sent to them
	errs  []error    // why not
	at    *replica   // the one that is picked
	next  *replica   // where the last redirect leads to
	empty bool       // the reply has no body
}

func attemptOf(ctx context.Context) *attempt {
	out := transport.OutgoingOf(ctx)
	if out == nil {
		return nil
	}
	a, _ := out.Value.(*attempt)
	return a
}

// RoundTrip sends the request to a replica, and to the next one as long as it
// surely has not been sent.
func (t *tripper) RoundTrip(req *http.Request) (*http.Response, error) {
	out := transport.OutgoingOf(req.Context())
	if out == nil {
		closeBody(req)
		return nil, errForeign
	}
	a, _ := out.Value.(*attempt)
	if a == nil {
		a = &attempt{out: out}
		out.Value = a
	}
	t.begin(a, req)
	inner := req
	if req.URL.Scheme != t.front.Scheme || req.URL.Host != t.front.Host {
		inner = req.WithContext(req.Context()) // httplb knows the front's origin only
		inner.URL = t.front
	}
	for {
		a.at = nil
		resp, err := t.lb.Transport.RoundTrip(inner)
		switch {
		case a.at == nil: // closed
			closeBody(inner)
			return nil, errClosed()
		case err == nil:
			a.finish(req, resp)
			return resp, nil
		case !a.again(req, err):
			return nil, err
		case len(a.tried) == len(t.replicas):
			return nil, t.exhausted(a)
		}
		inner = inner.WithContext(inner.Context())
		if req.GetBody != nil {
			if inner.Body, err = req.GetBody(); err != nil {
				return nil, fmt.Errorf("read the body again: %w", err)
			}
		}
	}
}

// begin says which replica the request is bound to.
func (t *tripper) begin(a *attempt, req *http.Request) {
	a.url, a.tried, a.errs = req.URL, nil, nil
	a.only, a.next = a.next, nil
	if a.only == nil && a.out.Session {
		a.only, _ = a.out.Affinity.Load().(*replica) // none before the session
	}
	if a.only == nil && req.URL.Host != t.front.Host {
		a.only = t.byHost[req.URL.Host] // HTTP+SSE names the replica's own URL
	}
}

// again notes a failed attempt and reports whether another replica may get the
// request.
func (a *attempt) again(req *http.Request, err error) bool {
	if !a.out.Unsent() || req.Context().Err() != nil {
		return false
	}
	a.at.fail(err)
	a.tried, a.errs = append(a.tried, a.at), append(a.errs, err)
	return a.only == nil && (req.Body == nil || req.GetBody != nil)
}

// finish adapts the reply to what the client knows.
func (a *attempt) finish(req *http.Request, resp *http.Response) {
	if a.empty {
		_ = resp.Body.Close() // tells httplb that it is over
		resp.Body = http.NoBody
	}
	if resp.StatusCode/100 == 3 {
		resp.Request = req // Location is relative to it
	}
}

// exhausted is the error when no replica accepts connections.
func (t *tripper) exhausted(a *attempt) error {
	if len(t.replicas) == 1 {
		return a.errs[0]
	}
	hosts := make([]string, len(a.tried))
	for i, r := range a.tried {
		hosts[i] = r.url.Host
	}
	return &transport.Error{
		Kind: transport.NotSent, Err: errors.Join(a.errs...),
		Message: fmt.Sprintf("none of the %d replicas (%s) accepts connections; check that they are running and that hosts and ports are right", len(hosts), strings.Join(hosts, ", ")),
	}
}

// leaves makes the round trippers of the replicas.
type leaves struct{ t *tripper }

// NewRoundTripper returns that of one replica. httplb's settings for
// connections are not used: the base has its own.
func (l leaves) NewRoundTripper(_, host string, _ httplb.TransportConfig) httplb.RoundTripperResult {
	return httplb.RoundTripperResult{RoundTripper: &leaf{l.t, l.t.byHost[host]}}
}

// leaf sends requests to one replica.
type leaf struct {
	t *tripper
	r *replica
}

// RoundTrip sends a copy: httplb uses its own request again for another as soon
// as the reply was read, while net/http and the reply still hold it.
func (l *leaf) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req.Context())
	u := *a.url
	u.Host = l.r.host(u.Scheme)
	sent := req.WithContext(req.Context())
	sent.URL = &u
	if sent.Host == a.url.Host || sent.Host == l.r.url.Host { // else it is configured
		sent.Host = u.Host
	}
	a.out.Host = u.Host
	resp, err := l.t.base.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	l.r.answered()
	if a.out.Start && resp.StatusCode/100 == 2 {
		a.out.Affinity.Store(l.r)
	}
	a.empty = resp.Body == http.NoBody
	l.t.redirect(a, resp, &u)
	return resp, nil
}

// Package balance spreads the requests of one HTTP target over several replicas
// of its server.
//
// A [Balancer] stands between a [transport.HTTP] and its http.Transport, by way
// of HTTP.Wrap. Each request of a modern server goes to the replica with the
// fewest requests in flight; what belongs to a session of a legacy server goes
// to the replica that began it. A replica to which no connection comes about is
// passed over until one does; a request that surely was not sent is sent to
// another.
//
// httplb keeps the replicas and their goroutines, and counts a request until its
// reply is read to the end. Its addresses are the host and port of a replica,
// and the round tripper that it has for each of them sends requests with the
// Host, TLS server name and proxy of that replica through the target's one
// http.Transport, whose limits, HTTP/2 pings and pool so hold for all.
//
// File map: balance.go the replicas of a target; tripper.go one request; pick.go
// the choice; redirect.go redirects of a replica; replica.go failed replicas.
package balance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// DefaultConnectTimeout is for how long one replica may take to accept a
// connection where nothing else is set.
const DefaultConnectTimeout = 5 * time.Second

// Options of a [Balancer]; the zero value is usable.
type Options struct {
	// ConnectTimeout is for how long a replica may take to accept a TCP
	// connection before another is tried; 0 = DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// Logger is told of replicas that fail and come back; nil = no logs.
	Logger *slog.Logger
}

// Balancer knows the replicas of one target. Its methods are safe for
// concurrent use.
type Balancer struct {
	urls    []*url.URL
	timeout time.Duration
	log     *slog.Logger

	mu      sync.Mutex // guards what follows
	closed  bool
	tripper *tripper // nil before the first Wrap
}

// New returns a balancer over urls, which differ in nothing but host and port.
// The first is the one to give to [transport.HTTP]. New does no I/O; errors name
// a URL by its place in the list, counted from 1, and its host.
func New(urls []string, o Options) (*Balancer, error) {
	b := &Balancer{timeout: o.ConnectTimeout, log: o.Logger}
	if b.timeout <= 0 {
		b.timeout = DefaultConnectTimeout
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if len(urls) == 0 {
		return nil, errors.New("there is no URL; give at least one")
	}
	seen := map[string]int{}
	for i, text := range urls {
		h := transport.HTTP{URL: text}
		if err := h.Validate(); err != nil {
			return nil, fmt.Errorf("URL %d: %w", i+1, err)
		}
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("URL %d cannot be parsed; write it like https://host/path", i+1) // the cause repeats the URL
		}
		if u.Path == "" {
			u.Path = "/"
		}
		if first := b.first(); first != nil {
			if what := difference(first, u); what != "" {
				return nil, fmt.Errorf("URL %d (%s) has another %s than the first; replicas differ in host and port only", i+1, u.Host, what)
			}
		}
		if other, twice := seen[origin(u)]; twice {
			return nil, fmt.Errorf("URL %d is the same replica as URL %d (%s); name each once", i+1, other, u.Host)
		}
		seen[origin(u)] = i + 1
		b.urls = append(b.urls, u)
	}
	return b, nil
}

func (b *Balancer) first() *url.URL {
	if len(b.urls) == 0 {
		return nil
	}
	return b.urls[0]
}

// difference names the part in which two URLs differ that replicas must share.
func difference(a, b *url.URL) string {
	switch {
	case a.Scheme != b.Scheme:
		return "scheme"
	case a.EscapedPath() != b.EscapedPath():
		return "path"
	case a.RawQuery != b.RawQuery:
		return "query"
	case a.User.String() != b.User.String():
		return "user name or password"
	}
	return ""
}

// origin is what tells servers apart.
func origin(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port(u)
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// Wrap returns a round tripper that spreads requests over the replicas and sends
// them through base, for [transport.HTTP]. All transports of one target share
// the first base, and with it what is known of the replicas. It bounds how long
// base takes for a TCP connection. It does no I/O.
func (b *Balancer) Wrap(base *http.Transport) http.RoundTripper {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return closedTripper{}
	}
	if b.tripper == nil {
		b.tripper = newTripper(b, base)
	}
	return b.tripper
}

// Close ends the balancer's goroutines. It waits until ctx ends for requests
// under way, so the clients of the target should be closed before. Requests
// that come later fail, and surely are not sent. Close may be called again.
func (b *Balancer) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	t := b.tripper
	b.mu.Unlock()
	if t == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the balancer: requests are still under way: %w", ctx.Err())
	}
}

// closedTripper refuses all requests.
type closedTripper struct{}

// RoundTrip fails.
func (closedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	closeBody(r)
	return nil, errClosed()
}

func errClosed() error {
	return &transport.Error{Kind: transport.NotSent, Message: "the target was closed"}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // a round tripper must; nothing was read from it
	}
}

package balance

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bufbuild/httplb/conn"
	"github.com/bufbuild/httplb/health"
)

const (
	// firstPause is between a failed connection and the first attempt to see
	// whether the replica is back; it doubles with each attempt in vain.
	firstPause = 250 * time.Millisecond
	// probePause bounds it, so that a replica is used again soon after it is back.
	probePause = 2 * time.Second
	// trialPause bounds it for a replica that answers probes but no request.
	trialPause = 30 * time.Second
	// probeTimeout bounds one attempt.
	probeTimeout = 2 * time.Second
)

// replica is one of the servers.
type replica struct {
	url  *url.URL
	base *http.Transport
	log  *slog.Logger

	load   atomic.Int64 // requests in flight
	done   func()       // ends one of them
	down   atomic.Bool  // the last connection did not come about
	worked atomic.Bool  // it has answered since it was last taken for up
	failed chan struct{}
	proved chan struct{} // a request got an answer while it was down
}

func newReplica(u *url.URL, base *http.Transport, log *slog.Logger) *replica {
	r := &replica{url: u, base: base, log: log, failed: make(chan struct{}, 1), proved: make(chan struct{}, 1)}
	r.worked.Store(true)
	r.done = func() { r.load.Add(-1) }
	return r
}

// host is the replica's for requests of scheme, which a redirect may have
// changed from http to https.
func (r *replica) host(scheme string) string { return hostFor(r.url, scheme) }

func hostFor(u *url.URL, scheme string) string {
	if u.Scheme == scheme {
		return u.Host
	}
	return strings.TrimSuffix(u.Host, ":"+port(u))
}

// answered notes that the replica works.
func (r *replica) answered() {
	if !r.worked.Load() {
		r.worked.Store(true)
	}
	if r.down.Load() {
		select {
		case r.proved <- struct{}{}:
		default:
		}
	}
}

// fail notes that no connection to the replica came about.
func (r *replica) fail(err error) {
	if !r.down.CompareAndSwap(false, true) {
		return
	}
	r.log.Warn("a replica accepts no connections and is passed over", "host", r.url.Host, "error", err)
	select {
	case r.failed <- struct{}{}:
	default: // watch has not yet taken the last one
	}
}

// watch brings the replica back, each time it has failed, until ctx ends.
func (r *replica) watch(ctx context.Context) {
	misses := 0
	for {
		select {
		case <-r.failed:
		case <-ctx.Done():
			return
		}
		if misses++; r.worked.Swap(false) {
			misses = 0
		}
		if !r.comeBack(ctx, min(firstPause<<min(misses, 10), trialPause)) {
			return
		}
		select {
		case <-r.proved: // it is of the time before
		default:
		}
		r.down.Store(false)
		r.log.InfoContext(ctx, "a replica accepts connections again", "host", r.url.Host)
	}
}

// comeBack waits until the replica seems to work; false means that ctx ended.
func (r *replica) comeBack(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.proved:
			return true
		case <-ctx.Done():
			return false
		}
		if r.probe(ctx) {
			return true
		}
		pause = min(2*pause, probePause)
		timer.Reset(pause)
	}
}

// probe reports whether a connection comes about. What stands behind a proxy
// can only be tried with a request.
func (r *replica) probe(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if r.base.Proxy != nil {
		if proxy, err := r.base.Proxy(&http.Request{URL: r.url}); proxy != nil || err != nil {
			return true
		}
	}
	c, err := r.base.DialContext(ctx, "tcp", net.JoinHostPort(r.url.Hostname(), port(r.url)))
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }() // nothing was written to it
	if r.url.Scheme != "https" {
		return true
	}
	config := r.base.TLSClientConfig.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = r.url.Hostname()
	}
	return tls.Client(c, config).HandshakeContext(ctx) == nil
}

// watcher runs the watches of the replicas as httplb's health checks, which
// live as long as its connections. It never tells httplb of a replica that is
// down: httplb would take it from sessions that live there, and would refuse
// requests while all are down instead of trying them.
type watcher struct{ t *tripper }

// New starts the watch of one replica.
func (w watcher) New(ctx context.Context, c conn.Conn, _ health.Tracker) io.Closer {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	r := w.t.byHost[c.Address().HostPort]
	go func() {
		defer close(ended)
		r.watch(ctx)
	}()
	return stopper(func() {
		cancel()
		<-ended
	})
}

type stopper func()

// Close stops and waits.
func (s stopper) Close() error {
	s()
	return nil
}

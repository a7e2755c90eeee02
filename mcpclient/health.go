package mcpclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// watch waits for the end of a connection, and asks a quiet server whether it
// still lives. Probes never overlap.
func (c *Client) watch(s *session, l *link) {
	h := c.opts.Health
	if h.Disabled {
		select {
		case <-s.conn.Done():
			c.lost(s, connEnded(s.conn), lossEnded)
		case <-c.lifetime.Done():
		}
		return
	}
	failures, silent := 0, time.Time{} // silent: when the first of the failed probes began
	timer := time.NewTimer(c.untilProbe(h.Interval))
	defer timer.Stop()
	for {
		select {
		case <-s.conn.Done():
			c.lost(s, connEnded(s.conn), lossEnded)
			return
		case <-s.replaced:
			return
		case <-c.lifetime.Done():
			return
		case <-timer.C:
		}
		if quiet := time.Since(time.Unix(0, l.heard.Load())); quiet < h.Interval && failures == 0 {
			timer.Reset(c.untilProbe(h.Interval - quiet)) // traffic proves life
			continue
		}
		began := time.Now()
		err := c.probe(s, h.Timeout)
		if err == nil {
			failures = 0
			c.mark(s, StateReady, nil)
			timer.Reset(c.untilProbe(h.Interval))
			continue
		}
		if failures++; failures == 1 {
			silent = began
		}
		// a call from before the silence may be what keeps the server busy, up to
		// its own timeout; only then is there a verdict
		if failures >= h.Failures && !s.calls.excuse(silent, errors.Is(err, &Error{Kind: KindTimeout})) {
			how := lossRefused // whoever answers a probe, however badly, may answer the calls under way
			if errors.Is(err, &Error{Kind: KindTimeout}) {
				how = lossUnhealthy
			}
			c.lost(s, err, how)
			return
		}
		c.mark(s, StateSuspect, err)
		timer.Reset(min(h.Interval, h.Timeout)) // a suspect is asked again soon
	}
}

// untilProbe varies a wait by a tenth, so that many clients do not probe in
// step.
func (c *Client) untilProbe(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d)) //nolint:gosec // no secret depends on it
}

// probe asks a server whether it lives: ping on legacy connections,
// server/discover on modern ones, which have no ping. Any answer proves life,
// an error, too.
func (c *Client) probe(s *session, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(c.lifetime, timeout, &ownTimeout{limit: timeout, setting: "health.timeout"})
	defer cancel()
	method := methodPing
	if s.era == EraModern {
		method = methodDiscover
	}
	_, err := watched(ctx, c, Operation{Method: method}, itself, func() (*Result, error) {
		return c.roundTrip(ctx, s, &Call{Method: method})
	})
	if e, ok := errors.AsType[*Error](err); ok {
		switch e.Kind {
		case KindRPC, KindUnauthorized, KindRateLimited, KindProtocol:
			return nil
		default:
		}
	}
	return err
}

// mark records what a probe found, unless the connection was replaced.
func (c *Client) mark(s *session, state State, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s && !c.closed && c.status.State != state {
		c.setStateLocked(state, cause)
	}
}

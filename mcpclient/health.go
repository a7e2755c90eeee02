package mcpclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// vigil asks a quiet server whether it still lives. It runs on a timer, since
// most connections are quiet most of the time, and a goroutine that waits costs
// more than all the rest of them.
type vigil struct {
	timer    *time.Timer // guarded by Client.mu
	failures int         // probes in a row that failed; of the one check that runs
	silent   time.Time   // when the first of them began
}

// watchLocked begins to watch over the live connection: one that can end by
// itself is waited for, and a quiet server is probed.
func (c *Client) watchLocked(s *session) {
	if !s.conn.PerRequestStreams() { // the others end by Close alone
		c.goLocked(func() {
			select {
			case <-s.conn.Done():
				c.lost(s, connEnded(s.conn), lossEnded)
			case <-s.replaced:
			case <-c.lifetime.Done():
			}
		})
	}
	if c.opts.Health.Disabled {
		return
	}
	s.vigil.timer = time.AfterFunc(c.untilProbe(c.opts.Health.Interval), func() {
		c.background(func() { c.check(s) })
	})
}

// check probes a connection unless its server was heard, and sets the time of
// the next check. Checks of one connection never overlap.
func (c *Client) check(s *session) {
	h, v := c.opts.Health, &s.vigil
	if quiet := time.Since(time.Unix(0, s.link.heard.Load())); quiet < h.Interval && v.failures == 0 {
		c.checkIn(s, c.untilProbe(h.Interval-quiet)) // traffic proves life
		return
	}
	began := time.Now()
	err := c.probe(s, h.Timeout)
	if err == nil {
		v.failures = 0
		c.mark(s, StateReady, nil)
		c.checkIn(s, c.untilProbe(h.Interval))
		return
	}
	if v.failures++; v.failures == 1 {
		v.silent = began
	}
	// a call from before the silence may be what keeps the server busy, up to
	// its own timeout; only then is there a verdict
	if v.failures >= h.Failures && !s.calls.excuse(v.silent, errors.Is(err, &Error{Kind: KindTimeout})) {
		how := lossRefused // whoever answers a probe, however badly, may answer the calls under way
		if errors.Is(err, &Error{Kind: KindTimeout}) {
			how = lossUnhealthy
		}
		c.lost(s, err, how)
		return
	}
	c.mark(s, StateSuspect, err)
	c.checkIn(s, min(h.Interval, h.Timeout)) // a suspect is asked again soon
}

// checkIn sets the time of the next check, unless the connection was replaced.
func (c *Client) checkIn(s *session, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		s.vigil.timer.Reset(d)
	}
}

// retireLocked ends the watch over the live connection, if there is one. It is
// no longer the live one.
func (c *Client) retireLocked() {
	if s := c.session; s != nil && s.vigil.timer != nil {
		s.vigil.timer.Stop()
	}
	c.session = nil
}

// untilProbe varies a wait by a tenth, so that many clients do not probe in
// step.
func (c *Client) untilProbe(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d)) //nolint:gosec // no secret depends on it
}

// rareInterval is how long after one probe the next one comes at least if a
// connection of plain HTTP is not to be kept for it.
const rareInterval = 5 * time.Second

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
		return c.roundTrip(ctx, s, &Call{Method: method, rare: c.opts.Health.Interval >= rareInterval})
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

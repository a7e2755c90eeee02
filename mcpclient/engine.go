package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// session is one negotiated connection. All fields before calls are immutable
// once it is published.
type session struct {
	conn    transport.Conn
	era     Era
	version string
	server  *Server
	since   time.Time
	// lifecycle is the constant part of `_meta` on a modern connection.
	lifecycle metaLifecycle

	link     *link
	replaced chan struct{} // closed when the session is retired

	calls calls // under way, for the health check
	vigil vigil

	users   int  // calls that hold the session, guarded by Client.mu
	retired bool // replaced: closed when the last user is gone, guarded by Client.mu
}

// acquire returns the live connection, to be given back with release. Callers
// wait for a first connection, and for the first attempt to replace one; after
// a failure they are told at once when the next attempt is due, because waiting
// would only add their number to the trouble.
func (c *Client) acquire(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed()
	}
	if s := c.session; s != nil {
		s.users++
		c.mu.Unlock()
		return s, nil
	}
	if c.gaveUp {
		err := c.unavailableLocked(NeverAgain)
		c.mu.Unlock()
		return nil, err
	}
	if c.attempt == nil {
		if wait := time.Until(c.status.NextAttempt); wait > 0 {
			err := c.unavailableLocked(wait)
			c.mu.Unlock()
			return nil, err
		}
		c.startAttemptLocked()
	} else if c.failures > 0 {
		err := c.unavailableLocked(c.opts.Reconnect.Interval)
		c.mu.Unlock()
		return nil, err
	}
	a := c.attempt
	c.mu.Unlock()

	if err := c.await(ctx, a); err != nil {
		return nil, err
	}
	return c.acquire(ctx)
}

// unavailableLocked tells why there is no connection and when to come back.
func (c *Client) unavailableLocked(wait time.Duration) error {
	return unavailable(c.status.LastError, wait)
}

// unavailable turns the failure of a connection attempt into the failure of a
// call that needed it.
func unavailable(cause error, wait time.Duration) error {
	out := &Error{Kind: KindUnavailable, Message: "no connection to the server", SafeToRetry: true, RetryAfter: wait, Err: cause}
	e, ok := errors.AsType[*Error](cause)
	if !ok {
		return out
	}
	switch e.Kind {
	case KindVersion, KindUnauthorized, KindClosed:
		out.Kind, out.RetryAfter = e.Kind, 0
	default:
	}
	if wait == NeverAgain {
		out.Message = "no connection to the server, and no further attempt will be made (setting reconnect.max_attempts)"
	}
	out.Status, out.RPC = e.Status, e.RPC
	text := e.Message
	if text == "" && e.RPC != nil {
		text = refusal(e)
	}
	if text != "" {
		out.Message += ": " + text
	}
	return out
}

// refusal says which error the server refused a request with.
func refusal(e *Error) string {
	return fmt.Sprintf("the server refused %s with error %d: %s", e.Method, e.RPC.Code, e.RPC.Message)
}

// startAttemptLocked begins one connection attempt; the caller has checked
// that none is under way.
func (c *Client) startAttemptLocked() {
	c.stopTimerLocked()
	a := &attempt{done: make(chan struct{})}
	if !c.goLocked(func() { c.runAttempt(a) }) {
		return
	}
	c.attempt = a
	state := StateConnecting
	if c.status.Connects > 0 || c.failures > 0 {
		state = StateReconnecting
	}
	c.setStateLocked(state, c.status.LastError)
}

// runAttempt connects once and publishes the outcome.
func (c *Client) runAttempt(a *attempt) {
	s, err := c.connect(c.lifetime, a)
	c.mu.Lock()
	c.attempt = nil
	if c.closed {
		c.mu.Unlock()
		if s != nil {
			_ = s.conn.Close(c.lifetime)
		}
		a.err = errClosed()
		close(a.done)
		return
	}
	if err != nil {
		wait := c.planLocked(err, c.paceLocked(err))
		a.err = unavailable(err, wait)
		c.mu.Unlock()
		if e, ok := errors.AsType[*Error](err); ok && e.gated {
			c.log.Debug("no connection attempt was made", "error", err, "next_attempt_in", wait)
		} else {
			c.log.Warn("connection attempt failed", "error", err, "next_attempt_in", max(wait, 0))
		}
		close(a.done)
		return
	}
	c.session = s
	c.open[s] = struct{}{}
	c.failures = 0
	c.status.Server = s.server
	c.status.NextAttempt = time.Time{}
	c.status.Connects++
	c.setStateLocked(StateReady, nil)
	again, status := c.status.Connects > 1, c.status
	c.watchLocked(s)
	c.mu.Unlock()
	close(a.done)
	c.log.Info("connected", "era", s.era.String(), "protocol_version", s.version)
	c.subscriptionsConnected(s)
	if !again {
		return
	}
	for i := range c.opts.Listeners {
		if f := c.opts.Listeners[i].Reconnected; f != nil {
			c.guard("listener", func() { f(status) })
		}
	}
}

// loss is how a connection was found to be of no more use.
type loss int

const (
	lossEnded     loss = iota // it ended by itself
	lossUnhealthy             // probes went unanswered
	lossForgotten             // the server no longer knows the session
	lossRefused               // the server could not be reached
)

// lost replaces a connection that no longer works. Only the first report about
// a connection counts. One that ended is replaced at once, but at most once per
// interval, so that a server that dies right after its handshake cannot cause a
// storm; a forgotten session is replaced at the pace of the calls that find
// out.
func (c *Client) lost(s *session, cause error, how loss) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s || c.closed {
		return
	}
	c.retireLocked()
	s.retired = true
	close(s.replaced)
	c.lists.reset()
	if time.Since(s.since) >= c.opts.Reconnect.Interval {
		c.pace.Reset()
	}
	if how != lossForgotten && time.Since(c.replaced) < c.opts.Reconnect.Interval {
		c.planLocked(cause, c.pace.NextBackOff())
	} else {
		if how != lossForgotten {
			c.replaced = time.Now()
		}
		if c.passive() {
			c.setStateLocked(StateIdle, cause)
		} else {
			c.setStateLocked(StateReconnecting, cause)
			c.startAttemptLocked()
		}
	}
	c.goLocked(func() { c.subscriptionsLost(s) })
	c.sessionEndedLocked(s, cause)
	// what one call found out must not end the others; a dead connection must
	if how == lossEnded || how == lossUnhealthy {
		c.discardLocked(s)
	} else if s.users == 0 {
		c.discardLocked(s)
	}
	c.log.Warn("connection lost", "error", cause)
}

// release gives a session back. A retired one is closed by its last user.
func (c *Client) release(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.users--
	if s.retired && s.users == 0 {
		c.discardLocked(s)
	}
}

// discardLocked closes a connection behind the callers' backs: DELETE of the
// session and the end of the process take time. After Close, which closes all
// that are open, it does nothing.
func (c *Client) discardLocked(s *session) {
	if _, open := c.open[s]; open && c.goLocked(func() { _ = s.conn.Close(c.lifetime) }) {
		delete(c.open, s)
	}
}

// paceLocked counts a failed attempt and says how long to wait for the next. A
// gate that refused the attempt has its own idea of that.
func (c *Client) paceLocked(cause error) time.Duration {
	if e, ok := errors.AsType[*Error](cause); ok && e.gated {
		return max(e.RetryAfter, minGateWait)
	}
	c.failures++
	return c.pace.NextBackOff()
}

// minGateWait keeps a gate that names no time from being asked without end.
const minGateWait = 10 * time.Millisecond

// planLocked records why there is no connection and sets the time of the next
// attempt.
func (c *Client) planLocked(cause error, wait time.Duration) time.Duration {
	c.status.NextAttempt = time.Now().Add(wait)
	c.setStateLocked(StateReconnecting, cause)
	if limit := c.opts.Reconnect.MaxAttempts; limit > 0 && c.failures >= limit {
		c.gaveUp, c.status.NextAttempt = true, time.Time{}
		c.log.Warn("no further connection attempt will be made: they failed as often as configured (setting reconnect.max_attempts)", "attempts", limit)
		return NeverAgain
	}
	c.stopTimerLocked()
	c.timer = time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.closed || c.session != nil || c.attempt != nil:
		case c.passive(): // the next call tries; whoever goes by the state must not stay away
			c.status.NextAttempt = time.Time{}
			c.setStateLocked(StateIdle, cause)
		default:
			c.startAttemptLocked()
		}
	})
	return wait
}

// passive says that only calls bring a connection back.
func (c *Client) passive() bool { return c.opts.Lazy || c.opts.Reconnect.Disabled }

func (c *Client) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

func errClosed() error {
	return &Error{Kind: KindClosed, Message: "the client is closed"}
}

// connEnded is why a connection ended by itself.
func connEnded(conn transport.Conn) error {
	err := conn.Err()
	text := "the connection ended"
	if te, ok := errors.AsType[*transport.Error](err); ok && te.Message != "" {
		text = te.Message
	}
	return &Error{Kind: KindLost, Message: text, Err: err}
}

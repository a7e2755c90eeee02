package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// Causes that end a stream without the subscription being closed. The server
// knows of either, so that neither is cancelled on the wire.
var (
	errTornDown = errors.New("the server ended the subscription")
	errReplaced = errors.New("the connection was replaced")
)

// stream is what a subscription has open on one connection: a
// subscriptions/listen, or what it takes on a legacy connection.
type stream struct {
	sub      *Subscription
	session  *session
	over     context.CancelCauseFunc
	afterGap bool          // an earlier stream was lost
	ready    chan struct{} // closed at the acknowledgement

	acked, overdue bool // guarded by subscriptions.mu
}

// newStream makes what the subscription has open on a connection; its context
// ends with it.
func (sub *Subscription) newStream(s *session, again bool) (context.Context, *stream) {
	ctx, over := context.WithCancelCause(sub.ctx)
	return ctx, &stream{sub: sub, session: s, over: over, afterGap: again, ready: make(chan struct{})}
}

// expect waits, behind the scenes, for the acknowledgement.
func (st *stream) expect(ctx context.Context) {
	c := st.sub.c
	c.background(func() {
		timer := time.NewTimer(ackWait)
		defer timer.Stop()
		select {
		case <-st.ready:
		case <-ctx.Done():
		case <-timer.C:
			c.subs.late(st)
		}
	})
}

// run keeps a subscription open until it ends; s is the first connection.
func (sub *Subscription) run(s *session) {
	defer sub.finish()
	c := sub.c
	pace := c.newChangePace()
	for again := false; ; again = true {
		began := time.Now()
		ended, err := sub.serve(s, again)
		if ended || sub.isOver() {
			sub.settle(err, false)
			return
		}
		wait := sub.nextTry(pace, began, err)
		c.log.Info("a subscription's stream was lost; it will be opened again", "in", wait, "error", err)
		if !sub.pause(wait, nil) {
			return
		}
		if c.opts.Reconnect.Disabled && s.isReplaced() {
			sub.settle(fmt.Errorf("%w: %w", ErrStreamLost, err), false)
			return
		}
		if s = sub.reconnected(pace); s == nil {
			return
		}
	}
}

// serve keeps the subscription open on one connection. ended is true when it
// is over for good: err is then why, nil = in good order.
func (sub *Subscription) serve(s *session, again bool) (ended bool, err error) {
	if s.era == EraLegacy {
		return sub.serveLegacy(s, again)
	}
	return sub.serveModern(s, again)
}

// newChangePace makes the pauses between attempts: they grow, with jitter, so
// that a server that accepts and closes is not stormed (inspector#1730).
func (c *Client) newChangePace() *backoff.ExponentialBackOff {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = c.opts.Changes.Interval, c.opts.Changes.MaxInterval
	pace.Multiplier, pace.RandomizationFactor = 2, 0.3
	pace.Reset()
	return pace
}

// nextTry is the pause before the next attempt. The pauses begin anew only
// after a stream that brought something or stayed open for a while.
func (sub *Subscription) nextTry(pace *backoff.ExponentialBackOff, began time.Time, err error) time.Duration {
	o := &sub.c.opts.Changes
	if sub.heard.Swap(false) || time.Since(began) >= min(10*o.Interval, o.MaxInterval) {
		pace.Reset()
	}
	wait := min(pace.NextBackOff(), o.MaxInterval)
	if e, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	return wait
}

// isOver reports whether the subscription or the client was closed. Close of
// the client reaches the connection before it reaches the subscription.
func (sub *Subscription) isOver() bool {
	return sub.ctx.Err() != nil || sub.c.lifetime.Err() != nil
}

// pause waits; false means that the subscription or, when given, the
// connection has ended.
func (sub *Subscription) pause(d time.Duration, replaced <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-replaced:
	case <-sub.ctx.Done():
	}
	return false
}

// reconnected waits for a live connection; nil = the subscription is over.
func (sub *Subscription) reconnected(pace *backoff.ExponentialBackOff) *session {
	c := sub.c
	for {
		connected := c.subs.nextConnection()
		s, err := c.acquire(sub.ctx)
		if err == nil {
			c.release(s)
			return s
		}
		c.mu.Lock()
		gaveUp := c.gaveUp
		c.mu.Unlock()
		if gaveUp {
			sub.settle(fmt.Errorf("%w: %w", ErrStreamLost, err), false)
			return nil
		}
		// the engine connects; the timer is for clients that connect only when asked
		if !sub.pause(sub.nextTry(pace, time.Now(), err), connected) && sub.isOver() {
			return nil
		}
	}
}

// serveModern opens one subscriptions/listen and waits for its end.
func (sub *Subscription) serveModern(s *session, again bool) (ended bool, err error) {
	c := sub.c
	ctx, st := sub.newStream(s, again)
	defer st.over(nil)
	call := &Call{Method: methodListen, params: sub.filter.appendParams(nil), options: &CallOptions{}}
	if len(sub.filter.Tasks) > 0 {
		call.options.Capabilities = withExtension(c.capabilities.modern, TasksExtension)
	}
	table := &c.subs
	var id jsonrpc.ID
	call.assigned = func(assigned jsonrpc.ID) {
		id = assigned
		table.open(id, st)
	}
	call.Acknowledged = st.ready
	st.expect(ctx)
	op := Operation{Method: methodListen}
	c.before(ctx, op)
	_, err = c.roundTrip(ctx, listenSession(s), call)
	acked := table.close(id, st)
	if sub.isOver() || errors.Is(context.Cause(ctx), errTornDown) {
		err = nil // in good order
	}
	c.over(ctx, op, nil, err)
	if err == nil {
		return true, nil
	}
	return rejects(err, acked), err
}

// rejects says whether a failed subscriptions/listen would fail again: the
// server refuses it, as opposed to a stream that broke.
func rejects(err error, acked bool) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return true
	}
	switch e.Kind {
	case KindUnavailable, KindLost, KindRateLimited, KindTooLarge, KindTimeout:
		return false
	case KindHTTP:
		return e.Status/100 != 5 && e.Status != http.StatusRequestTimeout
	case KindProtocol:
		return !acked
	default:
		return true
	}
}

// listenSession is a connection as a subscriptions/listen sees it.
func listenSession(s *session) *session {
	return &session{
		conn: listenConn{s.conn}, era: s.era, version: s.version, server: s.server, since: s.since,
		lifecycle: s.lifecycle, link: s.link, replaced: s.replaced,
	}
}

// listenConn reports a stream whose end the server knows of as lost, not as
// cancelled: only requests in progress may be cancelled (2026-07-28
// patterns/cancellation).
type listenConn struct{ transport.Conn }

func (l listenConn) Call(ctx context.Context, r *transport.Request) (*jsonrpc.Message, error) {
	m, err := l.Conn.Call(ctx, r)
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errTornDown) || errors.Is(cause, errReplaced)) {
		return nil, &Error{Kind: KindLost, Method: r.Method, Sent: true, Message: cause.Error()}
	}
	return m, err
}

// isReplaced reports whether a connection was given up.
func (s *session) isReplaced() bool {
	select {
	case <-s.replaced:
		return true
	default:
		return false
	}
}

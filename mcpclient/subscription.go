package mcpclient

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// MethodResync is the method of the notification that a [Subscription] delivers
// by itself after a gap: what it watches may have changed unseen. No server
// sends it.
const MethodResync = "resync"

// Methods of notifications that subscriptions deliver.
const (
	MethodToolsChanged     = "notifications/tools/list_changed"
	MethodPromptsChanged   = "notifications/prompts/list_changed"
	MethodResourcesChanged = "notifications/resources/list_changed"
	MethodResourceUpdated  = "notifications/resources/updated"
	MethodTaskStatus       = "notifications/tasks"
)

const (
	methodListen       = "subscriptions/listen"
	methodSubscribe    = "resources/subscribe"
	methodUnsubscribe  = "resources/unsubscribe"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

// ErrStreamLost is wrapped by the end of a subscription that was given up: the
// client does not connect any more.
var ErrStreamLost = errors.New("the subscription was lost and the client does not reconnect")

// ErrDeliveryDropped is the end of a subscription one of whose deliveries was
// shed at the in-flight dispatch cap: a lost delivery cannot be seen from later
// ones. Listen again, and look at everything once.
var ErrDeliveryDropped = errors.New("the subscription was ended because a delivery was shed at the in-flight dispatch cap; " +
	"handle deliveries faster or raise Dispatch.MaxInFlight")

// Subscription is one subscription of a caller. It outlives streams, sessions
// and processes: what is lost is opened again, with growing pauses, and
// [MethodResync] is delivered then. All methods may be called from many
// goroutines at once, and from deliver.
type Subscription struct {
	c       *Client
	filter  Filter
	deliver func(ctx context.Context, n Notification)
	// toHandlers: deliver feeds Options.Handlers, which on legacy connections
	// are told already.
	toHandlers bool
	// automatic: list changes for the client itself; see watchChanges.
	automatic bool

	lane   *lane
	ctx    context.Context //nolint:containedctx // deliver's: the values of Listen's, ends with the subscription
	cancel context.CancelFunc
	heard  atomic.Bool   // something was delivered since the last look
	opened chan struct{} // closed once the first stream is acknowledged, or overdue, or all is over
	opens  sync.Once
	done   chan struct{}

	mu       sync.Mutex // guards the following
	acked    Filter
	answered bool // there was an acknowledgement
	over     bool // err is set
	muted    bool // nothing is delivered any more
	err      error
}

// Listen subscribes to notifications (2026-07-28 patterns/subscriptions;
// 2025-11-25 server/resources, Subscriptions). On a modern connection it opens
// one subscriptions/listen. On a legacy one list changes come unasked and each
// resource is subscribed to, once for all subscriptions together.
//
// deliver is called in order, one notification at a time, until the
// subscription ends. Its ctx has the values of Listen's ctx and ends with the
// subscription. Every notification that waits or is being delivered takes a
// place under Dispatch.MaxInFlight; past that the subscription ends with
// [ErrDeliveryDropped]. After a gap deliver gets [MethodResync].
//
// Listen returns when the server has acknowledged, or after 5 seconds without
// that: the subscription then stays open and Acknowledged is empty until the
// server says so. ctx bounds this wait alone; use Close to end a subscription.
// The error is an [*Error]: no connection, or the server's rejection.
func (c *Client) Listen(ctx context.Context, filter Filter, deliver func(ctx context.Context, n Notification)) (*Subscription, error) {
	if err := filter.check(); err != nil {
		return nil, err
	}
	if deliver == nil {
		return nil, &Error{Kind: KindInvalid, Method: methodListen, SafeToRetry: true, Message: "a subscription needs a function that takes its deliveries"}
	}
	sub := c.newSubscription(ctx, filter, deliver)
	if err := sub.start(ctx); err != nil {
		return nil, err
	}
	return sub, nil
}

// newSubscription makes a subscription that is not running yet.
func (c *Client) newSubscription(ctx context.Context, filter Filter, deliver func(ctx context.Context, n Notification)) *Subscription {
	sub := &Subscription{
		c: c, filter: filter.clone(), deliver: deliver, lane: c.newLane(),
		opened: make(chan struct{}), done: make(chan struct{}),
	}
	var cancel context.CancelFunc
	sub.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(c.lifetime, cancel)
	sub.cancel = func() { stop(); cancel() }
	return sub
}

// start runs the subscription and waits until it is open.
func (sub *Subscription) start(ctx context.Context) error {
	s, err := sub.c.acquire(ctx)
	if err != nil {
		sub.cancel()
		return about(err, methodListen, "")
	}
	sub.c.release(s)
	if !sub.c.background(func() { sub.run(s) }) {
		sub.cancel()
		return errClosed()
	}
	timer := time.NewTimer(ackWait)
	defer timer.Stop()
	select {
	case <-sub.opened:
	case <-timer.C: // the stream comes and goes; run has said so
	case <-ctx.Done():
		sub.Close()
		return about(contextError(ctx, "the subscription was not acknowledged before"), methodListen, "")
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.err
}

// ackWait is for how long an acknowledgement is waited for.
const ackWait = 5 * time.Second

// Acknowledged is what the server agreed to send, as it last said; it may be
// less than what was asked for. Without an acknowledgement it is empty.
func (sub *Subscription) Acknowledged() Filter {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.acked.clone()
}

// Done is closed when the subscription has ended. Unless Close was called, the
// deliveries that were queued have returned by then.
func (sub *Subscription) Done() <-chan struct{} { return sub.done }

// Err says why the subscription ended: nil if the server ended it in good
// order, or it or the client was closed here; an [*Error] if the server
// rejected it; else [ErrDeliveryDropped], or [ErrStreamLost], wrapped. Before
// the end it is nil.
func (sub *Subscription) Err() error {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.err
}

// Close ends the subscription and returns at once; the server is told behind
// the caller's back. No delivery begins afterwards; one may still be running.
// Closing again has no effect.
func (sub *Subscription) Close() {
	sub.settle(nil, true)
	sub.cancel()
}

// settle records why the subscription ends; the first reason counts. Muted,
// nothing more is delivered.
func (sub *Subscription) settle(err error, mute bool) (first bool) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	first = !sub.over
	if first {
		sub.over, sub.err = true, err
	}
	sub.muted = sub.muted || mute
	return first
}

// finish is the end of run.
func (sub *Subscription) finish() {
	sub.lane.wait(sub.ctx)
	sub.settle(nil, true)
	sub.cancel()
	sub.markOpen()
	close(sub.done)
}

func (sub *Subscription) markOpen() { sub.opens.Do(func() { close(sub.opened) }) }

// acknowledge takes note of what a server agreed to.
func (sub *Subscription) acknowledge(f Filter, afterGap bool) {
	sub.mu.Lock()
	sub.acked, sub.answered = f, true
	sub.mu.Unlock()
	sub.markOpen()
	switch {
	case sub.automatic:
		sub.c.changesAcknowledged(sub, f, afterGap)
	case afterGap:
		sub.post(Notification{Method: MethodResync}, false)
	}
}

// post queues one delivery; it never blocks. tell: the listeners have not seen
// the notification.
func (sub *Subscription) post(n Notification, tell bool) {
	sub.mu.Lock()
	muted := sub.muted
	sub.mu.Unlock()
	if muted {
		return
	}
	if sub.c.dispatch(sub.lane, n.Method, func() {
		sub.mu.Lock()
		muted := sub.muted
		sub.mu.Unlock()
		if muted {
			return
		}
		if tell {
			sub.c.tellListeners(sub.ctx, n)
		}
		sub.deliver(sub.ctx, n)
	}) {
		return
	}
	if sub.settle(ErrDeliveryDropped, true) {
		sub.c.log.Warn("a subscription was ended: one of its deliveries was shed at the in-flight dispatch cap", "method", n.Method)
	}
	sub.cancel() // run cancels it on the wire
}

// tellListeners tells those who watch every notification.
func (c *Client) tellListeners(ctx context.Context, n Notification) {
	for i := range c.opts.Listeners {
		if f := c.opts.Listeners[i].Notification; f != nil {
			c.guard("listener", func() { f(ctx, n) })
		}
	}
}

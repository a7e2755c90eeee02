package pool

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// retryAfter is what a refused caller is told to wait: long enough for a queue
// of ordinary calls to move.
const retryAfter = time.Second

// Request says which connection a call needs.
type Request struct {
	Key Key
	// Exclusive asks for a connection that no other call uses meanwhile. It is
	// kept for later exclusive requests of the same key until it is idle for too
	// long or another key needs its place.
	Exclusive bool
}

// waiter is one caller in a queue. ready is closed once it has a member or an
// error, which are guarded by Pool.mu.
type waiter struct {
	request Request
	arrival uint64
	ready   chan struct{}
	member  *member
	err     error
	in      *list.List // the queue it waits in, and its place there
	place   *list.Element
}

// Lease is the right to run one call on a connection. It must be released.
type Lease struct {
	pool     *Pool
	member   *member
	released atomic.Bool
}

// Client returns the client to call. It must not be used after Release.
func (l *Lease) Client() *mcpclient.Client { return l.member.client }

// Discard has an exclusive connection end with this lease instead of being kept
// for the next one: after a call that may still be running at the server, which
// could speak to the next caller. It does nothing to connections that are shared.
func (l *Lease) Discard() {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.member.group.request.Exclusive && !l.released.Load() {
		p.removeLocked(l.member)
	}
}

// Release gives the lease back. Further calls do nothing.
func (l *Lease) Release() {
	if l.released.CompareAndSwap(false, true) {
		l.pool.release(l.member)
	}
}

// Acquire returns a lease, waiting in the queue when all are taken, or until a
// connection that is on its way out has made room for the one that is needed. It
// does not wait for a connection to be made unless others serve meanwhile. Errors are
// [*mcpclient.Error] values of KindOverloaded (the queue is full, or no further
// connection is allowed), KindTimeout or KindCanceled (ctx ended first) or
// KindClosed; nothing was sent in any of these cases.
func (p *Pool) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, waitError(err, p.settingOf(&p.queue))
	}
	r.Exclusive = r.Exclusive || p.opts.Mode == ModePerCall
	p.mu.Lock()
	if p.draining {
		p.mu.Unlock()
		return nil, closedError()
	}
	var waitIn *list.List
	if p.fullLocked() {
		waitIn = &p.queue
	} else {
		m, queue, err := p.placeLocked(r)
		if queue == nil {
			p.mu.Unlock()
			if err != nil {
				return nil, err
			}
			return &Lease{pool: p, member: m}, nil
		}
		waitIn = queue
	}
	if p.opts.MaxQueue >= 0 && p.queued >= p.opts.MaxQueue {
		p.counters.rejected++
		err := p.overloadErrorLocked(waitIn)
		p.mu.Unlock()
		return nil, err
	}
	w := &waiter{request: r, arrival: p.counters.waits, ready: make(chan struct{})}
	p.counters.waits++
	p.queued++
	w.wait(waitIn)
	p.mu.Unlock()
	return p.await(ctx, w)
}

func (w *waiter) wait(in *list.List) {
	w.in = in
	w.place = in.PushBack(w)
}

// await returns the lease of a waiter, or why it has none.
func (p *Pool) await(ctx context.Context, w *waiter) (lease *Lease, err error) {
	if observe := p.opts.OnWait; observe != nil {
		done := observe(ctx)
		defer func() { done(err) }()
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	p.mu.Lock()
	m := w.member
	err = w.err
	setting := p.settingOf(w.in)
	if m == nil && err == nil {
		w.in.Remove(w.place)
		p.queued--
		p.tidyLocked(w.request, nil)
		err = waitError(ctx.Err(), setting)
	}
	p.mu.Unlock()
	switch {
	case m == nil:
		return nil, err
	case ctx.Err() != nil: // it came too late; the next in the queue gets it
		p.release(m)
		return nil, waitError(ctx.Err(), setting)
	}
	return &Lease{pool: p, member: m}, nil
}

// fullLocked reports whether no further lease may exist.
func (p *Pool) fullLocked() bool {
	return p.opts.MaxInFlight >= 0 && p.inFlight >= p.opts.MaxInFlight
}

// placeLocked takes a place on a connection, making one if that is due. A queue
// means that the call has to wait there.
func (p *Pool) placeLocked(r Request) (*member, *list.List, error) {
	g := p.groupLocked(r)
	m := p.pickLocked(g)
	if m == nil || p.wantsMoreLocked(g, m) {
		added, queue, err := p.growLocked(g, m != nil)
		switch {
		case m != nil && err != nil:
			p.opts.Logger.Warn("a further connection could not be made", "error", err)
		case m == nil && added == nil:
			p.tidyLocked(r, queue)
			return nil, queue, err
		case m == nil:
			m = added
		}
	}
	m.inFlight++
	p.inFlight++
	return m, nil, nil
}

// release ends one lease, and lets the first in the queues have its place.
func (p *Pool) release(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.inFlight--
	p.inFlight--
	if m.inFlight == 0 {
		m.idleSince = time.Now()
		switch {
		case p.closed:
		case m.gone:
			delete(p.leaving, m)
			p.endLocked(m)
		case p.opts.Mode == ModePerCall, m.group != p.shared && m.expired(m.idleSince):
			p.removeLocked(m)
		}
	}
	p.advanceLocked(m.group.request)
	p.admitLocked()
	if p.draining && p.inFlight == 0 {
		close(p.idle)
	}
}

// advanceLocked gives free places to those who wait for any, or for one in this
// group, in order of arrival.
func (p *Pool) advanceLocked(r Request) {
	for p.queued > 0 && !p.fullLocked() && !p.draining {
		w := front(&p.queue)
		if g := p.groups[r]; g != nil {
			if inGroup := front(&g.queue); inGroup != nil && (w == nil || inGroup.arrival < w.arrival) && p.roomLocked(g) {
				w = inGroup
			}
		}
		if w == nil {
			return
		}
		w.in.Remove(w.place)
		p.serveLocked(w)
	}
}

// serveLocked gives a waiter, who was taken out of its queue, a place or an
// error, or has it wait in another queue; it reports whether it waits.
func (p *Pool) serveLocked(w *waiter) (waits bool) {
	m, queue, err := p.placeLocked(w.request)
	if queue != nil {
		w.wait(queue)
		return true
	}
	p.queued--
	w.member, w.err = m, err
	close(w.ready)
	return false
}

// failLocked ends a queue.
func (p *Pool) failLocked(queue *list.List) {
	for w := front(queue); w != nil; w = front(queue) {
		queue.Remove(w.place)
		p.queued--
		w.err = closedError()
		close(w.ready)
	}
}

func front(queue *list.List) *waiter {
	first := queue.Front()
	if first == nil {
		return nil
	}
	w, _ := first.Value.(*waiter)
	return w
}

func (p *Pool) overloadErrorLocked(queue *list.List) error {
	return &mcpclient.Error{
		Kind: mcpclient.KindOverloaded, SafeToRetry: true, RetryAfter: retryAfter,
		Message: fmt.Sprintf("the target already runs %d calls and %d more wait; retry later or raise %s or pool.max_queue", p.inFlight, p.queued, p.settingOf(queue)),
	}
}

func closedError() error {
	return &mcpclient.Error{Kind: mcpclient.KindClosed, SafeToRetry: true, Message: "the target is shutting down"}
}

// waitError is the end of a wait that the setting could have made shorter.
func waitError(cause error, setting string) error {
	e := &mcpclient.Error{
		Kind: mcpclient.KindCanceled, SafeToRetry: true, Err: cause,
		Message: "the call was canceled before it could start",
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		e.Kind = mcpclient.KindTimeout
		e.Message = "the deadline passed before the call could start; allow more time or raise " + setting
	}
	return e
}

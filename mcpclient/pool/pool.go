// Package pool bounds the calls that one target runs at the same time.
//
// A [Pool] owns the target's one [mcpclient.Client] and hands it out in leases:
// at most Options.MaxInFlight at once, the next ones waiting in order of
// arrival. It observes the client; connecting and reconnecting are the
// client's own business. The pool starts no goroutine.
package pool

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

const (
	defaultMaxInFlight = 1024
	defaultMaxQueue    = 1024
	// retryAfter is what a refused caller is told to wait: long enough for a
	// queue of ordinary calls to move.
	retryAfter = time.Second
)

// Options configures a [Pool]. It is copied by [New].
type Options struct {
	// New makes the client; it must not do I/O. Required.
	New func() (*mcpclient.Client, error)
	// MaxInFlight is how many leases exist at once; 0 = 1024,
	// mcpclient.Unlimited = no limit.
	MaxInFlight int
	// MaxQueue is how many callers may wait for one; 0 = 1024,
	// mcpclient.Unlimited = no limit.
	MaxQueue int
}

// Stat is a snapshot of a pool.
type Stat struct {
	Connections int    // connections that can carry calls now
	InFlight    int    // leases not released yet
	Queued      int    // callers waiting for a lease
	MaxInFlight int    // mcpclient.Unlimited = no limit
	MaxQueue    int    // mcpclient.Unlimited = no limit
	Waits       uint64 // callers so far that had to wait
	Rejected    uint64 // callers so far that found the queue full
}

// Pool hands out leases on one client. All methods may be called from many
// goroutines at once.
type Pool struct {
	client      *mcpclient.Client
	maxInFlight int
	maxQueue    int

	mu       sync.Mutex // protects the fields below; nothing blocks while it is held
	inFlight int
	queue    list.List // of *waiter, first come first
	waits    uint64
	rejected uint64
	closed   bool
	idle     chan struct{} // closed when the pool is closed and inFlight is 0

	closing   sync.Once
	closeErr  error
	closeDone chan struct{}
}

// waiter is one caller in the queue. ready is closed when it owns a lease or
// the pool was closed; granted tells which and is guarded by Pool.mu.
type waiter struct {
	ready   chan struct{}
	granted bool
}

// New checks the options and makes the client. It does no I/O.
func New(o Options) (*Pool, error) {
	if o.New == nil {
		return nil, errors.New("pool: Options.New is nil; it must make the client")
	}
	p := &Pool{idle: make(chan struct{}), closeDone: make(chan struct{})}
	var errs [2]error
	p.maxInFlight, errs[0] = limit("MaxInFlight", o.MaxInFlight, defaultMaxInFlight)
	p.maxQueue, errs[1] = limit("MaxQueue", o.MaxQueue, defaultMaxQueue)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	client, err := o.New()
	if err != nil {
		return nil, err
	}
	p.client = client
	return p, nil
}

func limit(name string, value, unset int) (int, error) {
	switch {
	case value == 0:
		return unset, nil
	case value < mcpclient.Unlimited:
		return 0, fmt.Errorf("pool: Options.%s is %d; use a positive number, 0 for %d, or %d for no limit", name, value, unset, mcpclient.Unlimited)
	}
	return value, nil
}

// Start begins connecting in the background, as the client's Start does.
func (p *Pool) Start() { p.client.Start() }

// Status returns the client's status.
func (p *Pool) Status() mcpclient.Status { return p.client.Status() }

// Stat returns a snapshot.
func (p *Pool) Stat() Stat {
	connections := 0
	if p.client.Status().State == mcpclient.StateReady {
		connections = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stat{
		Connections: connections, InFlight: p.inFlight, Queued: p.queue.Len(),
		MaxInFlight: p.maxInFlight, MaxQueue: p.maxQueue, Waits: p.waits, Rejected: p.rejected,
	}
}

// Acquire returns a lease, waiting in the queue when all are taken. It does not
// wait for a connection. Errors are [*mcpclient.Error] values of KindOverloaded
// (queue full), KindTimeout or KindCanceled (ctx ended first) or KindClosed;
// nothing was sent in any of these cases.
func (p *Pool) Acquire(ctx context.Context) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, waitError(err)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, closedError()
	}
	if p.queue.Len() == 0 && (p.inFlight < p.maxInFlight || p.maxInFlight < 0) {
		p.inFlight++
		p.mu.Unlock()
		return &Lease{pool: p}, nil
	}
	if p.maxQueue >= 0 && p.queue.Len() >= p.maxQueue {
		p.rejected++
		p.mu.Unlock()
		return nil, p.overloadError()
	}
	w := &waiter{ready: make(chan struct{})}
	place := p.queue.PushBack(w)
	p.waits++
	p.mu.Unlock()

	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	p.mu.Lock()
	granted, closed := w.granted, p.closed
	if !granted {
		p.queue.Remove(place)
	}
	p.mu.Unlock()
	switch {
	case granted && ctx.Err() == nil:
		return &Lease{pool: p}, nil
	case granted: // it came too late; the next in the queue gets it
		p.release()
		return nil, waitError(ctx.Err())
	case closed:
		return nil, closedError()
	}
	return nil, waitError(ctx.Err())
}

// release ends one lease, or hands it to the first in the queue.
func (p *Pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.queue.Front(); first != nil {
		w, _ := p.queue.Remove(first).(*waiter)
		w.granted = true
		close(w.ready)
		return
	}
	p.inFlight--
	if p.closed && p.inFlight == 0 {
		close(p.idle)
	}
}

// Close refuses new leases, fails the queue, waits until the leases are
// released or ctx ends, and closes the client, which ends what is still
// running. It returns the client's error. A second call waits for the first.
func (p *Pool) Close(ctx context.Context) error {
	first := false
	p.closing.Do(func() { first = true })
	if !first {
		select {
		case <-p.closeDone:
			return p.closeErr
		case <-ctx.Done():
			return fmt.Errorf("close the pool: %w", ctx.Err())
		}
	}
	p.mu.Lock()
	p.closed = true
	for p.queue.Len() > 0 {
		w, _ := p.queue.Remove(p.queue.Front()).(*waiter)
		close(w.ready)
	}
	if p.inFlight == 0 {
		close(p.idle)
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
	case <-ctx.Done():
	}
	p.closeErr = p.client.Close(ctx)
	close(p.closeDone)
	return p.closeErr
}

// Lease is the right to run one call. It must be released.
type Lease struct {
	pool     *Pool
	released atomic.Bool
}

// Client returns the client to call. It must not be used after Release.
func (l *Lease) Client() *mcpclient.Client { return l.pool.client }

// Release gives the lease back. Further calls do nothing.
func (l *Lease) Release() {
	if l.released.CompareAndSwap(false, true) {
		l.pool.release()
	}
}

func (p *Pool) overloadError() error {
	return &mcpclient.Error{
		Kind: mcpclient.KindOverloaded, SafeToRetry: true, RetryAfter: retryAfter,
		Message: fmt.Sprintf("the target already runs %d calls and %d more wait; retry later or raise pool.max_in_flight or pool.max_queue", p.maxInFlight, p.maxQueue),
	}
}

func closedError() error {
	return &mcpclient.Error{Kind: mcpclient.KindClosed, SafeToRetry: true, Message: "the target is shutting down"}
}

func waitError(cause error) error {
	e := &mcpclient.Error{
		Kind: mcpclient.KindCanceled, SafeToRetry: true, Err: cause,
		Message: "the call was canceled before it could start",
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		e.Kind = mcpclient.KindTimeout
		e.Message = "the deadline passed before the call could start; allow more time or raise pool.max_in_flight"
	}
	return e
}

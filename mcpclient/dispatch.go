package mcpclient

import (
	"context"
	"sync"
)

// admit takes one place under the in-flight cap for work that the server
// caused; the place is given back by release. Past the cap the work is shed:
// counted, and logged at the first and every hundredth time, so that the log
// cannot become the flood.
func (c *Client) admit(method string) (release func(), ok bool) {
	limit := int64(c.opts.Dispatch.MaxInFlight)
	if running := c.dispatched.Add(1); limit != Unlimited && running > limit {
		c.dispatched.Add(-1)
		if shed := c.shed.Add(1); shed == 1 || shed%100 == 0 {
			c.log.Warn("inbound messages were shed: the client is at its in-flight dispatch cap", "shed_so_far", shed, "method", method)
		}
		return nil, false
	}
	return func() { c.dispatched.Add(-1) }, true
}

// dispatch admits f and runs it on a lane, in order. ok is false when it was
// shed. A place is held from admission until f has returned, queued or not.
func (c *Client) dispatch(l *lane, method string, f func()) (ok bool) {
	release, ok := c.admit(method)
	if !ok {
		return false
	}
	l.push(func() {
		defer release()
		c.guard(method, f)
	})
	return true
}

// lane runs functions one after the other on a goroutine of the client that
// exists only while there is work.
type lane struct {
	c *Client

	mu    sync.Mutex // guards the following
	queue []func()
	busy  bool
	idle  chan struct{} // closed when the lane falls idle; nil while nobody waits
}

func (c *Client) newLane() *lane { return &lane{c: c} }

// push appends one function.
func (l *lane) push(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, f)
	if l.busy {
		return
	}
	l.busy = true
	if !l.c.background(l.run) {
		l.settleLocked()
	}
}

// settleLocked marks the lane idle; what is still queued is dropped, which
// happens only when the client is closed.
func (l *lane) settleLocked() {
	l.queue, l.busy = nil, false
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

func (l *lane) run() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.settleLocked()
			l.mu.Unlock()
			return
		}
		f := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		f()
	}
}

// wait waits until all that was pushed so far has run, or ctx ends.
func (l *lane) wait(ctx context.Context) {
	l.mu.Lock()
	if !l.busy {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

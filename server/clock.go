package server

import (
	"sync"
	"time"
)

// clock ends the waits of one call for its caller that take too long. A wait
// that ends in time leaves the timer alone, so that most calls set it just once.
type clock struct {
	mu      sync.Mutex // guards the rest, and what the owner adds
	owner   patient
	over    bool      // the call has ended
	readBy  time.Time // end of the time for reading; zero = none
	writeBy time.Time // the same for the write under way
	timer   *time.Timer
	due     time.Time // when the timer fires; zero = it is not set
}

// patient is who waits for the caller. Its methods are called once the time has
// passed, with the clock's lock held.
type patient interface {
	readExpired()
	writeExpired()
}

// limitRead sets the end of the time for reading, zero for none. c.mu is held.
func (c *clock) limitRead(t time.Time) {
	c.readBy = t
	c.await(t)
}

// limitWrite is the same for a write. c.mu is held.
func (c *clock) limitWrite(t time.Time) {
	c.writeBy = t
	c.await(t)
}

// wrote says that the write under way has ended.
func (c *clock) wrote() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limitWrite(time.Time{})
}

// hurryWrite gives the write under way, if there is one, until t at most. c.mu is
// held.
func (c *clock) hurryWrite(t time.Time) {
	if t.Before(c.writeBy) {
		c.limitWrite(t)
	}
}

// await makes the timer fire at t at the latest. c.mu is held.
func (c *clock) await(t time.Time) {
	if c.over || t.IsZero() || !c.due.IsZero() && !t.Before(c.due) {
		return
	}
	c.due = t
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(t), c.fire)
	} else {
		c.timer.Reset(time.Until(t))
	}
}

// fire looks whose time has passed.
func (c *clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.due = time.Time{}
	now := time.Now()
	if !c.readBy.IsZero() && !now.Before(c.readBy) {
		c.readBy = time.Time{}
		c.owner.readExpired()
	}
	if !c.writeBy.IsZero() && !now.Before(c.writeBy) {
		c.writeBy = time.Time{}
		c.owner.writeExpired()
	}
	c.await(earlier(c.readBy, c.writeBy))
}

// end ends it with the call. c.mu is held.
func (c *clock) end() {
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
}

// earlier is the earlier one of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

package mcpclient

import (
	"context"
	"sync"
	"time"
)

// clock ends a context when its time is over, as a deadline does; but it can be
// started anew, and it can stand still.
type clock struct {
	limit  time.Duration
	expire func()

	mu    sync.Mutex // guards the following
	timer *time.Timer
	due   time.Time     // when the time is over, while it runs
	left  time.Duration // what is left of it, while it stands still
	still bool
	over  bool // it has rung, or nobody waits for it any more
}

func newClock(limit time.Duration, expire func()) *clock {
	k := &clock{limit: limit, expire: expire}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runLocked(limit)
	return k
}

func (k *clock) runLocked(d time.Duration) {
	k.due = time.Now().Add(d)
	if k.timer == nil {
		k.timer = time.AfterFunc(d, k.ring)
		return
	}
	k.timer.Reset(d)
}

// ring is called by the timer, which may be late: the clock may have been
// stopped or started anew meanwhile.
func (k *clock) ring() {
	k.mu.Lock()
	if k.over || k.still {
		k.mu.Unlock()
		return
	}
	if left := time.Until(k.due); left > 0 {
		k.timer.Reset(left)
		k.mu.Unlock()
		return
	}
	k.over = true
	k.mu.Unlock()
	k.expire()
}

// restart gives the whole time again.
func (k *clock) restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over:
	case k.still:
		k.left = k.limit
	default:
		k.runLocked(k.limit)
	}
}

// pause lets the clock stand still; a time that is over stays over.
func (k *clock) pause() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := time.Until(k.due); !k.over && !k.still && left > 0 {
		k.timer.Stop()
		k.left, k.still = left, true
	}
}

// resume goes on with what was left.
func (k *clock) resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.still && !k.over {
		k.still = false
		k.runLocked(k.left)
	}
}

func (k *clock) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	k.timer.Stop()
}

// overall bounds one operation over all of its requests; d may be nil.
func (c *Client) overall(ctx context.Context, d *dialog) (bounded context.Context, cancel func()) {
	if c.opts.Timeouts.Max <= 0 {
		return ctx, func() {}
	}
	bounded, _, cancel = limit(ctx, c.opts.Timeouts.Max, "timeouts.max", false, d)
	return bounded, cancel
}

// limit bounds a request's time, unless the caller's deadline does so already;
// extend, nil unless extensible, restarts it. It stands still while a question of
// the dialog waits for its answer.
func limit(ctx context.Context, d time.Duration, setting string, extensible bool, of *dialog) (bounded context.Context, extend, cancel func()) {
	fixed := !extensible && of == nil
	if deadline, ok := ctx.Deadline(); ok && fixed && time.Until(deadline) <= d {
		return ctx, nil, func() {}
	}
	cause := &ownTimeout{limit: d, setting: setting}
	if fixed {
		ctx, cancel := context.WithTimeoutCause(ctx, d, cause)
		return ctx, nil, cancel
	}
	ctx, stop := context.WithCancelCause(ctx)
	k := newClock(d, func() { stop(cause) })
	forget := of.keep(k)
	cancel = func() {
		forget()
		k.stop()
		stop(context.Canceled)
	}
	if extensible {
		extend = k.restart
	}
	return ctx, extend, cancel
}

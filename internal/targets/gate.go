package targets

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// gate is mcpclient.Options.ConnectGate.
type gate = func(context.Context) (done func(error), err error)

// gates is several gates in this order, the nil ones left out. limit, which may
// be nil, is asked first and counts only attempts that pass all of them.
func gates(limit *restarts, list ...gate) gate {
	list = slices.DeleteFunc(list, func(g gate) bool { return g == nil })
	if limit == nil && len(list) == 0 {
		return nil
	}
	return func(ctx context.Context) (func(error), error) {
		if err := limit.check(time.Now()); err != nil {
			return nil, err
		}
		passed := make([]func(error), 0, len(list))
		end := func(outcome error) {
			for _, done := range slices.Backward(passed) {
				done(outcome)
			}
		}
		for _, g := range list {
			done, err := g(ctx)
			if err != nil {
				end(err)
				return nil, err
			}
			passed = append(passed, done)
		}
		limit.count(time.Now())
		return end, nil
	}
}

// restarts bounds how often child processes are started again that do the same.
// A nil one permits any number.
type restarts struct {
	max    int
	window time.Duration

	mu   sync.Mutex // protects the fields below
	free int        // starts that are no restarts
	at   []time.Time
}

// newRestarts returns nil for no limit. The first starts, as many as there are
// processes, are free.
func newRestarts(most int, window time.Duration, processes int) *restarts {
	if most <= 0 {
		return nil
	}
	return &restarts{max: most, window: window, free: processes}
}

// check refuses a start that would be one too many.
func (r *restarts) check(now time.Time) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = slices.DeleteFunc(r.at, func(t time.Time) bool { return now.Sub(t) >= r.window })
	if len(r.at) < r.max {
		return nil
	}
	wait := r.at[0].Add(r.window).Sub(now)
	return &mcpclient.Error{
		Kind: mcpclient.KindUnavailable, SafeToRetry: true, RetryAfter: wait,
		Message: fmt.Sprintf("the server's process was started again %d times within %v, as often as restart.max allows; the next start is due in %v, and what the process wrote to stderr says why it ends", r.max, r.window, max(wait.Round(time.Second), time.Second)),
	}
}

func (r *restarts) count(now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free > 0 {
		r.free--
		return
	}
	r.at = append(r.at, now)
}

// firstConnect gates only the first attempt of a target, and only while no call
// waits for it: others would wait behind targets that are down, although those
// concern nobody else.
func (b *builder) firstConnect(wanted <-chan struct{}) gate {
	var passed atomic.Bool
	return func(ctx context.Context) (func(error), error) {
		if passed.Swap(true) {
			return func(error) {}, nil
		}
		select {
		case b.gate <- struct{}{}:
			return func(error) { <-b.gate }, nil
		case <-wanted:
			return func(error) {}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

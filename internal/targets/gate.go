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

// restarts bounds how often the child process of one client is started again.
// A nil one permits any number.
type restarts struct {
	max    int
	window time.Duration

	mu      sync.Mutex // protects the fields below
	started bool       // the first start is free
	at      []time.Time
}

// newRestarts returns nil for no limit.
func newRestarts(most int, window time.Duration) *restarts {
	if most <= 0 {
		return nil
	}
	return &restarts{max: most, window: window}
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
	if r.started {
		r.at = append(r.at, now)
	}
	r.started = true
}

// firstConnect gates only the first attempt of a target: later ones would wait
// behind targets that are down, although those concern nobody else.
func (b *builder) firstConnect() gate {
	var passed atomic.Bool
	return func(ctx context.Context) (func(error), error) {
		if passed.Swap(true) {
			return func(error) {}, nil
		}
		select {
		case b.gate <- struct{}{}:
			return func(error) { <-b.gate }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

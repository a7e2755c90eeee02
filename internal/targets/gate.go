package targets

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// gate is mcpclient.Options.ConnectGate.
type gate = func(context.Context) (done func(error), err error)

// gates is several gates in this order, the nil ones left out. limit, which may
// be nil, is asked last, since what it permits is used up.
func gates(limit *process, list ...gate) gate {
	list = slices.DeleteFunc(list, func(g gate) bool { return g == nil })
	if limit == nil && len(list) == 0 {
		return nil
	}
	return func(ctx context.Context) (func(error), error) {
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
		if err := limit.start(time.Now()); err != nil {
			end(context.Canceled) // nothing was tried, which says nothing of the server
			return nil, err
		}
		return func(outcome error) {
			limit.attempted(outcome)
			end(outcome)
		}, nil
	}
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

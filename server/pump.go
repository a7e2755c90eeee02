package server

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// pump sends on one stream; the handler's goroutine runs it, and nothing else
// sends. HTTP's flow control is what slows it down.
type pump[R any] struct {
	next  func() (*R, bool) // what to send; false when there is nothing now
	woken <-chan struct{}   // has a token when next may have something
	open  func() error      // sends the headers, for which clients wait before they hand out the stream; nil = they are sent
	send  func(*R) error
	alive *R // is sent after a silence
	quiet time.Duration
}

// run sends until over is closed and nothing is left, or until sending fails.
func (p *pump[R]) run(over <-chan struct{}) error {
	if p.open != nil {
		if err := p.open(); err != nil {
			return err
		}
	}
	timer := time.NewTimer(p.quiet)
	defer timer.Stop()
	for last := false; ; {
		for m, ok := p.next(); ok; m, ok = p.next() {
			if err := p.send(m); err != nil {
				return err
			}
			timer.Reset(p.quiet)
		}
		if last {
			return nil
		}
		select {
		case <-p.woken:
		case <-over:
			last = true // what came before the end is sent
		case <-timer.C:
			if err := p.send(p.alive); err != nil {
				return err
			}
			timer.Reset(p.quiet)
		}
	}
}

// work is what a stream tells about, on a goroutine beside the handler's. Its
// fields may be read once over is closed.
type work struct {
	over   chan struct{}
	cancel context.CancelCauseFunc
	result *mcpclient.Result
	failed *failure
}

// beside starts work for a stream. It must be ended.
func (c *caller) beside(ctx context.Context, f func(context.Context) (*mcpclient.Result, *failure)) *work {
	w := &work{over: make(chan struct{})}
	ctx, w.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(w.over)
		defer func() { // the interceptor that does this for handlers is on another goroutine
			if value := recover(); value != nil {
				c.log.LogAttrs(ctx, slog.LevelError, "panic in a call", slog.Any("panic", value), slog.String("stack", string(debug.Stack())))
				w.result, w.failed = nil, faulty()
			}
		}()
		w.result, w.failed = f(ctx)
	}()
	return w
}

// end cancels what is still running and waits for it.
func (w *work) end() {
	w.cancel(nil)
	<-w.over
}

// tell sends the events of a call, then its outcome. When that fails, what is
// known of the call itself is the error.
func (w *work) tell(ctx context.Context, events func(<-chan struct{}) error, about *scope, outcome func() error) error {
	err := events(w.over)
	if err == nil && w.failed == nil {
		err = outcome()
	}
	w.end()
	switch {
	case w.failed != nil && (err == nil || w.failed.reason != reasonCanceled):
		return about.build(w.failed)
	case err != nil && errors.Is(context.Cause(ctx), errForced): // the result is lost
		return about.build(about.canceled(ctx, err, true))
	}
	return err
}

// notify leaves a token in a channel that holds one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

const (
	// firstListen and maxListen bound the pauses between the subscriptions of a
	// task, one of which has to stay open for longLived for them to begin anew.
	firstListen = 250 * time.Millisecond
	maxListen   = 30 * time.Second
	longLived   = 10 * time.Second
	// lookForAck is how often a subscription is looked at that is not acknowledged
	// in time.
	lookForAck = time.Second
)

// errNotTold says that a server does not tell of a task.
var errNotTold = errors.New("the server does not agree to tell of the task")

// attend stays with the target, and with each one that takes over from it, and
// has its server tell of changes. It returns why the last one ended, nil if ctx
// ended first.
func (f *taskFeed) attend(ctx context.Context, about scope) error {
	for target := f.key.target; ; {
		next, err := f.attendOne(ctx, target, about)
		if next == nil {
			return err
		}
		target = next
		notify(f.poll) // it may know another state
	}
}

// attendOne stays with one target. One that has a connection for each call is
// asked alone: a subscription would keep one that others wait for.
func (f *taskFeed) attendOne(ctx context.Context, target *targets.Target, about scope) (next *targets.Target, err error) {
	within, leave := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer leave()
	if target.Isolation() != targets.PerCall {
		listening.Go(func() { f.listen(within, target, about) })
	}
	return target.Attend(ctx, f.key.who)
}

// listen has the server tell of changes of a task that goes on, where it does. A
// subscription belongs to a client, which may be closed once nobody else uses
// it; the next one is another client's.
func (f *taskFeed) listen(ctx context.Context, target *targets.Target, about scope) {
	select {
	case <-f.known:
	case <-ctx.Done():
		return
	}
	pace := newPace(firstListen, maxListen)
	for {
		began := time.Now()
		err := f.subscribe(ctx, target)
		if ctx.Err() != nil {
			return
		}
		var retry time.Duration
		if e, ok := errors.AsType[*mcpclient.Error](err); ok {
			failed := about.classify(ctx, e)
			if retry = failed.retry; !mayPass(failed) {
				err = errors.Join(errNotTold, err)
			}
		}
		if errors.Is(err, errNotTold) {
			f.log.DebugContext(ctx, "the server tells nothing of its tasks", "target", target.Name(), "error", err)
			return
		}
		if time.Since(began) >= longLived {
			pace.Reset()
		}
		if !pause(ctx, max(retry, pace.NextBackOff()), nil) {
			return
		}
	}
}

// subscribe keeps one subscription open until it ends; the error is why.
func (f *taskFeed) subscribe(ctx context.Context, target *targets.Target) error {
	lease, err := f.acquire(ctx, target)
	if err != nil {
		return err
	}
	filter := mcpclient.Filter{Tasks: []string{f.key.id}}
	sub, err := lease.Client().Listen(ctx, filter, func(context.Context, mcpclient.Notification) { notify(f.poll) })
	lease.Release() // a watch is no call that takes a place from others
	if err != nil {
		return err
	}
	defer sub.Close()
	late := time.NewTicker(lookForAck)
	defer late.Stop()
	for open := false; !slices.Contains(sub.Acknowledged().Tasks, f.key.id); open = sub.Open() {
		if open {
			return errNotTold
		}
		select {
		case <-late.C:
		case <-sub.Done():
			return sub.Err()
		case <-ctx.Done():
			return nil
		}
	}
	notify(f.poll) // something may have changed before
	select {
	case <-ctx.Done():
	case <-sub.Done():
		notify(f.poll) // the server may end it with the task
	}
	return sub.Err()
}

package mcpclient

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// methodTaskResult waits for the end of a task of 2025-11-25 and returns the
// result of its request.
const methodTaskResult = "tasks/result"

// legacyWait is one wait for the end of a task of 2025-11-25
// (basic/utilities/tasks). The caller does not know of the task: it is polled by
// tasks/get, and tasks/result is held open from the time it asks for input,
// because the questions come while that request is open.
type legacyWait struct {
	taskWait
	open    chan payload    // tasks/result under way; nil = none
	arrived context.Context //nolint:containedctx // ends when open has the result, so that a poll does not delay it
	invited bool            // the task was asked for its questions since it last worked
	asked   int             // its questions up to the last poll
}

// payload is the outcome of tasks/result.
type payload struct {
	result *Result
	err    error
}

// awaitLegacyTask waits for the end of a task that a call of ours became, and
// cancels it if the wait ends early.
func (c *Client) awaitLegacyTask(ctx context.Context, r *request, created *Result) (*Result, error) {
	held := created.created
	defer held.end()
	o := &CallOptions{Meta: r.options.Meta, Log: r.options.Log}
	w := &legacyWait{taskWait: taskWait{c: c, r: r, id: held.first.id, options: o}}
	w.note(held.first)
	defer c.questions.watch(w.id)()
	inner, stop := context.WithCancel(ctx)
	defer stop() // of a tasks/result that is still open
	result, err := w.follow(inner)
	if err != nil && !w.over && held.cancels {
		w.cancel(ctx)
	}
	return result, err
}

func (w *legacyWait) follow(ctx context.Context) (*Result, error) {
	for {
		var result *Result
		wait, err := time.Duration(0), error(nil)
		if _, answering := w.c.questions.look(w.id); answering == 0 || w.open == nil {
			result, wait, err = w.poll(ctx)
		} // else it waits for us, and tasks/result tells its end
		if result != nil || err != nil {
			return result, err
		}
		if wait, err = w.bound(max(wait, w.pollInterval()), "ttl"); err != nil {
			return nil, err
		}
		if result, err = w.rest(ctx, wait); result != nil || err != nil {
			return result, err
		}
	}
}

// poll asks for the state of the task once; without a result or error the wait
// goes on, for at least the returned time.
func (w *legacyWait) poll(ctx context.Context) (*Result, time.Duration, error) {
	polling, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.open != nil {
		defer context.AfterFunc(w.arrived, cancel)()
	}
	reply, err := w.ask(polling, methodGetTask, taskParams(w.id, nil))
	switch {
	case err == nil:
		w.failures = 0
		result, err := w.step(ctx, reply)
		return result, 0, err
	case ctx.Err() != nil:
		return nil, 0, w.c.interrupted(ctx, w.r, taskWaited)
	case polling.Err() != nil:
		return nil, 0, nil // the result has arrived
	}
	retry, ok := w.tolerate(err)
	if !ok {
		return nil, 0, begun(w.r, err)
	}
	return nil, retry, nil
}

// step looks at one state of the task; both results are nil when the wait goes
// on.
func (w *legacyWait) step(ctx context.Context, reply *Result) (*Result, error) {
	t, err := readLegacyTask(reply.Raw)
	if err == nil && t.id != "" && t.id != w.id {
		err = errors.New("it is about another task")
	}
	if err != nil {
		return nil, w.fail(KindProtocol, "the server's answer about the task is malformed", err)
	}
	w.note(t)
	switch t.status {
	case taskWorking:
		w.stuck, w.invited = 0, false
		return nil, nil
	case taskInputRequired:
		return nil, w.invite(ctx)
	case taskCompleted, taskFailed:
		w.over = true
		return w.fetch(ctx)
	case taskCancelled:
		return nil, w.cancelled(t)
	}
	return nil, w.unknown(t)
}

// invite has the server ask its questions, which are answered as any request of
// a legacy server is.
func (w *legacyWait) invite(ctx context.Context) error {
	arrived, answering := w.c.questions.look(w.id)
	if !w.invited || answering > 0 || arrived > w.asked {
		w.stuck = 0
	} else if w.stuck++; w.stuck >= w.c.opts.Tasks.MaxStuckPolls {
		return w.gaveUp()
	}
	w.invited, w.asked = true, arrived
	if w.open != nil {
		return nil
	}
	open := make(chan payload, 1)
	over, arrive := context.WithCancel(ctx)
	started := w.c.background(func() {
		var p payload
		p.result, p.err = w.c.request(ctx, w.payloadRequest())
		open <- p
		if p.err == nil {
			arrive()
		}
	})
	if !started {
		arrive()
		return about(errClosed(), w.r.method, w.r.name)
	}
	w.open, w.arrived = open, over
	return nil
}

func (w *legacyWait) payloadRequest() *request {
	return &request{method: methodTaskResult, name: w.id, params: taskParams(w.id, nil), options: w.options, dialog: w.r.dialog, trail: w.r.trail}
}

// rest waits for the next poll, or for the result if tasks/result is open.
func (w *legacyWait) rest(ctx context.Context, d time.Duration) (*Result, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil, nil
		case p := <-w.open:
			w.open = nil
			if p.err == nil {
				w.over = true
				return w.read(p.result)
			}
			if ctx.Err() == nil { // the next poll tells whether the task failed or just this request
				w.c.log.DebugContext(ctx, "the result of a task did not come", "error", p.err)
			}
		case <-ctx.Done():
			return nil, w.c.interrupted(ctx, w.r, taskWaited)
		case <-w.c.lifetime.Done():
			return nil, w.c.interrupted(ctx, w.r, taskWaited)
		}
	}
}

// fetch gets the result of a task that has ended; a JSON-RPC error is that of
// the tool call itself (2025-11-25 tasks, Result Retrieval).
func (w *legacyWait) fetch(ctx context.Context) (*Result, error) {
	if w.open != nil { // its answer is on the way
		bounded, cancel := w.c.taskTime(ctx)
		defer cancel()
		select {
		case p := <-w.open:
			if p.err == nil {
				return w.read(p.result)
			}
		case <-bounded.Done():
		}
		w.open = nil
	}
	for {
		reply, err := w.ask(ctx, methodTaskResult, taskParams(w.id, nil))
		if err == nil {
			return w.read(reply)
		}
		if ctx.Err() != nil {
			return nil, w.c.interrupted(ctx, w.r, "the result of the task had not arrived before")
		}
		if e, ok := errors.AsType[*Error](err); ok && e.Kind == KindRPC {
			return nil, &Error{Kind: KindRPC, Method: w.r.method, Name: w.r.name, RPC: e.RPC, Sent: true, Task: w.id}
		}
		retry, ok := w.tolerate(err)
		if !ok {
			return nil, begun(w.r, err)
		}
		if err := w.c.pause(ctx, w.r, max(retry, w.pollInterval()), "the result of the task had not arrived before"); err != nil {
			return nil, err
		}
	}
}

// read makes the answer to tasks/result the result of the tool call.
func (w *legacyWait) read(reply *Result) (*Result, error) {
	result := *reply
	result.Type, result.Task = ResultComplete, w.id
	result.IsError = lookup(reply.Raw, []string{"isError"}).Kind() == jsontext.Kind('t')
	return &result, nil
}

package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxPollFailures is how many polls in a row may fail of the connection: a task
// survives a connection, so its wait does too.
const maxPollFailures = 3

// taskWait is one wait for the end of a task (tasks extension, Task Polling).
type taskWait struct {
	c       *Client
	r       *request     // the operation that waits; errors are about it
	id      string       // the task's
	options *CallOptions // of the requests about the task
	owned   bool         // nobody else knows the id: giving up cancels the task

	since    time.Time     // when the task was first heard of
	ttl      time.Duration // from then on; 0 = unlimited
	interval time.Duration // between polls
	seen     map[string]bool
	stuck    int  // polls in a row that asked nothing new
	failures int  // polls in a row that failed
	over     bool // the task has ended: there is nothing to cancel
}

// run waits. The first poll is immediate.
func (w *taskWait) run(ctx context.Context) (*Result, error) {
	w.seen = map[string]bool{}
	result, err := w.follow(ctx)
	if err != nil && w.owned && !w.over {
		w.cancel(ctx)
	}
	return result, err
}

const taskWaited = "the task had not ended before"

func (w *taskWait) follow(ctx context.Context) (*Result, error) {
	for {
		reply, err := w.ask(ctx, methodGetTask, taskParams(w.id, nil))
		wait := time.Duration(0)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, w.c.interrupted(ctx, w.r, taskWaited)
		case err != nil:
			retry, ok := w.tolerate(err)
			if !ok {
				return nil, begun(w.r, err)
			}
			wait = max(retry, w.pollInterval())
		default:
			w.failures = 0
			result, err := w.step(ctx, reply)
			if result != nil || err != nil {
				return result, err
			}
			wait = w.pollInterval()
		}
		if wait, err = w.bound(wait, "ttlMs"); err != nil {
			return nil, err
		}
		if err := w.c.pause(ctx, w.r, wait, taskWaited); err != nil {
			return nil, err
		}
	}
}

// bound shortens a wait to what is left of the task's time to live, which the
// protocol calls name: one last look when it has passed.
func (w *taskWait) bound(wait time.Duration, name string) (time.Duration, error) {
	if w.ttl <= 0 {
		return wait, nil
	}
	left := w.ttl - time.Since(w.since)
	if left <= 0 {
		return 0, w.fail(KindTimeout, "the task has not ended within the time for which the server keeps it ("+name+")", nil)
	}
	return min(wait, left), nil
}

// ask sends one request about the task.
func (w *taskWait) ask(ctx context.Context, method string, params []byte) (*Result, error) {
	ctx, cancel := w.c.taskTime(ctx)
	defer cancel()
	r := &request{method: method, name: w.id, params: params, options: w.options}
	if w.r != nil {
		r.dialog, r.trail = w.r.dialog, w.r.trail
	}
	return w.c.request(ctx, r)
}

// note takes over what a task says about polling it.
func (w *taskWait) note(t *task) {
	if w.since.IsZero() {
		w.since = time.Now()
	}
	if t.pollMs != nil {
		o := &w.c.opts.Tasks
		w.interval = max(min(milliseconds(t.pollMs), o.MaxPollInterval), o.MinPollInterval)
	}
	w.ttl = 0
	if t.ttlMs != nil {
		w.ttl = milliseconds(t.ttlMs)
	}
}

func (w *taskWait) pollInterval() time.Duration {
	if w.interval == 0 {
		return w.c.opts.Tasks.PollInterval
	}
	return w.interval
}

// tolerate says whether a failed poll may be followed by another one, and how
// long to wait at least.
func (w *taskWait) tolerate(err error) (wait time.Duration, ok bool) {
	e, is := errors.AsType[*Error](err)
	if !is {
		return 0, false
	}
	switch e.Kind {
	case KindUnavailable, KindLost, KindTimeout, KindRateLimited:
	case KindHTTP:
		if e.Status < 500 {
			return 0, false
		}
	case KindRPC:
		if e.RPC.Code != CodeInternal { // which may pass
			w.over = e.RPC.Code == CodeInvalidParams // the server does not know the task
			return 0, false
		}
	default:
		return 0, false
	}
	w.failures++
	return e.RetryAfter, w.failures < maxPollFailures
}

// step looks at one state of the task; both results are nil when the wait goes
// on.
func (w *taskWait) step(ctx context.Context, reply *Result) (*Result, error) {
	t, err := readTask(reply.Raw)
	if err == nil && t.id != "" && t.id != w.id {
		err = errors.New("it is about another task")
	}
	if err != nil {
		return nil, w.fail(KindProtocol, "the server's answer about the task is malformed", err)
	}
	w.note(t)
	switch t.status {
	case taskWorking:
		w.stuck = 0
		return nil, nil
	case taskInputRequired:
		return w.answer(ctx, t, reply)
	case taskCompleted:
		w.over = true
		result, err := t.readInner()
		if err != nil {
			return nil, w.fail(KindProtocol, "the result of the task is malformed", err)
		}
		result.Era, result.ProtocolVersion, result.Task = reply.Era, reply.ProtocolVersion, w.id
		return result, nil
	case taskFailed:
		w.over = true
		rpc, err := taskError(t.failure)
		if err != nil {
			return nil, w.fail(KindProtocol, "the task failed and the server does not say why", err)
		}
		return nil, &Error{Kind: KindRPC, Method: w.r.method, Name: w.r.name, RPC: rpc, Sent: true, Task: w.id}
	case taskCancelled:
		return nil, w.cancelled(t)
	}
	return nil, w.unknown(t)
}

// cancelled is the failure of a wait for a task that somebody else cancelled.
func (w *taskWait) cancelled(t *task) error {
	w.over = true
	text := "the task was cancelled at the server"
	if t.message != "" {
		text += fmt.Sprintf(": %.200q", t.message)
	}
	return w.fail(KindTask, text, ErrTaskCancelled)
}

func (w *taskWait) unknown(t *task) error {
	return w.fail(KindProtocol, fmt.Sprintf("the task has the unknown status %.40q", t.status), nil)
}

// gaveUp is the failure of a wait for a task that waits itself.
func (w *taskWait) gaveUp() error {
	return w.fail(KindProtocol, fmt.Sprintf(
		"the task waited for input for %d polls in a row without asking anything new (setting tasks.max_stuck_polls)", w.stuck), ErrTaskStuck)
}

// answer answers those questions of a task that were not answered before. Keys
// are unique over the life of a task, so a key that comes again is the same
// question.
func (w *taskWait) answer(ctx context.Context, t *task, reply *Result) (*Result, error) {
	if t.questionsErr != nil {
		return nil, w.fail(KindProtocol, "the task asks for input in a malformed way", t.questionsErr)
	}
	var fresh []inputRequest
	for _, q := range t.questions {
		if !w.seen[q.key] {
			fresh = append(fresh, q)
		}
	}
	if len(fresh) == 0 {
		if w.stuck++; w.stuck >= w.c.opts.Tasks.MaxStuckPolls {
			return nil, w.gaveUp()
		}
		return nil, nil
	}
	w.stuck = 0
	if q := w.c.unanswered(fresh, w.r.options); q != nil {
		if !w.r.options.ReturnInput {
			return nil, cannotAnswer(w.r, q)
		}
		handed := *reply
		handed.Type = ResultTask
		return &handed, nil
	}
	answers, err := w.c.answerAll(ctx, w.r, fresh)
	if err != nil {
		return nil, err
	}
	for _, q := range fresh {
		w.seen[q.key] = true
	}
	if _, err := w.ask(ctx, methodUpdateTask, taskParams(w.id, answers)); err != nil {
		if ctx.Err() != nil {
			return nil, w.c.interrupted(ctx, w.r, taskWaited)
		}
		return nil, begun(w.r, err)
	}
	return nil, nil
}

func (w *taskWait) fail(kind Kind, text string, cause error) error {
	return &Error{Kind: kind, Method: w.r.method, Name: w.r.name, Sent: true, Message: text, Err: cause, Task: w.id}
}

// cancel asks the server to stop a task that nobody waits for any more, behind
// the caller's back. A notification would not do (tasks extension, Task
// Cancellation).
func (w *taskWait) cancel(ctx context.Context) {
	r := &request{method: methodCancelTask, name: w.id, params: taskParams(w.id, nil), options: w.options}
	if w.r != nil {
		r.trail = w.r.trail
	}
	w.c.farewell(ctx, func(ctx context.Context) {
		ctx, stop := w.c.taskTime(ctx)
		defer stop()
		if _, err := w.c.request(ctx, r); err != nil {
			w.c.log.DebugContext(ctx, "the cancellation of a task was not delivered", "error", err)
		}
	})
}

package mcpclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Methods of the tasks extension.
const (
	methodGetTask    = "tasks/get"
	methodUpdateTask = "tasks/update"
	methodCancelTask = "tasks/cancel"
)

// States of a task (tasks extension, Task Status).
const (
	taskWorking       = "working"
	taskInputRequired = "input_required"
	taskCompleted     = "completed"
	taskFailed        = "failed"
	taskCancelled     = "cancelled"
)

// ErrTaskCancelled is wrapped by the error of a wait for a task that somebody
// cancelled, ErrTaskStuck by that of one whose task waits for input without
// asking for any.
var (
	ErrTaskCancelled = errors.New("the task was cancelled")
	ErrTaskStuck     = errors.New("the task is stuck")
)

// GetTask asks once for the state of a task: Result.Raw is the DetailedTask.
// An id that the server does not know is a KindRPC error with code -32602.
// Tasks exist on modern servers only.
func (c *Client) GetTask(ctx context.Context, id string, options *CallOptions) (*Result, error) {
	result, err := c.doTask(ctx, methodGetTask, id, nil, options)
	if err != nil {
		return nil, err
	}
	result.Type = ResultComplete // some servers repeat "task" here
	return result, nil
}

// UpdateTask answers questions of a task. inputResponses is a JSON object of
// answers by the keys of the task's inputRequests; a part of them will do.
func (c *Client) UpdateTask(ctx context.Context, id string, inputResponses jsontext.Value, options *CallOptions) error {
	if inputResponses.Kind() != '{' || !inputResponses.IsValid() {
		return &Error{Kind: KindInvalid, Method: methodUpdateTask, Name: id, SafeToRetry: true, Message: "the input responses are not a JSON object"}
	}
	_, err := c.doTask(ctx, methodUpdateTask, id, inputResponses, options)
	return err
}

// CancelTask asks the server to cancel a task. Whether and when it does is up
// to the server; the task may still complete.
func (c *Client) CancelTask(ctx context.Context, id string, options *CallOptions) error {
	_, err := c.doTask(ctx, methodCancelTask, id, nil, options)
	return err
}

// WaitTask polls a task until its end and returns the result of the tool call
// that it stands for, answering its questions on the way as [Client.CallTool]
// does. A wait that ends early, by ctx or an error, leaves the task alone.
func (c *Client) WaitTask(ctx context.Context, id string, options *CallOptions) (*Result, error) {
	if err := c.taskReady(ctx, methodGetTask, id); err != nil {
		return nil, err
	}
	if options == nil {
		options = &CallOptions{}
	}
	r := &request{method: methodGetTask, name: id, options: options, trail: c.newTrail()}
	ctx, end := c.begin(ctx, r)
	defer end()
	return watched(ctx, c, Operation{Method: r.method, Name: id}, itself, func() (*Result, error) {
		w := &taskWait{c: c, r: r, id: id, options: c.taskOptions(options)}
		return w.run(ctx)
	})
}

// awaitTask waits for the end of a task that a call of ours became. The caller
// does not know of it, so whatever ends the wait early also cancels the task.
func (c *Client) awaitTask(ctx context.Context, r *request, created *Result) (*Result, error) {
	t, err := readTask(created.Raw)
	if err == nil && t.id == "" {
		err = errors.New("it has no taskId")
	}
	if err != nil {
		return nil, &Error{Kind: KindProtocol, Method: r.method, Name: r.name, Sent: true, Message: "the server answered with a malformed task", Err: err}
	}
	o := &CallOptions{Meta: r.options.Meta, Capabilities: r.options.Capabilities}
	w := &taskWait{c: c, r: r, id: t.id, options: c.taskOptions(o), owned: true}
	w.note(t)
	return w.run(ctx)
}

// taskReady refuses what legacy servers cannot do; their tasks were another
// protocol.
func (c *Client) taskReady(ctx context.Context, method, id string) error {
	if id == "" {
		return &Error{Kind: KindInvalid, Method: method, SafeToRetry: true, Message: "the task id is empty"}
	}
	s, err := c.acquire(ctx)
	if err != nil {
		return about(err, method, id)
	}
	defer c.release(s)
	if s.era != EraModern {
		return &Error{Kind: KindUnsupported, Method: method, Name: id, SafeToRetry: true, Message: "the server speaks a protocol version without the tasks extension"}
	}
	return nil
}

// doTask carries out one task operation of a caller.
func (c *Client) doTask(ctx context.Context, method, id string, responses jsontext.Value, options *CallOptions) (*Result, error) {
	if err := c.taskReady(ctx, method, id); err != nil {
		return nil, err
	}
	ctx, cancel := c.taskTime(ctx)
	defer cancel()
	return c.do(ctx, &request{method: method, name: id, params: taskParams(id, responses), options: c.taskOptions(options)})
}

// taskParams writes the params of a task method.
func taskParams(id string, responses jsontext.Value) []byte {
	params := appendString([]byte(`"taskId":`), id)
	if responses != nil {
		params = append(append(params, `,"inputResponses":`...), responses...)
	}
	return params
}

// taskOptions declares the extension, without which servers must refuse.
func (c *Client) taskOptions(options *CallOptions) *CallOptions {
	var o CallOptions
	if options != nil {
		o = *options
	}
	if len(o.Capabilities) == 0 {
		o.Capabilities = c.capabilities.modern
	}
	o.Capabilities = withExtension(o.Capabilities, TasksExtension)
	o.ReturnTask = true // the answer about a task is no task to wait for
	return &o
}

// taskTime gives one request about a task the time of a tool call.
func (c *Client) taskTime(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := c.opts.Timeouts.Tool
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, &ownTimeout{limit: limit, setting: "timeouts.tool"})
}

// task is a Task or DetailedTask as far as waiting needs it.
type task struct {
	id, status, message string
	pollMs, ttlMs       jsontext.Value // numbers; nil = none was named
	questions           []inputRequest
	result, failure     jsontext.Value
	questionsErr        error
}

func readTask(raw jsontext.Value) (*task, error) {
	t := &task{}
	err := eachMember(raw, func(key string, value jsontext.Value) error {
		switch key {
		case "taskId":
			t.id, _ = unquote(value)
		case "status":
			t.status, _ = unquote(value)
		case "statusMessage":
			t.message, _ = unquote(value)
		case "pollIntervalMs":
			t.pollMs = numeric(value)
		case "ttlMs":
			t.ttlMs = numeric(value)
		case "inputRequests":
			if value.Kind() != 'n' {
				t.questions, t.questionsErr = readInputRequests(value)
			}
		case "result":
			t.result = value
		case "error":
			t.failure = value
		}
		return nil
	})
	return t, err
}

// numeric drops what is no number.
func numeric(value jsontext.Value) jsontext.Value {
	if value.Kind() != '0' {
		return nil
	}
	return value
}

// taskError turns the error object of a failed task into one of ours.
func taskError(object jsontext.Value) (*jsonrpc.Error, error) {
	if object.Kind() != '{' {
		return nil, errors.New("it has no error object")
	}
	m, err := jsonrpc.Decode(append(append([]byte(`{"jsonrpc":"2.0","id":1,"error":`), object...), '}'))
	if err != nil {
		return nil, fmt.Errorf("its error: %w", err)
	}
	return m.Error, nil
}

// readInner reads the result that a completed task holds; the tool call is the
// only request that becomes a task.
func (t *task) readInner() (*Result, error) {
	result := &Result{Raw: t.result, Type: ResultComplete}
	err := eachMember(t.result, func(key string, value jsontext.Value) error {
		switch key {
		case "isError":
			result.IsError = value.Kind() == 't'
		case "resultType":
			if kind, ok := unquote(value); value.Kind() != 'n' && (!ok || kind != ResultComplete) {
				return errors.New("its resultType is not complete")
			}
		}
		return nil
	})
	return result, err
}

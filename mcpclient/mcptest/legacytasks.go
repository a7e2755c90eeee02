package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

const relatedTask = "io.modelcontextprotocol/related-task"

// LegacyTaskOptions script the tasks of 2025-11-25 (basic/utilities/tasks). A
// tool whose TaskSupport allows it then runs as a task when the client asks for
// that: its Call goes on after the answer, and what it asks by [Request.Ask] is
// asked while tasks/result is open.
type LegacyTaskOptions struct {
	On       bool   // declare tasks of tools/call, and serve tasks/*
	NoCancel bool   // do not offer tasks/cancel
	PollMs   string // pollInterval, any JSON; "" = none
	TTLMs    string // ttl, any JSON; "" = what the client asked for, else null
}

// legacyTask is one tool call that goes on as a task.
type legacyTask struct {
	s         *Server
	id        string
	created   string
	ttl       string
	cancel    context.CancelFunc
	questions chan *taskQuestion
	done      chan struct{} // closed once the status is terminal

	status  string // guarded by Server.mu, as what follows
	message string
	result  any
	err     error
}

// taskQuestion is one request to the client on its way.
type taskQuestion struct {
	method string
	params json.RawMessage
	answer chan taskAnswer
}

type taskAnswer struct {
	raw json.RawMessage
	err error
}

// callLegacyTool applies the rules of 2025-11-25 tasks, Tool-Level Negotiation.
func callLegacyTool(ctx context.Context, r *Request, t Tool) (any, error) {
	asked := r.Param("task")
	switch {
	case asked == nil && t.TaskSupport == "required" && r.server.LegacyTasks.On:
		return nil, &Error{Code: -32601, Message: "Tool " + t.Name + " requires task augmentation"}
	case asked == nil:
		return t.call(ctx, r)
	case !r.server.LegacyTasks.On:
		r.server.violate("tools/call of %s asks for a task, which the server does not offer", t.Name)
		return t.call(ctx, r)
	case t.TaskSupport != "required" && t.TaskSupport != "optional":
		return nil, &Error{Code: -32601, Message: "Tool " + t.Name + " does not support task augmentation"}
	}
	return startLegacyTask(r, t, member(asked, "ttl"))
}

func startLegacyTask(r *Request, tool Tool, ttl json.RawMessage) (any, error) {
	s := r.server
	ctx, cancel := context.WithCancel(s.ctx) // a task outlives its connection
	t := &legacyTask{
		s: s, created: time.Now().UTC().Format(time.RFC3339), ttl: s.LegacyTasks.TTLMs, cancel: cancel,
		questions: make(chan *taskQuestion), done: make(chan struct{}), status: "working",
	}
	if t.ttl == "" {
		t.ttl = string(ttl)
	}
	if t.ttl == "" {
		t.ttl = "null"
	}
	s.mu.Lock()
	s.nextTask++
	t.id = "täsk/" + itoa(s.nextTask)
	s.legacyTasks[t.id] = t
	body := t.bodyLocked()
	s.mu.Unlock()
	work := &Request{
		Method: r.Method, Params: r.Params, Raw: r.Raw, Header: r.Header, N: r.N, Era: r.Era, Version: r.Version,
		server: s, conn: r.conn, out: r.conn.stream(), builtin: r.builtin, task: t, cancel: func(error) { cancel() },
	}
	if !s.goWork(func() { t.finish(tool.call(ctx, work)) }) {
		cancel()
		return nil, ErrSilent
	}
	return Raw(`{"task":{` + body + `}}`), nil
}

func (t *legacyTask) bodyLocked() string {
	raw := `"taskId":` + quote(t.id) + `,"status":` + quote(t.status) + optional("statusMessage", t.message) +
		`,"createdAt":` + quote(t.created) + `,"lastUpdatedAt":` + quote(t.created) + `,"ttl":` + t.ttl
	if poll := t.s.LegacyTasks.PollMs; poll != "" {
		raw += `,"pollInterval":` + poll
	}
	return raw
}

// finish notes how the tool ended, unless the task was cancelled before.
func (t *legacyTask) finish(result any, err error) {
	defer t.cancel()
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.overLocked() {
		return
	}
	t.result, t.err, t.status = result, err, "completed"
	switch {
	case err != nil:
		t.status, t.message = "failed", err.Error()
	case string(member(marshal(result), "isError")) == "true":
		t.status = "failed"
	}
	close(t.done)
}

func (t *legacyTask) overLocked() bool {
	return t.status == "completed" || t.status == "failed" || t.status == "cancelled"
}

func (t *legacyTask) setStatus(status string) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.overLocked() {
		t.status = status
	}
}

// ask asks the client while tasks/result is open, again if that request is lost
// under the question.
func (t *legacyTask) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	t.setStatus("input_required")
	defer t.setStatus("working")
	raw := marshal(params)
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	q := &taskQuestion{method: method, params: with(raw, "_meta", `{`+quote(relatedTask)+`:{"taskId":`+quote(t.id)+`}}`), answer: make(chan taskAnswer, 1)}
	for {
		select {
		case t.questions <- q:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case a := <-q.answer:
			if _, answered := errors.AsType[*Error](a.err); a.err == nil || answered {
				return a.raw, a.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// serveLegacyTask is the correct answer to tasks/get, tasks/result and
// tasks/cancel.
func serveLegacyTask(ctx context.Context, r *Request) (any, error) {
	s := r.server
	if r.Meta(relatedTask) != nil {
		s.violate("%s names its task in _meta, too", r.Method)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.legacyTasks[r.Text("taskId")]
	if t == nil {
		return nil, &Error{Code: -32602, Message: "Failed to retrieve task: Task not found"}
	}
	switch r.Method {
	case "tasks/get":
		return Raw("{" + t.bodyLocked() + "}"), nil
	case "tasks/result":
		s.mu.Unlock()
		defer s.mu.Lock()
		return t.wait(ctx, r)
	case "tasks/cancel":
		if s.LegacyTasks.NoCancel {
			s.violate("tasks/cancel was sent to a server that does not declare it")
			break
		}
		if t.overLocked() {
			return nil, &Error{Code: -32602, Message: "Cannot cancel task: already in terminal status '" + t.status + "'"}
		}
		t.status = "cancelled"
		close(t.done)
		t.cancel()
		return Raw("{" + t.bodyLocked() + "}"), nil
	}
	return nil, &Error{Code: -32601, Message: "Method not found"}
}

// wait answers tasks/result at the end of the task, and asks the client what the
// task asks until then.
func (t *legacyTask) wait(ctx context.Context, r *Request) (any, error) {
	for {
		select {
		case q := <-t.questions:
			t.s.goWork(func() {
				raw, err := r.conn.ask(ctx, r.out, q.method, q.params)
				if err == nil && member(member(raw, "_meta"), relatedTask) == nil {
					t.s.violate("the answer to %s of task %s does not name the task", q.method, t.id)
				}
				q.answer <- taskAnswer{raw, err}
			})
		case <-ctx.Done():
			return nil, ErrSilent
		case <-t.done:
			t.s.mu.Lock()
			defer t.s.mu.Unlock()
			if t.status == "cancelled" {
				return nil, &Error{Code: -32603, Message: "The task was cancelled"}
			}
			if t.err != nil {
				return nil, t.err
			}
			return with(marshal(t.result), "_meta", `{`+quote(relatedTask)+`:{"taskId":`+quote(t.id)+`}}`), nil
		}
	}
}

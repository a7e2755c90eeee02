package mcpclient

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// toolTasks says whether tools may have to be called as tasks of 2025-11-25
// (basic/utilities/tasks, Tool-Level Negotiation) on a connection.
func (c *Client) toolTasks(s *session) bool {
	return s.server.toolTasks && !c.opts.Tasks.Disabled
}

// readLegacyTasks reads the tasks capability of 2025-11-25.
func (s *Server) readLegacyTasks(capability jsontext.Value) {
	if s.ProtocolVersion != Version20251125 {
		return // no other version has it
	}
	s.toolTasks = declares(lookup(capability, []string{"requests", "tools"}), "call")
	s.cancelsTasks = declares(capability, "cancel")
}

// taskRequired reads execution.taskSupport of a tool. What is optional is not
// used: a plain call takes fewer messages.
func taskRequired(tool jsontext.Value) bool {
	support, _ := unquote(lookup(tool, []string{"execution", "taskSupport"}))
	return support == "required"
}

// needsTask reports whether a tool can only be called as a task.
func (l *List) needsTask(tool string) bool {
	_, ok := l.needTask[tool]
	return ok
}

// needsTask looks the tool up. A list that cannot be had does not stop the call:
// the server refuses what it will not run.
func (c *Client) needsTask(ctx context.Context, tool string) bool {
	list := c.toolsSeen(ctx, tool)
	return list != nil && list.needsTask(tool)
}

// otherwise says whether a refused tool call should be made once more the other
// way, as a task or plainly, because the list of tools was not up to date. With
// these codes a server refuses to run a tool that way (2025-11-25 tasks,
// Tool-Level Negotiation and Protocol Errors), so nothing ran.
func (c *Client) otherwise(ctx context.Context, call *Call, code int64) bool {
	if code != CodeMethodNotFound && (code != CodeInvalidRequest || call.asTask) {
		return false
	}
	list := c.lists.tools.newest()
	if list == nil || time.Since(list.Fetched) >= absenceAge {
		if c.lists.tools.failedWithin(listAgain) {
			return false
		}
		wait, cancel := context.WithTimeout(ctx, listWait(ctx))
		defer cancel()
		var err error
		if list, err = c.lists.tools.refresh(wait, c); err != nil {
			c.lists.tools.markFailed()
			return false
		}
	}
	return list.Has(call.Name) && list.needsTask(call.Name) != call.asTask
}

// legacyTask is a task of 2025-11-25 that a tool call has become.
type legacyTask struct {
	first   *task  // as it was created
	end     func() // ends the progress of the call, which lasts as long as the task
	cancels bool   // the server offers tasks/cancel
}

// createTask calls a tool as a task: the result is that of the call if the
// server ran it plainly all the same, else it holds the task. The id of the
// task is in the answer alone, and without it the task cannot be cancelled;
// nothing else may cancel it (2025-11-25 basic/utilities/cancellation). So the
// request outlives a caller that leaves, by a moment.
func (c *Client) createTask(ctx context.Context, s *session, call *Call) (*Result, error) {
	if ctx.Err() != nil {
		return nil, about(contextError(ctx, "the request had not been sent before"), call.Method, call.Name)
	}
	id, err := c.nextID()
	if err != nil {
		return nil, &Error{Kind: KindInvalid, Method: call.Method, Name: call.Name, Message: "Options.NewID returned an unusable request id", Err: err}
	}
	call.ID, call.asTask = id, true
	c.address(call, s)
	call.params = appendTask(ctx, slices.Clip(call.params))
	if call.assigned != nil {
		call.assigned(id)
	}
	end, err := c.openStream(ctx, call, nil)
	if err != nil {
		return nil, about(err, call.Method, call.Name)
	}
	sent, options := *call, *call.options // the caller may use its options again
	sent.options = &options
	sent.answered = nil // the progress goes on after this answer

	type outcome struct {
		result *Result
		err    error
	}
	answered := make(chan outcome) // without room: either the caller takes the task or it is cancelled
	detached, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.retain(s)
	started := c.background(func() {
		defer c.release(s)
		defer stop()
		s.calls.add(id, sent.dialog)
		defer s.calls.remove(id)
		defer sent.dialog.underWay(&sent)()
		within := detached
		if d, setting := c.timeout(&sent); d > 0 {
			var cancel func()
			within, _, cancel = limit(detached, d, setting, false, sent.dialog)
			defer cancel()
		}
		var o outcome
		o.result, o.err = c.invoke(within, &sent)
		select {
		case answered <- o:
		case <-ctx.Done():
			c.dropTask(detached, s, o.result)
		}
	})
	if !started {
		stop()
		c.release(s)
		end()
		return nil, about(errClosed(), call.Method, call.Name)
	}
	select {
	case o := <-answered:
		if o.err == nil {
			o.result, o.err = c.tookTask(s, call, o.result, end)
		}
		if o.err != nil || o.result.created == nil {
			end()
		}
		return o.result, o.err
	case <-ctx.Done():
		time.AfterFunc(cancelBudget, stop)
		end()
		e := contextError(ctx, "there was no answer before")
		e.Method, e.Name, e.Sent = call.Method, call.Name, true
		return nil, e
	}
}

// retain adds a user to a session that has one, to be released.
func (c *Client) retain(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.users++
}

// tookTask reads what came of a call as a task.
func (c *Client) tookTask(s *session, call *Call, result *Result, end func()) (*Result, error) {
	t, err := readCreated(result.Raw)
	if err != nil {
		return nil, &Error{Kind: KindProtocol, Method: call.Method, Name: call.Name, Sent: true, Message: "the server answered with a malformed task", Err: err}
	}
	if t == nil {
		return result, nil
	}
	held := *result
	held.created = &legacyTask{first: t, end: end, cancels: s.server.cancelsTasks}
	return &held, nil
}

// dropTask cancels a task whose caller left while it was created.
func (c *Client) dropTask(ctx context.Context, s *session, result *Result) {
	if result == nil || !s.server.cancelsTasks {
		return
	}
	if t, err := readCreated(result.Raw); err == nil && t != nil {
		(&taskWait{c: c, id: t.id, options: &CallOptions{}}).cancel(ctx)
	}
}

// readCreated reads a CreateTaskResult; nil when the result is another one.
func readCreated(raw jsontext.Value) (*task, error) {
	created := lookup(raw, []string{"task"})
	if created.Kind() != '{' {
		return nil, nil
	}
	t, err := readLegacyTask(created)
	if err == nil && t.id == "" {
		err = errors.New("it has no taskId")
	}
	return t, err
}

// readLegacyTask reads a Task of 2025-11-25.
func readLegacyTask(raw jsontext.Value) (*task, error) {
	t, err := readTask(raw)
	if err != nil {
		return nil, err
	}
	t.pollMs, t.ttlMs = numeric(lookup(raw, []string{"pollInterval"})), numeric(lookup(raw, []string{"ttl"}))
	return t, nil
}

// taskSlack is how much longer than its caller a task is to be kept, so that the
// caller's deadline is the one that counts.
const taskSlack = 10 * time.Second

// appendTask writes the member that makes a request a task, with a lifetime
// that covers the caller's deadline; without one the server has the choice.
func appendTask(ctx context.Context, params []byte) []byte {
	params = append(params, `,"task":{`...)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline) + taskSlack + time.Millisecond - 1
		params = strconv.AppendInt(append(params, `"ttl":`...), left.Milliseconds(), 10)
	}
	return append(params, '}')
}

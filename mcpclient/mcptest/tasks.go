package mcptest

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

const tasksExtension = "io.modelcontextprotocol/tasks"

// TaskState is what a task is at one moment (tasks extension, Tasks).
type TaskState struct {
	Status  string // "" = working
	Message string // statusMessage; "" = none
	// PollMs is pollIntervalMs, any JSON; "" = none.
	PollMs string
	// TTLMs is ttlMs, any JSON; "" = null.
	TTLMs string
	// Requests, Result and Error are the payload of input_required, completed
	// and failed: raw JSON.
	Requests, Result, Error string
	// NoResultType leaves resultType out of the answers to tasks/get.
	NoResultType bool
}

// task is one task of a server.
type task struct {
	id      string
	created string
	states  []TaskState
	at      int             // index of the current state
	open    map[string]bool // questions of the current state without an answer
	asked   map[string]bool // all questions so far
	over    bool            // cancelled by the client
}

// StartTask answers a tool call with a task that is in the first state; each
// tasks/get then finds it in the next one, the last for ever. A state with
// Requests is left only when tasks/update answered all of them. Server.Tasks
// must be set.
func StartTask(states ...TaskState) Handler {
	return func(_ context.Context, r *Request) (any, error) {
		s := r.server
		extensions := member(r.Meta("io.modelcontextprotocol/clientCapabilities"), "extensions")
		if member(extensions, tasksExtension) == nil {
			return nil, &Error{Code: -32021, Message: "Missing required client capability", Data: map[string]any{
				"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: map[string]any{}}},
			}}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.nextTask++
		t := &task{
			id: "täsk-" + strconv.Itoa(s.nextTask), created: time.Now().UTC().Format(time.RFC3339),
			states: states, open: map[string]bool{}, asked: map[string]bool{},
		}
		s.tasks[t.id] = t
		return Raw(`{"resultType":"task"` + t.body(states[0], false) + "}"), nil
	}
}

// body writes the members of a task, each with a comma before it.
func (t *task) body(state TaskState, payload bool) string {
	status, ttl := state.Status, state.TTLMs
	if status == "" {
		status = "working"
	}
	if ttl == "" {
		ttl = "null"
	}
	raw := `,"taskId":` + quote(t.id) + `,"status":` + quote(status) + optional("statusMessage", state.Message) +
		`,"createdAt":` + quote(t.created) + `,"lastUpdatedAt":` + quote(t.created) + `,"ttlMs":` + ttl
	if state.PollMs != "" {
		raw += `,"pollIntervalMs":` + state.PollMs
	}
	if !payload {
		return raw
	}
	for name, value := range map[string]string{"inputRequests": state.Requests, "result": state.Result, "error": state.Error} {
		if value != "" {
			raw += "," + quote(name) + ":" + value
		}
	}
	return raw
}

// serveTask is the correct answer to tasks/get, tasks/update and tasks/cancel.
func serveTask(_ context.Context, r *Request) (any, error) {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[r.Text("taskId")]
	if t == nil {
		return nil, &Error{Code: -32602, Message: "Unknown task: " + r.Text("taskId")}
	}
	switch r.Method {
	case "tasks/get":
		return t.get(), nil
	case "tasks/update":
		t.update(s, r.Param("inputResponses"))
		return Raw("{}"), nil
	case "tasks/cancel":
		t.over = true
		return Raw("{}"), nil
	}
	return nil, &Error{Code: -32601, Message: "Method not found"}
}

func (t *task) get() Raw {
	state := t.states[t.at]
	if len(t.open) == 0 && t.at < len(t.states)-1 {
		t.at++
		state = t.states[t.at]
		for _, key := range keys(json.RawMessage(state.Requests)) {
			t.open[key], t.asked[key] = true, true
		}
	}
	if t.over {
		state = TaskState{Status: "cancelled"}
	}
	raw := t.body(state, true)
	if state.NoResultType {
		return Raw("{" + raw[1:] + "}")
	}
	return Raw(`{"resultType":"complete"` + raw + "}")
}

// update takes answers; those to questions that were never asked are the
// client's mistake.
func (t *task) update(s *Server, answers json.RawMessage) {
	for _, key := range keys(answers) {
		if !t.asked[key] {
			s.violate("tasks/update answers %q, which task %s never asked", key, t.id)
		}
		delete(t.open, key)
	}
}

// TaskIDs returns the ids of all tasks so far, sorted.
func (s *Server) TaskIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.tasks))
	for id := range s.tasks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

package mcptest

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// digging has one tool for each taskSupport; "dig" asks for roots.
func digging(o LegacyTaskOptions) *Server {
	return &Server{LegacyTasks: o, Tools: []Tool{
		{Name: "dig", TaskSupport: "required", Call: func(ctx context.Context, r *Request) (any, error) {
			roots, err := r.Ask(ctx, "roots/list", nil)
			if err != nil {
				return nil, err
			}
			return Text(string(roots)), nil
		}},
		{Name: "fail", TaskSupport: "optional", Call: Fail(-32000, "no", nil, 0)},
		{Name: "wrong", TaskSupport: "optional", Call: Respond(Raw(`{"content":[],"isError":true}`))},
		{Name: "wait", TaskSupport: "optional", Call: Silence()},
		{Name: "echo", Call: Echo()},
	}}
}

func legacyCall(id, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + params + `}}`
}

func legacyTaskRequest(id, method, task string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"taskId":"` + task + `"}}`
}

func TestALegacyTaskRunsAsksAndEnds(t *testing.T) {
	_, c := newLegacy(t, digging(LegacyTaskOptions{On: true, PollMs: "50"}))
	header := open(t, c)
	status, body := c.post(legacyCall("2", `"name":"dig","task":{"ttl":1000}`), header...)
	if status != 200 || !strings.Contains(body, `"result":{"task":{"taskId":"täsk/1","status":"`) || !strings.Contains(body, `"ttl":1000,"pollInterval":50}`) {
		t.Fatalf("created = %d %s", status, body)
	}
	resp := c.do(http.MethodPost, legacyTaskRequest("3", "tasks/result", "täsk/1"), header...)
	next := lines(resp.Body)
	if got := next(t); got != `data: {"jsonrpc":"2.0","id":"ask-1","method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"täsk/1"}}}}` {
		t.Fatalf("question = %s", got)
	}
	if _, body := c.post(legacyTaskRequest("4", "tasks/get", "täsk/1"), header...); !strings.Contains(body, `"status":"input_required"`) {
		t.Errorf("while it asks: %s", body)
	}
	if status, _ := c.post(`{"jsonrpc":"2.0","id":"ask-1","result":{"roots":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"täsk/1"}}}}`, header...); status != 202 {
		t.Errorf("answer = %d", status)
	}
	next(t)
	if got := next(t); !strings.Contains(got, `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"täsk/1"}}`) || !strings.Contains(got, `roots`) {
		t.Errorf("result = %s", got)
	}
	if _, body := c.post(legacyTaskRequest("5", "tasks/get", "täsk/1"), header...); !strings.Contains(body, `"status":"completed"`) {
		t.Errorf("at its end: %s", body)
	}
	if _, body := c.post(legacyTaskRequest("6", "tasks/cancel", "täsk/1"), header...); code(t, body) != -32602 {
		t.Errorf("cancelled after its end: %s", body)
	}
}

func TestLegacyTasksFailAndAreCancelled(t *testing.T) {
	_, c := newLegacy(t, digging(LegacyTaskOptions{On: true, TTLMs: "7"}))
	header := open(t, c)
	for i, name := range []string{"fail", "wrong", "wait"} {
		if _, body := c.post(legacyCall("1"+itoa(i), `"name":"`+name+`","task":{}`), header...); !strings.Contains(body, `"ttl":7}`) {
			t.Fatal(body)
		}
	}
	if _, body := c.post(legacyTaskRequest("2", "tasks/result", "täsk/1"), header...); code(t, body) != -32000 {
		t.Error(body)
	}
	if _, body := c.post(legacyTaskRequest("3", "tasks/result", "täsk/2"), header...); !strings.Contains(body, `"isError":true`) {
		t.Error(body)
	}
	for id, task := range map[string]string{"4": "täsk/1", "5": "täsk/2"} {
		if _, body := c.post(legacyTaskRequest(id, "tasks/get", task), header...); !strings.Contains(body, `"status":"failed"`) {
			t.Error(body)
		}
	}
	if _, body := c.post(legacyTaskRequest("6", "tasks/cancel", "täsk/3"), header...); !strings.Contains(body, `"status":"cancelled"`) {
		t.Error(body)
	}
	if _, body := c.post(legacyTaskRequest("7", "tasks/result", "täsk/3"), header...); code(t, body) != -32603 {
		t.Error(body)
	}
	if _, body := c.post(legacyTaskRequest("8", "tasks/get", "nothing"), header...); code(t, body) != -32602 {
		t.Error(body)
	}
	if _, body := c.post(legacyTaskRequest("9", "tasks/update", "täsk/3"), header...); code(t, body) != -32601 {
		t.Error(body)
	}
}

func TestTheRulesOfLegacyTasksAreEnforced(t *testing.T) {
	on, off := LegacyTaskOptions{On: true, NoCancel: true}, LegacyTaskOptions{}
	for name, tc := range map[string]struct {
		options   LegacyTaskOptions
		before    string
		body      string
		code      int // 0 = a result or nothing
		violation string
	}{
		"a task that is demanded":     {options: on, body: legacyCall("3", `"name":"dig"`), code: -32601},
		"a task that is not allowed":  {options: on, body: legacyCall("3", `"name":"echo","task":{}`), code: -32601},
		"a task that is not offered":  {options: off, body: legacyCall("3", `"name":"echo","task":{}`), violation: "does not offer"},
		"a cancellation that is not":  {options: on, before: legacyCall("2", `"name":"wait","task":{}`), body: legacyTaskRequest("3", "tasks/cancel", "täsk/1"), code: -32601, violation: "does not declare"},
		"a task that is named twice":  {options: on, before: legacyCall("2", `"name":"wait","task":{}`), body: `{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"täsk/1","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"täsk/1"}}}}`, violation: "in _meta"},
		"a cancellation of the call":  {options: on, before: legacyCall("2", `"name":"wait","task":{}`), body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, violation: "only tasks/cancel"},
		"a method that is not served": {options: off, body: legacyTaskRequest("3", "tasks/get", "täsk/1"), code: -32601},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newLegacy(t, digging(tc.options))
			header := open(t, c)
			if tc.before != "" {
				c.post(tc.before, header...)
			}
			_, body := c.post(tc.body, header...)
			if body != "" && code(t, body) != tc.code {
				t.Errorf("got %s", body)
			}
			if tc.violation != "" {
				wantViolation(t, &s.Log, tc.violation)
			}
		})
	}
}

func TestAnAnswerThatDoesNotNameItsTaskIsAViolation(t *testing.T) {
	s, c := newLegacy(t, digging(LegacyTaskOptions{On: true}))
	header := open(t, c)
	c.post(legacyCall("2", `"name":"dig","task":{}`), header...)
	resp := c.do(http.MethodPost, legacyTaskRequest("3", "tasks/result", "täsk/1"), header...)
	next := lines(resp.Body)
	next(t)
	c.post(`{"jsonrpc":"2.0","id":"ask-1","result":{"roots":[]}}`, header...)
	next(t)
	next(t) // the result
	wantViolation(t, &s.Log, "does not name the task")
}

package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

const tasksCapability = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// taskState is a Task without its braces; more are further members.
func taskState(status, more string) string {
	if more != "" {
		more = "," + more
	}
	return `"taskId":"t/ü 1","status":"` + status + `","createdAt":"2020-01-01T00:00:00Z","lastUpdatedAt":"2020-01-01T00:00:00Z"` + more
}

// state answers tasks/get.
func state(status, more string) mcptest.Handler {
	return mcptest.Respond(mcptest.Raw("{" + taskState(status, more) + "}"))
}

// tasked is a server whose tools become tasks, which then go through the given
// states; created are further members of the created task.
func tasked(created string, states ...mcptest.Handler) *mcptest.Server {
	s := features(mcptest.Modern)
	s.Capabilities = tasksCapability
	s.Handle = map[string]mcptest.Handler{
		"tools/call":   mcptest.Respond(mcptest.Raw(`{"resultType":"task",` + taskState("working", created) + "}")),
		"tasks/get":    mcptest.Sequence(states...),
		"tasks/update": mcptest.Respond(mcptest.Raw("{}")),
		"tasks/cancel": mcptest.Respond(mcptest.Raw("{}")),
	}
	return s
}

var (
	working   = state("working", "")
	completed = state("completed", `"result":{"content":[{"type":"text","text":"done"}]}`)
)

// pollTimes are the waits before each poll, the first one since start.
func pollTimes(s *mcptest.Server, start time.Time) []time.Duration {
	var waits []time.Duration
	for _, e := range s.Entries("tasks/get") {
		waits = append(waits, e.Time.Sub(start))
		start = e.Time
	}
	return waits
}

func TestATaskIsPolledToItsEndAtTheServersPace(t *testing.T) {
	seconds := func(waits ...float64) (out []time.Duration) {
		for _, w := range waits {
			out = append(out, time.Duration(w*float64(time.Second)))
		}
		return out
	}
	every := func(more string) mcptest.Handler { return state("working", more) }
	for name, tc := range map[string]struct {
		created string
		options mcpclient.TaskOptions
		states  []mcptest.Handler
		waits   []time.Duration
	}{
		"done at once":                      {states: []mcptest.Handler{completed}, waits: seconds(0)},
		"no interval named":                 {states: []mcptest.Handler{working, working, completed}, waits: seconds(0, 1, 1)},
		"no interval named, another option": {options: mcpclient.TaskOptions{PollInterval: 3 * time.Second}, states: []mcptest.Handler{working, completed}, waits: seconds(0, 3)},
		"named when created":                {created: `"pollIntervalMs":5000`, states: []mcptest.Handler{working, working, completed}, waits: seconds(0, 5, 5)},
		"changing":                          {created: `"pollIntervalMs":5000`, states: []mcptest.Handler{every(`"pollIntervalMs":2000`), working, every(`"pollIntervalMs":250.5`), completed}, waits: seconds(0, 2, 2, 0.25)},
		"zero":                              {states: []mcptest.Handler{every(`"pollIntervalMs":0`), working, completed}, waits: seconds(0, 0.1, 0.1)},
		"negative":                          {states: []mcptest.Handler{every(`"pollIntervalMs":-5`), completed}, waits: seconds(0, 0.1)},
		"null, text and nothing":            {created: `"pollIntervalMs":null`, states: []mcptest.Handler{every(`"pollIntervalMs":"5"`), working, completed}, waits: seconds(0, 1, 1)},
		"above the bound":                   {options: mcpclient.TaskOptions{MaxPollInterval: 10 * time.Second}, states: []mcptest.Handler{every(`"pollIntervalMs":1e400`), every(`"pollIntervalMs":60000`), completed}, waits: seconds(0, 10, 10)},
		"below the bound":                   {options: mcpclient.TaskOptions{MinPollInterval: 2 * time.Second}, states: []mcptest.Handler{every(`"pollIntervalMs":1`), completed}, waits: seconds(0, 2)},
		"a resultType of task":              {states: []mcptest.Handler{mcptest.Respond(mcptest.Raw(`{"resultType":"task",` + taskState("working", "") + "}")), completed}, waits: seconds(0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := tasked(tc.created, tc.states...)
				c := connect(t, s, mcpclient.Options{Tasks: tc.options})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				result, err := c.CallTool(t.Context(), "echo", nil, nil)
				if err != nil || result.Type != mcpclient.ResultComplete || string(result.Raw) != `{"content":[{"type":"text","text":"done"}]}` || result.Era != mcpclient.EraModern {
					t.Fatalf("%+v %v", result, err)
				}
				if got := pollTimes(s, start); fmt.Sprint(got) != fmt.Sprint(tc.waits) {
					t.Errorf("the waits before each poll are %v, want %v", got, tc.waits)
				}
				for _, e := range s.Entries("tasks/get") {
					if got := param(t, e, "taskId"); got != `"t/ü 1"` {
						t.Errorf("the poll is for %s", got)
					}
					if got := string(e.Meta(mcpclient.MetaClientCapabilities)); !strings.Contains(got, mcpclient.TasksExtension) {
						t.Errorf("a poll declares %s", got)
					}
				}
				if s.Count("tasks/cancel") != 0 || s.Count("tools/call") != 1 {
					t.Errorf("%v", wire(s))
				}
			})
		})
	}
}

func TestTheNameHeaderOfATaskRequestIsItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", completed)
		c := overHTTP(t, s, mcpclient.Options{})
		const id = "786512e2-9e0d"
		if _, err := c.GetTask(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.UpdateTask(t.Context(), id, jsontext.Value(`{"k":{"action":"cancel"}}`), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.CancelTask(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			e := s.Entries(method)[0]
			if got := e.Header.Get("Mcp-Name"); got != id {
				t.Errorf("%s: Mcp-Name is %q", method, got)
			}
		}
		if got := param(t, s.Entries("tasks/update")[0], "inputResponses"); got != `{"k":{"action":"cancel"}}` {
			t.Error(got)
		}
	})
}

func TestHowATaskEndsIsHowTheCallEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end     mcptest.Handler
		kind    mcpclient.Kind // -2 = a result
		text    string
		is      error
		isError bool
		cancel  int // tasks/cancel that go out
	}{
		"completed":                         {end: completed, kind: -2},
		"completed with a tool's own error": {end: state("completed", `"result":{"content":[],"isError":true,"resultType":"complete"}`), kind: -2, isError: true},
		"completed, without a result":       {end: state("completed", ""), kind: mcpclient.KindProtocol, text: "result of the task"},
		"completed with another result":     {end: state("completed", `"result":{"resultType":"task"}`), kind: mcpclient.KindProtocol, text: "resultType"},
		"failed":                            {end: state("failed", `"statusMessage":"m","error":{"code":-32603,"message":"limit","data":{"a":1}}`), kind: mcpclient.KindRPC, text: "server error -32603: limit"},
		"failed without a reason":           {end: state("failed", ""), kind: mcpclient.KindProtocol, text: "does not say why"},
		"cancelled":                         {end: state("cancelled", `"statusMessage":"by Ann"`), kind: mcpclient.KindTask, text: "by Ann", is: mcpclient.ErrTaskCancelled},
		"an unknown status":                 {end: state("paused", ""), kind: mcpclient.KindProtocol, text: `"paused"`, cancel: 1},
		"another task":                      {end: mcptest.Respond(mcptest.Raw(`{"taskId":"other","status":"working"}`)), kind: mcpclient.KindProtocol, text: "another task", cancel: 1},
		"no task at all":                    {end: mcptest.Respond(mcptest.Raw(`{}`)), kind: mcpclient.KindProtocol, text: "status", cancel: 1},
		"unknown to the server":             {end: mcptest.Fail(-32602, "Task not found", nil, 0), kind: mcpclient.KindRPC, text: "-32602"},
		"another error":                     {end: mcptest.Fail(-32601, "gone", nil, 0), kind: mcpclient.KindRPC, text: "-32601", cancel: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tasked("", working, tc.end)
				c := overHTTP(t, s, mcpclient.Options{})
				result, err := c.CallTool(t.Context(), "echo", nil, nil)
				if kindOf(err) != tc.kind {
					t.Fatalf("%+v %v", result, err)
				}
				if tc.kind == -2 {
					if result.IsError != tc.isError || result.Type != mcpclient.ResultComplete {
						t.Errorf("%+v", result)
					}
				} else if e := wantKind(t, err, tc.kind, tc.text); e.SafeToRetry || !e.Sent || tc.is != nil && !errors.Is(err, tc.is) {
					t.Errorf("%+v", e)
				}
				synctest.Wait()
				if s.Count("tasks/get") != 2 || s.Count("tasks/cancel") != tc.cancel || s.Count("notifications/cancelled") != 0 {
					t.Errorf("%v", wire(s))
				}
			})
		})
	}
}

func TestQuestionsOfATaskAreAnsweredOnceEach(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		questions := func(keys ...string) mcptest.Handler {
			for i, k := range keys {
				keys[i] = `"` + k + `":` + askRoots
			}
			return state("input_required", `"inputRequests":{`+strings.Join(keys, ",")+"}")
		}
		s := tasked("", questions("a", "b"), questions("a", "b"), questions("b", "c"), working, questions("a"), questions("d"), completed)
		var asked atomic.Int32
		c := connect(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) {
			asked.Add(1)
			return nil, nil
		}}})
		options := &mcpclient.CallOptions{Meta: jsontext.Value(`{"tenant":"x"}`)}
		if _, err := c.CallTool(t.Context(), "echo", nil, options); err != nil {
			t.Fatal(err)
		}
		var answers []string
		for _, e := range s.Entries("tasks/update") {
			answers = append(answers, param(t, e, "inputResponses"))
			if string(e.Meta("tenant")) != `"x"` {
				t.Error("the caller's _meta is missing")
			}
		}
		want := `{"a":{"roots":[]},"b":{"roots":[]}} {"c":{"roots":[]}} {"d":{"roots":[]}}`
		if got := strings.Join(answers, " "); got != want || s.Count("tasks/get") != 7 || asked.Load() != 4 {
			t.Errorf("the answers are %s\nwant %s; %d polls, %d questions", got, want, s.Count("tasks/get"), asked.Load())
		}
	})
}

func TestATaskThatWaitsWithoutAskingIsGivenUp(t *testing.T) {
	waiting := func(more string) mcptest.Handler { return state("input_required", more) }
	const known = `"inputRequests":{"a":` + askRoots + `}`
	for name, tc := range map[string]struct {
		stuck  int
		states []mcptest.Handler
		polls  int
	}{
		"nothing asked":                 {stuck: 3, states: []mcptest.Handler{waiting(`"inputRequests":{}`)}, polls: 3},
		"no questions member":           {stuck: 3, states: []mcptest.Handler{waiting("")}, polls: 3},
		"one":                           {stuck: 1, states: []mcptest.Handler{waiting(`"inputRequests":null`)}, polls: 1},
		"the default":                   {states: []mcptest.Handler{waiting("")}, polls: 60},
		"the same question":             {stuck: 3, states: []mcptest.Handler{waiting(known)}, polls: 4},
		"work in between starts afresh": {stuck: 3, states: []mcptest.Handler{waiting(""), waiting(""), working, waiting("")}, polls: 6},
		"so does a new question":        {stuck: 3, states: []mcptest.Handler{waiting(""), waiting(""), waiting(known), waiting("")}, polls: 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tasked("", tc.states...)
				c := overHTTP(t, s, mcpclient.Options{Tasks: mcpclient.TaskOptions{MaxStuckPolls: tc.stuck}, Roots: []mcpclient.Root{{URI: "file:///r"}}})
				_, err := c.CallTool(t.Context(), "echo", nil, nil)
				_ = wantKind(t, err, mcpclient.KindProtocol, "polls in a row")
				if !errors.Is(err, mcpclient.ErrTaskStuck) {
					t.Error(err)
				}
				synctest.Wait()
				if s.Count("tasks/get") != tc.polls || s.Count("tasks/cancel") != 1 {
					t.Errorf("%d polls, %d cancellations", s.Count("tasks/get"), s.Count("tasks/cancel"))
				}
			})
		})
	}
}

func TestMalformedTasksAreAProtocolError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, created := range []string{`{"resultType":"task"}`, `{"resultType":"task","taskId":7}`, `{"resultType":"task","taskId":""}`} {
			s := tasked("", working)
			s.Handle["tools/call"] = mcptest.Respond(mcptest.Raw(created))
			_ = wantKind(t, errOf(overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindProtocol, "malformed task")
			if s.Count("tasks/get") != 0 {
				t.Error("it was polled")
			}
		}
		for _, questions := range []string{"7", `{"a":7}`} {
			s := tasked("", state("input_required", `"inputRequests":`+questions))
			_ = wantKind(t, errOf(overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindProtocol, "malformed")
		}
	})
}

func TestATaskWithAQuestionForTheCallerIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const questions = `"inputRequests":{"r":` + askRoots + `,"k":` + askForm + `}`
		s := tasked("", working, state("input_required", questions))
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}, Handlers: mcpclient.Handlers{Elicit: accept("{}")}})
		options := &mcpclient.CallOptions{Capabilities: jsontext.Value(`{"elicitation":{}}`), ReturnInput: true}
		result, err := c.CallTool(t.Context(), "echo", nil, options)
		if err != nil || result.Type != mcpclient.ResultTask || !strings.Contains(string(result.Raw), questions) {
			t.Fatalf("%+v %v", result, err)
		}
		if got := string(s.Entries("tasks/get")[1].Meta(mcpclient.MetaClientCapabilities)); !strings.Contains(got, `"elicitation"`) || !strings.Contains(got, mcpclient.TasksExtension) {
			t.Errorf("a poll declares %s", got)
		}
		synctest.Wait()
		if s.Count("tasks/update") != 0 || s.Count("tasks/cancel") != 0 {
			t.Errorf("%v", wire(s))
		}
		if result, err := c.WaitTask(t.Context(), "t/ü 1", options); err != nil || result.Type != mcpclient.ResultTask {
			t.Errorf("waiting by id: %+v %v", result, err)
		}
	})
}

func TestACallerThatTakesTasksGetsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", working, completed)
		c := overHTTP(t, s, mcpclient.Options{})
		result, err := c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{ReturnTask: true})
		if err != nil || result.Type != mcpclient.ResultTask || s.Count("tasks/get") != 0 {
			t.Fatalf("%+v %v", result, err)
		}
		if result, err = c.GetTask(t.Context(), "t/ü 1", nil); err != nil || result.Type != mcpclient.ResultComplete || !strings.Contains(string(result.Raw), `"status":"working"`) {
			t.Errorf("%+v %v", result, err)
		}
		if result, err = c.WaitTask(t.Context(), "t/ü 1", nil); err != nil || !strings.Contains(string(result.Raw), "done") {
			t.Errorf("%+v %v", result, err)
		}
	})
}

func TestAWaitByIDLeavesTheTaskAloneWhenItEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", working)
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 10 * time.Second}})
		_ = wantKind(t, errOf(c.WaitTask(t.Context(), "t/ü 1", nil)), mcpclient.KindTimeout, "timeouts.max")
		synctest.Wait()
		if s.Count("tasks/cancel") != 0 {
			t.Error("it was cancelled")
		}
	})
}

func TestTaskOperationsAreCheckedAndListenedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", mcptest.Fail(-32602, "Task not found", nil, 0))
		s.Handle["tasks/update"], s.Handle["tasks/cancel"] = s.Handle["tasks/get"], s.Handle["tasks/get"]
		var heard []string
		c := overHTTP(t, s, mcpclient.Options{Listeners: []mcpclient.Listener{{Error: func(_ context.Context, op mcpclient.Operation, _ error) {
			heard = append(heard, op.Method+" "+op.Name)
		}}}})
		ctx := t.Context()
		_ = wantKind(t, errOf(c.GetTask(ctx, "x", nil)), mcpclient.KindRPC, "-32602")
		_ = wantKind(t, c.UpdateTask(ctx, "x", jsontext.Value("{}"), nil), mcpclient.KindRPC, "-32602")
		_ = wantKind(t, c.CancelTask(ctx, "x", nil), mcpclient.KindRPC, "-32602")
		e := wantKind(t, errOf(c.WaitTask(ctx, "x", nil)), mcpclient.KindRPC, "-32602")
		if e.Method != "tasks/get" || e.Name != "x" {
			t.Errorf("%+v", e)
		}
		if got := strings.Join(heard, ","); got != "tasks/get x,tasks/update x,tasks/cancel x,tasks/get x" {
			t.Errorf("listeners heard %s", got)
		}
		sent := len(wire(s))
		for _, answers := range []string{"", "[]", "{", "null"} {
			_ = wantKind(t, c.UpdateTask(ctx, "x", jsontext.Value(answers), nil), mcpclient.KindInvalid, "not a JSON object")
		}
		_ = wantKind(t, errOf(c.GetTask(ctx, "", nil)), mcpclient.KindInvalid, "empty")
		_ = wantKind(t, errOf(c.WaitTask(ctx, "", nil)), mcpclient.KindInvalid, "empty")
		legacy := features(mcptest.Legacy)
		old := overHTTP(t, legacy, mcpclient.Options{})
		_ = wantKind(t, errOf(old.GetTask(ctx, "x", nil)), mcpclient.KindUnsupported, "tasks extension")
		_ = wantKind(t, errOf(old.WaitTask(ctx, "x", nil)), mcpclient.KindUnsupported, "tasks extension")
		if len(wire(s)) != sent || legacy.Count("tasks/get") != 0 {
			t.Error("it was sent all the same")
		}
	})
}

func TestATaskRequestHasTheTimeOfAToolCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", mcptest.Silence())
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 5 * time.Second}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_ = wantKind(t, errOf(c.GetTask(t.Context(), "x", nil)), mcpclient.KindTimeout, "timeouts.tool")
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAToolMayAskBeforeItBecomesATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", completed)
		s.Handle["tools/call"] = mcptest.Sequence(asks(`{"r":`+askRoots+`}`, ""), s.Handle["tools/call"])
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}})
		if result, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil || !strings.Contains(string(result.Raw), "done") {
			t.Errorf("%+v %v", result, err)
		}
	})
}

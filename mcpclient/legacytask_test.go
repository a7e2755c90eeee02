package mcpclient_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// laborious is a server of 2025-11-25 whose tool "dig" runs as a task alone.
func laborious(dig mcptest.Handler) *mcptest.Server {
	s := features(mcptest.Legacy)
	s.PageSize = 0
	s.LegacyTasks = mcptest.LegacyTaskOptions{On: true, PollMs: "500"}
	s.Tools = append(s.Tools,
		mcptest.Tool{Name: "dig", TaskSupport: "required", Call: dig},
		mcptest.Tool{Name: "either", TaskSupport: "optional", Call: done()},
		mcptest.Tool{Name: "never", TaskSupport: "forbidden", Call: done()},
	)
	return s
}

// labor answers a tool call after a while, with progress on the way.
func labor(d time.Duration, then mcptest.Handler) mcptest.Handler {
	return mcptest.Delay(d, func(ctx context.Context, r *mcptest.Request) (any, error) {
		r.Progress(1, 2, "half")
		return then(ctx, r)
	})
}

// quiet keeps health checks out of what is counted.
func quiet() mcpclient.Options {
	return mcpclient.Options{Health: mcpclient.HealthOptions{Disabled: true}}
}

// wantCounts compares how often methods arrived.
func wantCounts(t *testing.T, s *mcptest.Server, want map[string]int) {
	t.Helper()
	for method, n := range want {
		if got := s.Count(method); got != n {
			t.Errorf("%s arrived %d times, want %d; %v", method, got, n, wire(s))
		}
	}
}

func TestAToolOf20251125ThatDemandsATaskIsCalledAsOne(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := laborious(labor(1200*time.Millisecond, mcptest.Respond(mcptest.Text("gold"))))
		c := connect(t, s, quiet())
		start := time.Now()
		options := &mcpclient.CallOptions{Meta: jsontext.Value(`{"tenant":"x"}`), ReturnTask: true}
		result, err := c.CallTool(t.Context(), "dig", jsontext.Value(`{"n":1e400}`), options)
		if err != nil || result.Type != mcpclient.ResultComplete || result.IsError || result.Task == "" ||
			result.Era != mcpclient.EraLegacy || result.ProtocolVersion != mcpclient.Version20251125 || !strings.Contains(string(result.Raw), "gold") {
			t.Fatalf("%+v %v", result, err)
		}
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("it took %v, want the pace of the server", took)
		}
		wantCounts(t, s, map[string]int{"tools/list": 1, "tools/call": 1, "tasks/get": 4, "tasks/result": 1, "tasks/cancel": 0})
		if got := param(t, s.Entries("tools/call")[0], "task"); got != "{}" {
			t.Errorf("without a deadline the task is %s", got)
		}
		if got := param(t, s.Entries("tools/call")[0], "arguments"); got != `{"n":1e400}` {
			t.Error(got)
		}
		for _, method := range []string{"tools/call", "tasks/get", "tasks/result"} {
			for _, e := range s.Entries(method) {
				if string(e.Meta("tenant")) != `"x"` {
					t.Errorf("%s lacks the caller's _meta", method)
				}
			}
		}
		if _, err := c.CallTool(t.Context(), "dig", nil, nil); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, s, map[string]int{"tools/list": 1, "tools/call": 2})
	})
}

func TestToolsThatNeedNoTaskAreCalledPlainly(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := laborious(done())
		c := connect(t, s, quiet())
		for _, name := range []string{"echo", "either", "never"} {
			if _, err := c.CallTool(t.Context(), name, nil, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, e := range s.Entries("tools/call") {
			if got := param(t, e, "task"); got != "" {
				t.Errorf("it was called as the task %s", got)
			}
		}
		wantCounts(t, s, map[string]int{"tools/list": 1, "tools/call": 3, "tasks/get": 0})
	})
}

func TestWithoutLegacyTasksNothingIsAskedAndNothingChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		caps    string
		version string
		off     bool
	}{
		"no capability":           {},
		"tasks of other requests": {caps: `{"tools":{},"tasks":{"cancel":{},"requests":{"sampling":{"createMessage":{}}}}}`},
		"nothing in the tasks":    {caps: `{"tools":{},"tasks":{}}`},
		"no object":               {caps: `{"tools":{},"tasks":true}`},
		"an older version":        {caps: `{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}`, version: mcpclient.Version20250618},
		"the extension's name":    {caps: `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`},
		"switched off":            {caps: `{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}`, off: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := laborious(done())
				s.LegacyTasks.On, s.Capabilities = false, tc.caps
				if tc.version != "" {
					s.Versions = []string{tc.version}
				}
				o := quiet()
				o.Tasks.Disabled = tc.off
				c := overHTTP(t, s, o)
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				before := len(wire(s))
				if _, err := c.CallTool(t.Context(), "dig", nil, nil); err != nil {
					t.Fatal(err)
				}
				if got := wire(s)[before:]; len(got) != 1 || got[0] != "tools/call" {
					t.Errorf("a call was %v", got)
				}
				if got := param(t, s.Entries("tools/call")[0], "task"); got != "" {
					t.Error(got)
				}
			})
		})
	}
}

func TestHowALegacyTaskEndsIsHowTheCallEnds(t *testing.T) {
	get := func(more string) map[string]mcptest.Handler {
		return map[string]mcptest.Handler{"tasks/get": mcptest.Respond(mcptest.Raw(`{"taskId":"täsk/1","createdAt":"2025-01-01T00:00:00Z","lastUpdatedAt":"2025-01-01T00:00:00Z","ttl":null,` + more + `}`))}
	}
	for name, tc := range map[string]struct {
		dig     mcptest.Handler
		handle  map[string]mcptest.Handler
		kind    mcpclient.Kind // -2 = a result
		text    string
		is      error
		task    bool // the error names the task
		isError bool
		polls   int
		results int
		cancel  int
	}{
		"a tool's own error":     {dig: mcptest.Delay(100*time.Millisecond, mcptest.Respond(mcptest.Raw(`{"content":[],"isError":true}`))), kind: -2, isError: true, polls: 2, results: 1},
		"a JSON-RPC error":       {dig: mcptest.Delay(100*time.Millisecond, mcptest.Fail(-32602, "bad arguments", map[string]any{"a": 1}, 0)), kind: mcpclient.KindRPC, text: "-32602: bad arguments", task: true, polls: 2, results: 1},
		"an internal error":      {dig: mcptest.Delay(100*time.Millisecond, mcptest.Fail(-32603, "boom", nil, 0)), kind: mcpclient.KindRPC, text: "-32603: boom", task: true, polls: 2, results: 1},
		"cancelled":              {dig: mcptest.Silence(), handle: get(`"status":"cancelled","statusMessage":"by Ann"`), kind: mcpclient.KindTask, text: "by Ann", is: mcpclient.ErrTaskCancelled, task: true, polls: 1},
		"an unknown status":      {dig: mcptest.Silence(), handle: get(`"status":"paused"`), kind: mcpclient.KindProtocol, text: `"paused"`, task: true, polls: 1, cancel: 1},
		"another task":           {dig: mcptest.Silence(), handle: map[string]mcptest.Handler{"tasks/get": mcptest.Respond(mcptest.Raw(`{"taskId":"b","status":"working"}`))}, kind: mcpclient.KindProtocol, text: "another task", task: true, polls: 1, cancel: 1},
		"no task at all":         {dig: mcptest.Silence(), handle: map[string]mcptest.Handler{"tasks/get": mcptest.Respond(mcptest.Raw(`{}`))}, kind: mcpclient.KindProtocol, text: "status", task: true, polls: 1, cancel: 1},
		"unknown to the server":  {dig: mcptest.Silence(), handle: map[string]mcptest.Handler{"tasks/get": mcptest.Fail(-32602, "Task has expired", nil, 0)}, kind: mcpclient.KindRPC, text: "expired", polls: 1},
		"no polling":             {dig: mcptest.Silence(), handle: map[string]mcptest.Handler{"tasks/get": mcptest.Fail(-32601, "Method not found", nil, 0)}, kind: mcpclient.KindRPC, text: "-32601", polls: 1, cancel: 1},
		"a malformed task":       {handle: map[string]mcptest.Handler{"tools/call": mcptest.Respond(mcptest.Raw(`{"task":{"status":"working"}}`))}, kind: mcpclient.KindProtocol, text: "malformed task"},
		"a task with a number":   {handle: map[string]mcptest.Handler{"tools/call": mcptest.Respond(mcptest.Raw(`{"task":{"taskId":5}}`))}, kind: mcpclient.KindProtocol, text: "malformed task"},
		"no task but the result": {handle: map[string]mcptest.Handler{"tools/call": mcptest.Respond(mcptest.Raw(`{"content":[],"isError":true}`))}, kind: -2, isError: true},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := laborious(tc.dig)
				s.Handle = tc.handle
				c := connect(t, s, quiet())
				result, err := c.CallTool(t.Context(), "dig", nil, nil)
				if kindOf(err) != tc.kind {
					t.Fatalf("%+v %v", result, err)
				}
				if tc.kind == -2 {
					if result.IsError != tc.isError || result.Type != mcpclient.ResultComplete {
						t.Errorf("%+v", result)
					}
				} else if e := wantKind(t, err, tc.kind, tc.text); e.SafeToRetry || !e.Sent || tc.is != nil && !errors.Is(err, tc.is) || (e.Task != "") != tc.task {
					t.Errorf("%+v", e)
				}
				synctest.Wait()
				wantCounts(t, s, map[string]int{"tools/call": 1, "tasks/get": tc.polls, "tasks/result": tc.results, "tasks/cancel": tc.cancel, "notifications/cancelled": 0})
			})
		})
	}
}

func TestALegacyTasksProgressReachesTheCaller(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := laborious(labor(1200*time.Millisecond, done()))
		c := connect(t, s, quiet())
		var got []mcpclient.Progress
		options := &mcpclient.CallOptions{Progress: func(_ context.Context, p mcpclient.Progress) { got = append(got, p) }}
		if _, err := c.CallTool(t.Context(), "dig", nil, options); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].Message != "half" {
			t.Errorf("%+v", got)
		}
	})
}

func TestTheTaskMethodsStayWithModernServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := laborious(done())
		c := overHTTP(t, s, quiet())
		_ = wantKind(t, errOf(c.GetTask(t.Context(), "a", nil)), mcpclient.KindUnsupported, "without the tasks extension")
		_ = wantKind(t, errOf(c.WaitTask(t.Context(), "a", nil)), mcpclient.KindUnsupported, "without the tasks extension")
		_ = wantKind(t, c.CancelTask(t.Context(), "a", nil), mcpclient.KindUnsupported, "without the tasks extension")
		_ = wantKind(t, c.UpdateTask(t.Context(), "a", jsontext.Value("{}"), nil), mcpclient.KindUnsupported, "without the tasks extension")
	})
}

func TestTheTimeToLiveCoversTheCallersDeadlineAndTheServersWordHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := laborious(labor(1200*time.Millisecond, done()))
		c := overPipe(t, s, quiet())
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond+time.Microsecond)
		defer cancel()
		if _, err := c.CallTool(ctx, "dig", nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := param(t, s.Entries("tools/call")[0], "task"); got != `{"ttl":12501}` {
			t.Error(got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := laborious(mcptest.Silence())
		s.LegacyTasks.TTLMs = "1700"
		c := overPipe(t, s, quiet())
		start := time.Now()
		e := wantKind(t, errOf(c.CallTool(t.Context(), "dig", nil, nil)), mcpclient.KindTimeout, "(ttl)")
		if took := time.Since(start); took != 1700*time.Millisecond || e.Method != "tools/call" || e.SafeToRetry {
			t.Errorf("%v %+v", took, e)
		}
		synctest.Wait()
		wantCounts(t, s, map[string]int{"tasks/cancel": 1})
	})
}

func TestALegacyTaskIsPolledWithinTheBoundsOfTheOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		poll    string
		options mcpclient.TaskOptions
		polls   int // in 10.5 s
	}{
		"named":            {poll: "2000", polls: 6},
		"not named":        {polls: 11},
		"too often":        {poll: "0", options: mcpclient.TaskOptions{MinPollInterval: 5 * time.Second}, polls: 3},
		"too rarely":       {poll: "60000", options: mcpclient.TaskOptions{MaxPollInterval: 4 * time.Second}, polls: 3},
		"another default":  {options: mcpclient.TaskOptions{PollInterval: 10 * time.Second}, polls: 2},
		"text is no pace":  {poll: `"5"`, polls: 11},
		"the modern name":  {poll: `1000,"pollIntervalMs":9000`, polls: 11},
		"a negative is no": {poll: "-7", options: mcpclient.TaskOptions{MinPollInterval: time.Second}, polls: 11},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := laborious(mcptest.Silence())
				s.LegacyTasks.PollMs = tc.poll
				o := quiet()
				o.Tasks = tc.options
				c := overPipe(t, s, o)
				if _, err := c.ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
				defer cancel()
				_ = wantKind(t, errOf(c.CallTool(ctx, "dig", nil, nil)), mcpclient.KindTimeout, "caller's deadline")
				synctest.Wait()
				wantCounts(t, s, map[string]int{"tasks/get": tc.polls, "tasks/cancel": 1})
			})
		})
	}
}

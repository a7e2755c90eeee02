package mcpclient_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestAWaitThatEndsEarlyCancelsTheTaskBehindTheCallersBack(t *testing.T) {
	for name, tc := range map[string]struct {
		options mcpclient.Options
		created string
		states  []mcptest.Handler
		leave   time.Duration
		after   time.Duration
		kind    mcpclient.Kind
		text    string
	}{
		"the whole call's time":       {options: mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 4500 * time.Millisecond}}, after: 4500 * time.Millisecond, kind: mcpclient.KindTimeout, text: "timeouts.max"},
		"a caller that leaves":        {leave: 2500 * time.Millisecond, after: 2500 * time.Millisecond, kind: mcpclient.KindCanceled, text: "went away"},
		"the time to live":            {created: `"ttlMs":3500`, states: []mcptest.Handler{state("working", `"ttlMs":3500`)}, after: 3500 * time.Millisecond, kind: mcpclient.KindTimeout, text: "ttlMs"},
		"a time to live that changes": {created: `"ttlMs":60000`, states: []mcptest.Handler{state("working", `"ttlMs":null`), state("working", `"ttlMs":1500`)}, after: 1500 * time.Millisecond, kind: mcpclient.KindTimeout, text: "ttlMs"},
		"no time to live":             {created: `"ttlMs":0`, leave: 60500 * time.Millisecond, after: 60500 * time.Millisecond, kind: mcpclient.KindCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				if tc.states == nil {
					tc.states = []mcptest.Handler{working}
				}
				s := tasked(tc.created, tc.states...)
				hold := make(chan struct{})
				s.Handle["tasks/cancel"] = mcptest.After(hold, mcptest.Respond(mcptest.Raw("{}"))) // the caller does not wait for it
				c := connect(t, s, tc.options)
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, cancel)
				}
				start := time.Now()
				_, err := c.CallTool(ctx, "echo", nil, nil)
				if e := wantKind(t, err, tc.kind, tc.text); e.Method != "tools/call" || e.SafeToRetry || !e.Sent {
					t.Errorf("%+v", e)
				}
				if took := time.Since(start); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
				synctest.Wait()
				if s.Count("tasks/cancel") != 1 || s.Count("notifications/cancelled") != 0 {
					t.Errorf("%v", wire(s))
				}
				close(hold)
			})
		})
	}
}

func TestACallerThatLeavesDuringAPollCancelsTheTaskAndNeverTheToolCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", mcptest.Silence())
		c := overPipe(t, s, mcpclient.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := wantKind(t, errOf(c.CallTool(ctx, "echo", nil, nil)), mcpclient.KindTimeout, "caller's deadline")
		if e.Method != "tools/call" || e.Name != "echo" || e.SafeToRetry {
			t.Errorf("%+v", e)
		}
		synctest.Wait()
		if n := s.Count("tasks/cancel"); n != 1 {
			t.Errorf("the task was cancelled %d times", n)
		}
		for _, cancelled := range s.Entries("notifications/cancelled") {
			if id := param(t, cancelled, "requestId"); id == s.Entries("tools/call")[0].ID {
				t.Error("a task is cancelled by tasks/cancel, not by a notification")
			}
		}
	})
}

func TestAQuestionOfATaskThatFailsEndsTheCallAndCancelsTheTask(t *testing.T) {
	for name, tc := range map[string]struct {
		handlers mcpclient.Handlers
		update   mcptest.Handler
		kind     mcpclient.Kind
		is       error
		text     string
	}{
		"no handler":              {kind: mcpclient.KindProtocol, is: mcpclient.ErrInputRequired, text: `"a"`},
		"a handler fails":         {handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) { return nil, context.DeadlineExceeded }}, kind: mcpclient.KindInternal, is: context.DeadlineExceeded, text: `"a"`},
		"the answers are refused": {handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) { return nil, nil }}, update: mcptest.Fail(-32603, "no", nil, 0), kind: mcpclient.KindRPC, text: "-32603"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tasked("", state("input_required", `"inputRequests":{"a":`+askRoots+`}`))
				updates := 0
				if tc.update != nil {
					s.Handle["tasks/update"], updates = tc.update, 1
				}
				c := overHTTP(t, s, mcpclient.Options{Handlers: tc.handlers})
				_, err := c.CallTool(t.Context(), "echo", nil, nil)
				if _ = wantKind(t, err, tc.kind, tc.text); tc.is != nil && !errors.Is(err, tc.is) {
					t.Error(err)
				}
				synctest.Wait()
				if s.Count("tasks/update") != updates || s.Count("tasks/cancel") != 1 {
					t.Errorf("%v", wire(s))
				}
			})
		})
	}
}

func TestAWaitOutlivesFailedPollsButNotThreeInARow(t *testing.T) {
	busy := mcptest.Respond(&mcptest.Reply{Status: 503})
	limited := mcptest.Respond(&mcptest.Reply{Status: 429, Header: map[string][]string{"Retry-After": {"7"}}})
	for name, tc := range map[string]struct {
		states []mcptest.Handler
		kind   mcpclient.Kind // -2 = a result
		after  time.Duration
		polls  int
	}{
		"two":                      {states: []mcptest.Handler{busy, busy, working, busy, busy, completed}, kind: -2, after: 5 * time.Second, polls: 6},
		"three":                    {states: []mcptest.Handler{working, busy}, kind: mcpclient.KindHTTP, after: 3 * time.Second, polls: 4},
		"a server that needs time": {states: []mcptest.Handler{limited, completed}, kind: -2, after: 7 * time.Second, polls: 2},
		"silence, then an answer":  {states: []mcptest.Handler{mcptest.Silence(), completed}, kind: -2, after: 61 * time.Second, polls: 2},
		"not found at all":         {states: []mcptest.Handler{mcptest.Respond(&mcptest.Reply{Status: 404})}, kind: mcpclient.KindHTTP, polls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tasked("", tc.states...)
				c := overHTTP(t, s, mcpclient.Options{Health: mcpclient.HealthOptions{Disabled: true}})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				result, err := c.CallTool(t.Context(), "echo", nil, nil)
				if kindOf(err) != tc.kind {
					t.Fatalf("%+v %v", result, err)
				}
				if took := time.Since(start); took != tc.after || s.Count("tasks/get") != tc.polls {
					t.Errorf("%d polls in %v, want %d in %v", s.Count("tasks/get"), took, tc.polls, tc.after)
				}
			})
		})
	}
}

func TestATaskThatIsLostNeverLooksAsIfTheToolHadNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", working)
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(1500*time.Millisecond, func() { s.SetDown(true) })
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindLost, "no connection")
		if e.SafeToRetry || !e.Sent {
			t.Errorf("%+v", e)
		}
	})
}

func TestATaskWhoseClientIsClosedNeverLooksAsIfTheToolHadNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, tasked("", working), mcpclient.Options{})
		time.AfterFunc(1500*time.Millisecond, func() { _ = c.Close(t.Context()) })
		if e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindClosed, ""); e.SafeToRetry || !e.Sent {
			t.Errorf("%+v", e)
		}
	})
}

func TestAWaitGoesOnOverANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", working, mcptest.Hangup(), completed)
		c := overPipe(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if n := s.Count(mcptest.MethodOpened); n != 2 || s.Count("tools/call") != 1 {
			t.Errorf("%d streams, %v", n, wire(s))
		}
	})
}

package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestFault124TheRequestStateComesBackAsItWas(t *testing.T) {
	for name, state := range map[string]string{
		"absent": "", "empty": `""`, "unicode": `"Grüße, 世界 🎉 \u2028"`, "escapes": `"a\/b\u0041\"\\\n\u0000"`,
		"looks like JSON": `"{\"a\":[1,2]}"`, "a megabyte": `"` + strings.Repeat("s", 1<<20) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			either(t, func(t *testing.T, over overFunc) {
				round := mcptest.Round{State: state}
				if state == "" {
					round.Requests = `{"r":{"method":"roots/list"}}`
				}
				s := answered(features(mcptest.Modern), "ask", mcptest.Rounds(mcptest.Respond(mcptest.Text("done")), round)) // compares
				c := over(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///srv"}}})
				result, err := c.CallTool(t.Context(), "ask", jsontext.Value(`{"x":1}`), nil)
				if err != nil || !strings.Contains(string(result.Raw), "done") {
					t.Fatalf("%v %v", result, err)
				}
				calls := s.Entries("tools/call")
				if len(calls) != 2 || calls[0].ID == calls[1].ID {
					t.Fatalf("want two requests with ids of their own: %v", calls)
				}
				got := string(jsonMember(t, calls[1].Params(), "requestState"))
				if got != state {
					t.Errorf("the state came back as %.100s, it was %.100s", got, state)
				}
			})
		})
	}
}

func TestFault125AServerThatAsksForEverIsGivenUp(t *testing.T) {
	for name, round := range map[string]mcptest.Round{
		"questions": {Requests: `{"r":{"method":"roots/list"}}`}, "state alone": {State: `"again"`},
	} {
		t.Run(name, func(t *testing.T) {
			either(t, func(t *testing.T, over overFunc) {
				s := answered(features(mcptest.Modern), "ask", mcptest.Rounds(nil, round))
				c := over(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///srv"}}})
				err := errOf(c.CallTool(t.Context(), "ask", nil, nil))
				_ = wantKind(t, err, mcpclient.KindProtocol, "3 retries")
				if !errors.Is(err, mcpclient.ErrRoundLimit) || s.Count("tools/call") != 4 {
					t.Errorf("%v after %d requests, want 4", err, s.Count("tools/call"))
				}
				stillWorks(t, c)
			})
		})
	}
	t.Run("or when the time for all of it is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := answered(features(mcptest.Modern), "ask", mcptest.Delay(4*time.Second, mcptest.Rounds(nil, mcptest.Round{State: `"again"`})))
			c := overHTTP(t, s, mcpclient.Options{Rounds: mcpclient.RoundOptions{MaxRetries: 1000}, Timeouts: mcpclient.Timeouts{Max: 10 * time.Second}})
			connected(t, c)
			start := time.Now()
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "ask", nil, nil)), mcpclient.KindTimeout, "timeouts.max")
			took(t, start, 10*time.Second)
			s.ForgiveViolations() // the script is in the middle of its rounds
		})
	})
}

func TestFault127InputIsAskedForWhereTheProtocolAllowsIt(t *testing.T) {
	ask := mcptest.Respond(mcptest.Raw(`{"resultType":"input_required","requestState":"x"}`))
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"tools/list": ask, "resources/list": ask, "prompts/list": ask, "completion/complete": ask}
		c := over(t, s, mcpclient.Options{})
		for method, err := range map[string]error{
			"tools/list": errOf(c.ListTools(t.Context())), "resources/list": errOf(c.ListResources(t.Context())), "prompts/list": errOf(c.ListPrompts(t.Context())),
			"completion/complete": errOf(c.Complete(t.Context(), mcpclient.CompleteParams{Prompt: "hi", Argument: "a"}, nil)),
		} {
			_ = wantKind(t, err, mcpclient.KindProtocol, method)
			if n := s.Count(method); n != 1 {
				t.Errorf("%s was sent %d times", method, n)
			}
		}
		stillWorks(t, c)
	})
}

func TestFault128WhatIsCancelledIsTheAttemptUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answered(features(mcptest.Modern), "ask", mcptest.Rounds(mcptest.Silence(), mcptest.Round{State: `"1"`}, mcptest.Round{State: `"2"`}))
		c := overPipe(t, s, mcpclient.Options{})
		connected(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = wantKind(t, errOf(c.CallTool(ctx, "ask", nil, nil)), mcpclient.KindTimeout, "")
		synctest.Wait()
		calls, cancels := s.Entries("tools/call"), s.Entries("notifications/cancelled")
		if len(calls) != 3 || len(cancels) != 1 || string(jsonMember(t, cancels[0].Params(), "requestId")) != calls[2].ID {
			t.Errorf("%v were sent, %v cancelled", calls, cancels)
		}
		stillWorks(t, c)
	})
	synctest.Test(t, func(t *testing.T) {
		s := answered(features(mcptest.Modern), "ask", mcptest.Rounds(mcptest.Silence(), mcptest.Round{State: `"1"`}))
		c := overHTTP(t, s, mcpclient.Options{})
		connected(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = wantKind(t, errOf(c.CallTool(ctx, "ask", nil, nil)), mcpclient.KindTimeout, "")
		synctest.Wait()
		calls, aborted := s.Entries("tools/call"), s.Entries(mcptest.MethodAborted)
		if len(calls) != 2 || len(aborted) != 1 || aborted[0].ID != calls[1].ID {
			t.Errorf("%v were sent, %v ended", calls, aborted)
		}
	})
}

func TestFault130ATaskIsPolledAsTheServerAsksAndEndsAsItSays(t *testing.T) {
	job := func(states ...mcptest.TaskState) *mcptest.Server {
		s := answered(features(mcptest.Modern), "job", mcptest.StartTask(states...))
		s.Tasks = true
		return s
	}
	done := mcptest.TaskState{Status: "completed", Result: `{"content":[{"type":"text","text":"done"}],"isError":false}`}
	t.Run("poll intervals", func(t *testing.T) {
		for poll, least := range map[string]time.Duration{"": time.Second, "0": 100 * time.Millisecond, "null": time.Second, "2500": 2500 * time.Millisecond, "-1": 100 * time.Millisecond} {
			either(t, func(t *testing.T, over overFunc) {
				s := job(mcptest.TaskState{PollMs: poll}, mcptest.TaskState{PollMs: poll}, mcptest.TaskState{PollMs: poll}, done)
				c := over(t, s, mcpclient.Options{})
				result, err := c.CallTool(t.Context(), "job", nil, nil)
				if err != nil || !strings.Contains(string(result.Raw), "done") {
					t.Fatalf("%q: %v %v", poll, result, err)
				}
				polls := s.Entries("tasks/get")
				for i, e := range polls[1:] {
					if wait := e.Time.Sub(polls[i].Time); wait < least || wait > least+least/5 {
						t.Errorf("pollIntervalMs %q: polled after %v", poll, wait)
					}
				}
			})
		}
	})
	t.Run("a changing interval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := job(mcptest.TaskState{PollMs: "1000"}, mcptest.TaskState{PollMs: "5000"}, mcptest.TaskState{PollMs: "200"}, done)
			c := overHTTP(t, s, mcpclient.Options{})
			if _, err := c.CallTool(t.Context(), "job", nil, nil); err != nil {
				t.Fatal(err)
			}
			var waits []time.Duration
			polls := s.Entries("tasks/get")
			for i, e := range polls[1:] {
				waits = append(waits, e.Time.Sub(polls[i].Time))
			}
			if !slices.Equal(waits, []time.Duration{5 * time.Second, 200 * time.Millisecond}) {
				t.Errorf("polled after %v", waits)
			}
		})
	})
	t.Run("failed is an error, isError a result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := job(mcptest.TaskState{}, mcptest.TaskState{Status: "failed", Error: `{"code":-32000,"message":"out of paper"}`})
			c := overHTTP(t, s, mcpclient.Options{})
			e := wantKind(t, errOf(c.CallTool(t.Context(), "job", nil, nil)), mcpclient.KindRPC, "out of paper")
			if e.RPC.Code != -32000 {
				t.Errorf("code %d", e.RPC.Code)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			s := job(mcptest.TaskState{}, mcptest.TaskState{Status: "completed", Result: `{"content":[],"isError":true}`})
			c := overHTTP(t, s, mcpclient.Options{})
			if result, err := c.CallTool(t.Context(), "job", nil, nil); err != nil || !result.IsError {
				t.Errorf("%+v %v", result, err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			s := job(mcptest.TaskState{}, mcptest.TaskState{Status: "cancelled"})
			c := overHTTP(t, s, mcpclient.Options{})
			if err := errOf(c.CallTool(t.Context(), "job", nil, nil)); !errors.Is(err, mcpclient.ErrTaskCancelled) {
				t.Error(err)
			}
		})
	})
	t.Run("an unknown id", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := overHTTP(t, job(done), mcpclient.Options{})
			e := wantKind(t, errOf(c.GetTask(t.Context(), "nobody's", nil)), mcpclient.KindRPC, "-32602")
			if e.Name != "nobody's" {
				t.Errorf("the error names %q", e.Name)
			}
			_ = wantKind(t, c.CancelTask(t.Context(), "nobody's", nil), mcpclient.KindRPC, "-32602")
		})
	})
	t.Run("questions are answered once, whatever their keys", func(t *testing.T) {
		either(t, func(t *testing.T, over overFunc) {
			ask := func(key string) mcptest.TaskState {
				return mcptest.TaskState{Status: "input_required", Requests: fmt.Sprintf(`{%q:{"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}}`, key)}
			}
			s := job(mcptest.TaskState{}, ask("k1"), ask("k1"), mcptest.TaskState{}, ask("k2"), done) // k1 is asked once more after its answer
			asked := 0
			c := over(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
				asked++
				return &mcpclient.ElicitResult{Action: "accept", Content: jsontext.Value(`{"a":"x"}`)}, nil
			}}, Tasks: mcpclient.TaskOptions{MaxStuckPolls: 5}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// the fake waits for an answer to the repeated k1 that never comes: the guard ends it
			err := errOf(c.CallTool(ctx, "job", nil, nil))
			if !errors.Is(err, mcpclient.ErrTaskStuck) || asked != 1 {
				t.Errorf("asked %d times: %v", asked, err)
			}
			synctest.Wait()
			updates := s.Entries("tasks/update")
			if len(updates) != 1 || s.Count("tasks/cancel") != 1 {
				t.Errorf("the server saw %v", s.Methods())
			}
		})
	})
	t.Run("Mcp-Name is the task's id", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := job(mcptest.TaskState{}, done) // its ids are not ASCII, and it compares
			c := overHTTP(t, s, mcpclient.Options{})
			if _, err := c.CallTool(t.Context(), "job", nil, nil); err != nil {
				t.Fatal(err)
			}
			if got := s.Entries("tasks/get")[0].Header.Get("Mcp-Name"); !strings.HasPrefix(got, "=?base64?") {
				t.Errorf("Mcp-Name is %q", got)
			}
		})
	})
	t.Run("a caller that goes away cancels the task by its own method", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := job(mcptest.TaskState{})
			c := overPipe(t, s, mcpclient.Options{})
			connected(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
			defer cancel()
			start := time.Now()
			_ = wantKind(t, errOf(c.CallTool(ctx, "job", nil, nil)), mcpclient.KindTimeout, "")
			took(t, start, 3500*time.Millisecond)
			synctest.Wait()
			if s.Count("tasks/cancel") != 1 || s.Count("notifications/cancelled") != 0 {
				t.Errorf("the server saw %v", s.Methods())
			}
		})
	})
}

package mcpclient_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// askingTwice is a tool that asks for a form two times, with work before each.
func askingTwice(ctx context.Context, r *mcptest.Request) (any, error) {
	var answers []string
	for range 2 {
		if _, err := mcptest.Delay(700*time.Millisecond, done())(ctx, r); err != nil {
			return nil, err
		}
		raw, err := r.Ask(ctx, "elicitation/create", mcptest.Raw(`{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`))
		if err != nil {
			return nil, err
		}
		answers = append(answers, string(raw))
	}
	return mcptest.Text(strings.Join(answers, " ")), nil
}

func elicit(takes time.Duration, asked *atomic.Int32) mcpclient.Options {
	o := quiet()
	o.Handlers.Elicit = func(ctx context.Context, _ *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
		asked.Add(1)
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return &mcpclient.ElicitResult{Action: "accept", Content: jsontext.Value(`{"name":"Ann"}`)}, nil
	}
	return o
}

func TestTheQuestionsOfALegacyTaskAreAnswered(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at once": 0, "slowly": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				var asked atomic.Int32
				s := laborious(askingTwice)
				o := elicit(takes, &asked)
				o.Tasks.MaxStuckPolls = 2
				c := connect(t, s, o)
				result, err := c.CallTool(t.Context(), "dig", nil, nil)
				if err != nil || strings.Count(string(result.Raw), "Ann") != 2 || asked.Load() != 2 || result.Task == "" {
					t.Fatalf("%+v %v; %d questions", result, err, asked.Load())
				}
				// tasks/result stays open from the first question to the end
				wantCounts(t, s, map[string]int{"tools/call": 1, "tasks/result": 1, "tasks/cancel": 0, mcptest.MethodResponse: 2})
				if n := s.Count("tasks/get"); n > 12 {
					t.Errorf("%d polls, although the task waits for us", n)
				}
				for _, e := range s.Entries(mcptest.MethodResponse) {
					if !strings.Contains(string(e.Raw), `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"täsk/1"}}`) {
						t.Errorf("the answer does not name its task: %s", e.Raw)
					}
				}
			})
		})
	}
}

func TestAQuestionOfALegacyTaskThatNobodyAnswersIsRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := laborious(func(ctx context.Context, r *mcptest.Request) (any, error) {
			_, err := r.Ask(ctx, "roots/list", nil)
			if e, ok := errors.AsType[*mcptest.Error](err); ok {
				return mcptest.Text(e.Error()), nil
			}
			return nil, err
		})
		c := connect(t, s, quiet())
		result, err := c.CallTool(t.Context(), "dig", nil, nil)
		if err != nil || !strings.Contains(string(result.Raw), "-32601") {
			t.Errorf("%+v %v", result, err)
		}
	})
}

// inputRequired answers tasks/get by a task that waits for input for ever.
func inputRequired() mcptest.Handler {
	return mcptest.Respond(mcptest.Raw(`{"taskId":"täsk/1","status":"input_required","createdAt":"2025-01-01T00:00:00Z","lastUpdatedAt":"2025-01-01T00:00:00Z","ttl":null,"pollInterval":500}`))
}

func TestALegacyTaskThatWaitsWithoutAskingIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		stuck   int
		result  mcptest.Handler
		polls   int
		results int
	}{
		"silence":            {stuck: 3, polls: 4, results: 1},
		"one":                {stuck: 1, polls: 2, results: 1},
		"the default":        {polls: 61, results: 1},
		"no questions to be": {stuck: 3, result: mcptest.Fail(-32602, "not yet", nil, 0), polls: 4, results: 3},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := laborious(mcptest.Silence())
				s.Handle = map[string]mcptest.Handler{"tasks/get": inputRequired()}
				if tc.result != nil {
					s.Handle["tasks/result"] = tc.result
				}
				o := quiet()
				o.Tasks.MaxStuckPolls = tc.stuck
				c := connect(t, s, o)
				_, err := c.CallTool(t.Context(), "dig", nil, nil)
				if _ = wantKind(t, err, mcpclient.KindProtocol, "polls in a row"); !errors.Is(err, mcpclient.ErrTaskStuck) {
					t.Error(err)
				}
				synctest.Wait()
				wantCounts(t, s, map[string]int{"tasks/get": tc.polls, "tasks/result": tc.results, "tasks/cancel": 1, "notifications/cancelled": 0})
			})
		})
	}
}

func TestAResultThatArrivesDuringAPollIsNotHeldUpByIt(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := laborious(mcptest.Delay(1200*time.Millisecond, done()))
		s.Handle = map[string]mcptest.Handler{"tasks/get": mcptest.Sequence(inputRequired(), inputRequired(), mcptest.Silence())}
		c := connect(t, s, quiet())
		start := time.Now()
		result, err := c.CallTool(t.Context(), "dig", nil, nil)
		if took := time.Since(start); err != nil || took != 1200*time.Millisecond || !strings.Contains(string(result.Raw), "done") {
			t.Errorf("%+v %v after %v", result, err, took)
		}
		wantCounts(t, s, map[string]int{"tasks/get": 3, "tasks/result": 1, "tasks/cancel": 0})
	})
}

func TestACallerThatLeavesALegacyTaskCancelsItOnce(t *testing.T) {
	const tick = 500 * time.Millisecond // of the polls
	for name, tc := range map[string]struct {
		dig      mcptest.Handler
		handle   map[string]mcptest.Handler
		noCancel bool
		options  mcpclient.Options
		leave    time.Duration // 0 = not at all
		deadline time.Duration
		kind     mcpclient.Kind
		text     string
		after    time.Duration
		cancel   int
	}{
		"between polls":         {leave: 3*tick + tick/2, kind: mcpclient.KindCanceled, text: "went away", after: 3*tick + tick/2, cancel: 1},
		"a deadline":            {deadline: 3*tick + tick/2, kind: mcpclient.KindTimeout, text: "caller's deadline", after: 3*tick + tick/2, cancel: 1},
		"the whole call's time": {options: mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 4*tick - 1}}, kind: mcpclient.KindTimeout, text: "timeouts.max", after: 4*tick - 1, cancel: 1},
		"during a poll":         {handle: map[string]mcptest.Handler{"tasks/get": mcptest.Silence()}, leave: tick, kind: mcpclient.KindCanceled, text: "went away", after: tick, cancel: 1},
		"during a question":     {dig: askingTwice, options: elicit(time.Hour, &atomic.Int32{}), leave: time.Minute, kind: mcpclient.KindCanceled, text: "went away", after: time.Minute, cancel: 1},
		"an open tasks/result":  {handle: map[string]mcptest.Handler{"tasks/get": inputRequired()}, leave: 3*tick + tick/2, kind: mcpclient.KindCanceled, text: "went away", after: 3*tick + tick/2, cancel: 1},
		"while it is created":   {handle: map[string]mcptest.Handler{"tools/call": mcptest.Delay(2*time.Second, nil)}, leave: time.Second, kind: mcpclient.KindCanceled, text: "no answer", after: time.Second, cancel: 1},
		"before it is created":  {handle: map[string]mcptest.Handler{"tools/call": mcptest.Silence()}, deadline: time.Second, kind: mcpclient.KindTimeout, text: "no answer", after: time.Second},
		"the tool's own time":   {handle: map[string]mcptest.Handler{"tools/call": mcptest.Silence()}, options: mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 4 * time.Second}}, kind: mcpclient.KindTimeout, text: "timeouts.tool", after: 4 * time.Second},
		"no way to cancel":      {noCancel: true, leave: 3*tick + tick/2, kind: mcpclient.KindCanceled, text: "went away", after: 3*tick + tick/2},
		"nor one created late":  {noCancel: true, handle: map[string]mcptest.Handler{"tools/call": mcptest.Delay(2*time.Second, nil)}, leave: time.Second, kind: mcpclient.KindCanceled, text: "no answer", after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				dig := tc.dig
				if dig == nil {
					dig = mcptest.Silence()
				}
				s := laborious(dig)
				s.Handle, s.LegacyTasks.NoCancel = tc.handle, tc.noCancel
				o := tc.options
				o.Health.Disabled = true
				c := connect(t, s, o)
				if _, err := c.ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, cancel)
				}
				if tc.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				start := time.Now()
				_, err := c.CallTool(ctx, "dig", nil, nil)
				if e := wantKind(t, err, tc.kind, tc.text); e.Method != "tools/call" || e.Name != "dig" || e.SafeToRetry || !e.Sent {
					t.Errorf("%+v", e)
				}
				if took := time.Since(start); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
				time.Sleep(time.Minute) // fake time: whatever goes out late has gone out
				synctest.Wait()
				wantCounts(t, s, map[string]int{"tools/call": 1, "tasks/cancel": tc.cancel, "notifications/cancelled": 0})
			})
		})
	}
}

func TestNoProgressReachesACallerThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := laborious(mcptest.Silence())
		s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Delay(2*time.Second, func(ctx context.Context, r *mcptest.Request) (any, error) {
			r.Progress(1, 2, "late")
			return r.Default(ctx)
		})}
		c := overPipe(t, s, quiet())
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var told atomic.Int32
		_ = wantKind(t, errOf(c.CallTool(ctx, "dig", nil, &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) { told.Add(1) }})), mcpclient.KindTimeout, "")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if told.Load() != 0 || s.Count("tasks/cancel") != 1 {
			t.Errorf("%d reports, %v", told.Load(), wire(s))
		}
	})
}

func TestALegacyTaskSurvivesItsConnection(t *testing.T) {
	for name, handle := range map[string]map[string]mcptest.Handler{
		"lost in a poll":             {"tasks/get": mcptest.Sequence(nil, mcptest.Hangup(), nil)},
		"lost in two polls":          {"tasks/get": mcptest.Sequence(nil, mcptest.Hangup(), mcptest.Hangup(), nil)},
		"lost when the result is in": {"tasks/result": mcptest.Sequence(mcptest.Hangup(), nil)},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := laborious(mcptest.Delay(2200*time.Millisecond, done()))
				s.Handle = handle
				o := quiet()
				o.Reconnect.Interval = 100 * time.Millisecond
				c := connect(t, s, o)
				result, err := c.CallTool(t.Context(), "dig", nil, nil)
				if err != nil || !strings.Contains(string(result.Raw), "done") {
					t.Fatalf("%+v %v", result, err)
				}
				wantCounts(t, s, map[string]int{"tools/call": 1, "tasks/cancel": 0})
			})
		})
	}
}

func TestAQuestionOfALegacyTaskIsAskedAgainOverANewConnection(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		var asked atomic.Int32
		s := laborious(askingTwice)
		s.Handle = map[string]mcptest.Handler{"tasks/result": mcptest.Sequence(mcptest.Hangup(), nil)}
		o := elicit(0, &asked)
		o.Reconnect.Interval = 100 * time.Millisecond
		c := connect(t, s, o)
		result, err := c.CallTool(t.Context(), "dig", nil, nil)
		if err != nil || strings.Count(string(result.Raw), "Ann") != 2 || asked.Load() != 2 {
			t.Fatalf("%+v %v; %d questions", result, err, asked.Load())
		}
		wantCounts(t, s, map[string]int{"tools/call": 1, "tasks/result": 2})
	})
}

func TestALostLegacyTaskNeverLooksAsIfTheToolHadNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := laborious(mcptest.Silence())
		c := overHTTP(t, s, quiet())
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(1200*time.Millisecond, func() { s.SetDown(true) })
		e := wantKind(t, errOf(c.CallTool(t.Context(), "dig", nil, nil)), mcpclient.KindLost, "")
		if e.SafeToRetry || !e.Sent {
			t.Errorf("%+v", e)
		}
	})
}

func TestALegacyTaskIsCreatedOnceWhateverBecomesOfTheRequest(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := laborious(done())
		s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Hangup()}
		c := connect(t, s, quiet())
		e := wantKind(t, errOf(c.CallTool(t.Context(), "dig", nil, nil)), mcpclient.KindLost, "")
		if e.SafeToRetry || !e.Sent || s.Count("tools/call") != 1 {
			t.Errorf("%+v, %v", e, wire(s))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a forgotten session has surely not run it
		s := laborious(done())
		c := overHTTP(t, s, quiet())
		if _, err := c.CallTool(t.Context(), "dig", nil, nil); err != nil {
			t.Fatal(err)
		}
		s.ExpireSessions()
		if _, err := c.CallTool(t.Context(), "dig", nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Entries("tools/call") {
			if param(t, e, "task") != "{}" {
				t.Errorf("not a task: %s", e.Raw)
			}
		}
	})
}

func TestClosingTheClientEndsALegacyTasksWait(t *testing.T) {
	for name, handle := range map[string]map[string]mcptest.Handler{
		"polling": nil, "creating": {"tools/call": mcptest.Silence()}, "waiting for questions": {"tasks/get": inputRequired()},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := laborious(mcptest.Silence())
				s.Handle = handle
				c := connect(t, s, quiet())
				time.AfterFunc(1200*time.Millisecond, func() { _ = c.Close(t.Context()) })
				if e := wantKind(t, errOf(c.CallTool(t.Context(), "dig", nil, nil)), mcpclient.KindClosed, ""); e.SafeToRetry || !e.Sent {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

func TestTheCallerMayAnswerTheQuestionsOfALegacyTask(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		var asked, handled atomic.Int32
		s := laborious(askingTwice)
		o := elicit(0, &handled)
		o.Timeouts = mcpclient.Timeouts{Tool: 5 * time.Second, Max: 10 * time.Second} // they stand still
		c := connect(t, s, o)
		options := &mcpclient.CallOptions{Answer: func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
			asked.Add(1)
			time.Sleep(time.Hour) // fake time: a person thinks
			return jsontext.Value(`{"action":"accept","content":{"name":"Ann"}}`), nil
		}}
		result, err := c.CallTool(t.Context(), "dig", nil, options)
		if err != nil || strings.Count(string(result.Raw), "Ann") != 2 || asked.Load() != 2 || handled.Load() != 0 {
			t.Fatalf("%+v %v; %d questions, %d for the handlers", result, err, asked.Load(), handled.Load())
		}
		wantCounts(t, s, map[string]int{"tools/call": 1, "tasks/result": 1, "tasks/cancel": 0, mcptest.MethodResponse: 2})
	})
}

package mcpclient_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// after answers when d has passed, or fails when its context ends before.
func after(d time.Duration) answerFunc {
	return func(ctx context.Context, _ string, _ jsontext.Value) (jsontext.Value, error) {
		select {
		case <-time.After(d):
			return jsontext.Value(`{"action":"decline","roots":[]}`), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// timed is a legacy server whose tool "steps" does one thing after the other.
func timed(steps ...func(ctx context.Context, r *mcptest.Request)) *mcptest.Server {
	s := features(mcptest.Legacy)
	s.Tools = append(s.Tools, mcptest.Tool{Name: "steps", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
		for _, step := range steps {
			if step(ctx, r); ctx.Err() != nil {
				return nil, mcptest.ErrSilent
			}
		}
		return mcptest.Text("done"), nil
	}})
	return s
}

func sleeps(d time.Duration) func(context.Context, *mcptest.Request) {
	return func(ctx context.Context, _ *mcptest.Request) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

func questions(raw ...string) func(context.Context, *mcptest.Request) {
	return func(ctx context.Context, r *mcptest.Request) {
		answers := make(chan string)
		for _, question := range raw {
			go func() { answers <- askOn(ctx, r, question) }()
		}
		for range raw {
			<-answers
		}
	}
}

func progress(p float64) func(context.Context, *mcptest.Request) {
	return func(_ context.Context, r *mcptest.Request) { r.Progress(p, 100, "") }
}

func TestTheTimeOfALegacyCallStandsStillWhileItsCallerAnswers(t *testing.T) {
	ten := mcpclient.Timeouts{Tool: 10 * time.Second}
	type steps = []func(context.Context, *mcptest.Request)
	stuck := sleeps(24 * time.Hour)
	for name, tc := range map[string]struct {
		timeouts mcpclient.Timeouts
		steps    steps
		answer   answerFunc
		took     time.Duration
		setting  string // that ends it; "" = it is done
	}{
		"it goes on with what was left": {ten, steps{sleeps(4 * time.Second), questions(askForm), stuck}, after(time.Hour), time.Hour + 10*time.Second, "timeouts.tool"},
		"in time":                       {ten, steps{sleeps(4 * time.Second), questions(askForm), sleeps(5 * time.Second)}, after(time.Hour), time.Hour + 9*time.Second, ""},
		"several questions":             {ten, steps{questions(askForm), sleeps(4 * time.Second), questions(askForm), sleeps(4 * time.Second), questions(askForm), stuck}, after(time.Hour), 3*time.Hour + 10*time.Second, "timeouts.tool"},
		"questions at once": {ten, steps{questions(askForm, askRoots, askForm), stuck}, func(ctx context.Context, method string, p jsontext.Value) (jsontext.Value, error) {
			if method == "roots/list" {
				return after(2*time.Hour)(ctx, method, p)
			}
			return after(time.Minute)(ctx, method, p)
		}, 2*time.Hour + 10*time.Second, "timeouts.tool"},
		"the time of one tool":             {mcpclient.Timeouts{Tool: time.Second, Tools: map[string]time.Duration{"steps": 10 * time.Second}}, steps{questions(askForm), stuck}, after(time.Hour), time.Hour + 10*time.Second, "timeouts.tools.steps"},
		"the whole call":                   {mcpclient.Timeouts{Tool: time.Minute, Max: 10 * time.Second}, steps{sleeps(4 * time.Second), questions(askForm), stuck}, after(time.Hour), time.Hour + 10*time.Second, "timeouts.max"},
		"progress restarts it":             {mcpclient.Timeouts{Tool: 10 * time.Second, ProgressExtends: true}, steps{questions(askForm), sleeps(8 * time.Second), progress(1), stuck}, after(time.Hour), time.Hour + 18*time.Second, "timeouts.tool"},
		"progress restarts it meanwhile":   {mcpclient.Timeouts{Tool: 10 * time.Second, ProgressExtends: true}, steps{sleeps(8 * time.Second), func(ctx context.Context, r *mcptest.Request) { progress(1)(ctx, r); questions(askForm)(ctx, r) }, stuck}, after(time.Hour), time.Hour + 18*time.Second, "timeouts.tool"},
		"progress does not wake it up":     {mcpclient.Timeouts{Tool: 10 * time.Second, ProgressExtends: true}, steps{withProgress(askForm), stuck}, after(time.Hour), time.Hour + 10*time.Second, "timeouts.tool"},
		"no time at all is none afterward": {mcpclient.Timeouts{Tool: mcpclient.NoTimeout}, steps{questions(askForm), sleeps(time.Hour)}, after(time.Hour), 2 * time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := timed(tc.steps...)
				c := connect(t, s, mcpclient.Options{Timeouts: tc.timeouts})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				o := answeredBy(tc.answer)
				o.Progress = func(context.Context, mcpclient.Progress) {}
				start := time.Now()
				_, err := c.CallTool(t.Context(), "steps", nil, o)
				if took := time.Since(start); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if tc.setting == "" && err != nil {
					t.Error(err)
				} else if tc.setting != "" {
					_ = wantKind(t, err, mcpclient.KindTimeout, "(setting "+tc.setting+")")
				}
			})
		})
	}
}

// withProgress reports progress while its question is open.
func withProgress(question string) func(context.Context, *mcptest.Request) {
	return func(ctx context.Context, r *mcptest.Request) {
		go func() {
			for i := range 10 {
				sleeps(time.Minute)(ctx, r)
				r.Progress(float64(i), 10, "")
			}
		}()
		questions(question)(ctx, r)
	}
}

func TestADeadlineOfTheCallerHoldsWhileItAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s, told := keeping(askForm)
		c := connect(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{ToolResult: "too slow"}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(ctx, "ask", nil, answeredBy(after(time.Hour)))), mcpclient.KindTimeout, "caller's deadline")
		if took := time.Since(start); took != 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		wantRefused(t, askForm, <-told)
		synctest.Wait()
		if n := s.Count("notifications/cancelled"); n != 1 {
			t.Errorf("%d cancellations", n)
		}
	})
}

func TestAWithdrawnQuestionLetsTheTimeGoOn(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := timed(func(_ context.Context, r *mcptest.Request) {
			r.Send(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`)
		}, sleeps(time.Hour), func(_ context.Context, r *mcptest.Request) {
			r.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}`)
		}, sleeps(time.Hour))
		c := connect(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 10 * time.Second}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "steps", nil, answeredBy(func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
			<-release // it does not heed its context
			return nil, errors.New("late")
		}))), mcpclient.KindTimeout, "timeouts.tool")
		if took := time.Since(start); took != time.Hour+10*time.Second {
			t.Errorf("it took %v", took)
		}
		close(release)
	})
}

func TestAServerThatWaitsForAnAnswerIsNotTakenForDead(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := timed(questions(askForm), sleeps(5*time.Second))
		s.Handle = map[string]mcptest.Handler{"ping": mcptest.Silence()} // it does one thing at a time
		c := connect(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "steps", nil, answeredBy(after(8*time.Hour))); err != nil {
			t.Errorf("the call was cut off: %v", err)
		}
		if st := c.Status(); st.Connects != 1 || st.State != mcpclient.StateSuspect {
			t.Errorf("%+v", st)
		}
		time.Sleep(2 * time.Minute) // nothing is under way any more
		synctest.Wait()
		if st := c.Status(); st.Connects < 2 {
			t.Errorf("a dead server was not replaced: %+v", st)
		}
	})
}

func TestAServerThatDiedWhileItWaitedIsReplacedWhenTheCallIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := timed(questions(askForm), sleeps(24*time.Hour))
		s.Handle = map[string]mcptest.Handler{"ping": mcptest.Silence()}
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: time.Minute}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "steps", nil, answeredBy(after(time.Hour)))), mcpclient.KindTimeout, "timeouts.tool")
		if took := time.Since(start); took != time.Hour+time.Minute {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := c.Status(); st.Connects < 2 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAQuestionDoesNotKeepAConnectionThatFailsItsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := keeping(askForm)
		s.Status = func(method string, _ int) *mcptest.Reply {
			if method == "ping" {
				return &mcptest.Reply{Status: http.StatusBadGateway}
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- errOf(c.CallTool(t.Context(), "ask", nil, answeredBy(after(10*time.Minute)))) }()
		time.Sleep(2 * time.Minute)
		if st := c.Status(); st.Connects < 2 {
			t.Errorf("it was not replaced: %+v", st)
		}
		select {
		case err := <-over:
			t.Errorf("the call was cut off: %v", err)
		default:
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

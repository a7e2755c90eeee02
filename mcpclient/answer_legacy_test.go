package mcpclient_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// keeping is a legacy server whose tool "ask" asks one question and keeps what
// it is told, also after the tool was cancelled.
func keeping(question string) (s *mcptest.Server, answers <-chan string) {
	got := make(chan string, 10)
	s = features(mcptest.Legacy)
	s.Tools = append(s.Tools, mcptest.Tool{Name: "ask", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
		answer := askOn(context.WithoutCancel(ctx), r, question)
		got <- answer
		return mcptest.Text(answer), nil
	}})
	return s, got
}

// askOn asks a question on the stream of a request and returns the answer, or
// the error as text.
func askOn(ctx context.Context, r *mcptest.Request, question string) string {
	var q struct {
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	if err := json.Unmarshal([]byte(question), &q); err != nil {
		return err.Error()
	}
	var params any
	if q.Params != nil {
		params = mcptest.Raw(q.Params)
	}
	answer, err := r.Ask(ctx, q.Method, params)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

// wantRefused checks what a server is told of a question that nobody answered.
func wantRefused(t *testing.T, question, got string) {
	t.Helper()
	want := "-32601: "
	switch {
	case strings.Contains(question, "elicitation/create"):
		want = `{"action":"cancel"}`
	case strings.Contains(question, "sampling/createMessage"):
		want = "-1: "
	}
	if !strings.HasPrefix(got, want) {
		t.Errorf("the server was told %s, want %s", got, want)
	}
}

func textOf(t *testing.T, r *mcpclient.Result) string {
	t.Helper()
	decoded, err := r.ToolResult()
	if err != nil || len(decoded.Content) != 1 {
		t.Fatalf("%s: %v", r.Raw, err)
	}
	return decoded.Content[0].Text
}

func TestACallerAnswersWhatALegacyServerAsksMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct{ question, answer, want string }{
		"form":              {askForm, `{"action":"accept","content":{"name":"x"},"_meta":{"k":1}}`, `{"action":"accept","content":{"name":"x"},"_meta":{"k":1}}`},
		"declined":          {askForm, `{"action":"decline","content":{"name":"x"}}`, `{"action":"decline"}`},
		"accepted, no form": {askForm, `{"action":"accept","content":null}`, `{"action":"accept"}`},
		"url":               {askURL, `{"action":"accept","content":{}}`, `{"action":"accept"}`},
		"sampling":          {askModel, oneSample, oneSample},
		"roots":             {askRoots, oneRoot, oneRoot},
		"no roots":          {askRoots, `{"roots":[]}`, `{"roots":[]}`},
		"refused":           {askForm, "", "-32000: not now"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				c := connect(t, asking(), mcpclient.Options{Handlers: unused(t)})
				r, err := c.CallTool(t.Context(), "ask", jsontext.Value(tc.question), answeredBy(func(_ context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
					if !strings.Contains(tc.question, method) || params != nil && !strings.Contains(tc.question, string(params)) {
						t.Errorf("asked %s %s", method, params)
					}
					if tc.answer == "" {
						return nil, &jsonrpc.Error{Code: -32000, Message: "not now"}
					}
					return jsontext.Value(tc.answer), nil
				}))
				if err != nil {
					t.Fatal(err)
				}
				if got := textOf(t, r); got != tc.want {
					t.Errorf("the server was told %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestAnythingElseThatALegacyServerAsksIsForTheHandlers(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		c := connect(t, asking(), mcpclient.Options{Handlers: mcpclient.Handlers{Request: map[string]func(context.Context, jsontext.Value) (jsontext.Value, error){
			"x/own": func(context.Context, jsontext.Value) (jsontext.Value, error) { return jsontext.Value(`{"own":1}`), nil },
		}}})
		never := answeredBy(func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
			t.Errorf("asked %s", method)
			return nil, nil
		})
		for question, want := range map[string]string{`{"method":"x/own"}`: `{"own":1}`, `{"method":"ping"}`: `{}`, `{"method":"x/else"}`: "-32601: "} {
			r, err := c.CallTool(t.Context(), "ask", jsontext.Value(question), never)
			if err != nil {
				t.Fatal(err)
			}
			if got := textOf(t, r); !strings.HasPrefix(got, want) {
				t.Errorf("%s: the server was told %s", question, got)
			}
		}
		// after the call the usual refusals hold again
		r, err := c.CallTool(t.Context(), "ask", jsontext.Value(askForm), nil)
		if err != nil || !strings.HasPrefix(textOf(t, r), "-32602: ") {
			t.Errorf("%+v %v", r, err)
		}
	})
}

func TestALegacyServerMayAskMuchAndAtOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Legacy)
		s.Tools = append(s.Tools, mcptest.Tool{Name: "many", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
			for range 10 {
				if got := askOn(ctx, r, askForm); got != `{"action":"decline"}` {
					return nil, errors.New(got)
				}
			}
			answers := make(chan string)
			for range 5 {
				go func() { answers <- askOn(ctx, r, askRoots) }()
			}
			var all strings.Builder
			for range 5 {
				all.WriteString(<-answers)
			}
			return mcptest.Text(all.String()), nil
		}})
		c := connect(t, s, mcpclient.Options{})
		together := make(chan struct{})
		var forms, roots atomic.Int32
		r, err := c.CallTool(t.Context(), "many", nil, answeredBy(func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
			if method == "elicitation/create" {
				forms.Add(1)
				return jsontext.Value(`{"action":"decline"}`), nil
			}
			if roots.Add(1) == 5 {
				close(together)
			}
			<-together
			return jsontext.Value(oneRoot), nil
		}))
		if err != nil || forms.Load() != 10 || textOf(t, r) != strings.Repeat(oneRoot, 5) {
			t.Errorf("%d forms, %+v %v", forms.Load(), r, err)
		}
	})
}

func TestAWithdrawnQuestionEndsTheAnswerAloneAndIsNotAnswered(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Legacy)
		finish := make(chan struct{})
		s.Tools = append(s.Tools, mcptest.Tool{Name: "withdraws", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
			r.Send(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`)
			<-finish
			return mcptest.Text("done"), nil
		}})
		c := connect(t, s, mcpclient.Options{})
		asked, ended := make(chan string, 1), make(chan string, 1)
		over := make(chan error, 1)
		go func() {
			over <- errOf(c.CallTool(t.Context(), "withdraws", nil, answeredBy(untilDone(asked, ended))))
		}()
		<-asked
		s.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}`)
		<-ended
		synctest.Wait()
		if n := s.Count(mcptest.MethodResponse); n != 0 {
			t.Errorf("%d answers", n)
		}
		close(finish)
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func TestQuestionsThatOutliveTheirCallAreRefused(t *testing.T) {
	for _, question := range []string{askForm, askURL, askModel, askRoots} {
		overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(mcptest.Legacy)
			told, finish := make(chan string, 1), make(chan struct{})
			s.Tools = append(s.Tools, mcptest.Tool{Name: "hasty", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
				go func() { told <- askOn(context.WithoutCancel(ctx), r, question) }()
				<-finish
				return mcptest.Text("done"), nil
			}})
			c := connect(t, s, mcpclient.Options{})
			asked, release := make(chan struct{}), make(chan struct{})
			over := make(chan error, 1)
			go func() {
				over <- errOf(c.CallTool(t.Context(), "hasty", nil, answeredBy(func(ctx context.Context, _ string, _ jsontext.Value) (jsontext.Value, error) {
					close(asked)
					<-release // it does not heed its context, and holds nobody up
					if ctx.Err() == nil {
						t.Error("the context did not end with the call")
					}
					return jsontext.Value(`{"action":"accept","roots":[]}`), nil
				})))
			}()
			<-asked
			close(finish)
			if err := <-over; err != nil {
				t.Error(err)
			}
			wantRefused(t, question, <-told)
			close(release)
			synctest.Wait()
			if n := s.Count(mcptest.MethodResponse); n != 1 {
				t.Errorf("%d answers", n)
			}
		})
	}
}

func TestACallerThatLeavesALegacyQuestionCancelsOnceAndLeavesNothingOpen(t *testing.T) {
	for _, ignoring := range []bool{false, true} {
		overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s, told := keeping(askModel)
			c := connect(t, s, mcpclient.Options{})
			asked, release := make(chan struct{}), make(chan struct{})
			ctx, leave := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() {
				over <- errOf(c.CallTool(ctx, "ask", nil, answeredBy(func(ctx context.Context, _ string, _ jsontext.Value) (jsontext.Value, error) {
					close(asked)
					if ignoring {
						<-release
					} else {
						<-ctx.Done()
					}
					return nil, ctx.Err()
				})))
			}()
			<-asked
			leave()
			_ = wantKind(t, <-over, mcpclient.KindCanceled, "caller went away")
			wantRefused(t, askModel, <-told)
			close(release)
			synctest.Wait()
			if s.Count("notifications/cancelled") != 1 || s.Count(mcptest.MethodResponse) != 1 {
				t.Errorf("%v", wire(s))
			}
			if _, err := c.CallTool(t.Context(), "echo", nil, answeredBy(byMethod(nil))); err != nil {
				t.Errorf("the connection was not given back: %v", err)
			}
		})
	}
}

func TestALegacyConnectionHasOneCallerThatAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		c := connect(t, asking(), mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///own"}}})
		asked, finish := make(chan struct{}), make(chan struct{})
		over := make(chan error, 1)
		go func() {
			over <- errOf(c.CallTool(t.Context(), "ask", jsontext.Value(askForm), answeredBy(func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
				close(asked)
				<-finish
				return jsontext.Value(`{"action":"decline"}`), nil
			})))
		}()
		<-asked
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, answeredBy(byMethod(nil)))), mcpclient.KindInvalid, "another call")
		if !e.SafeToRetry || e.Sent || e.Name != "echo" {
			t.Errorf("%+v", e)
		}
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Errorf("calls that answer nothing are not in the way: %v", err)
		}
		close(finish)
		if err := <-over; err != nil {
			t.Error(err)
		}
		if _, err := c.CallTool(t.Context(), "ask", jsontext.Value(askRoots), answeredBy(byMethod(map[string]string{"roots/list": oneRoot}))); err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // modern questions say whose they are
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"tools/call": func(_ context.Context, r *mcptest.Request) (any, error) {
			if r.Param("inputResponses") == nil {
				return mcptest.Raw(`{"resultType":"input_required","inputRequests":{"k":` + askForm + `}}`), nil
			}
			return mcptest.Text("done"), nil
		}}
		c := overHTTP(t, s, mcpclient.Options{})
		together := make(chan struct{})
		var running atomic.Int32
		over := make(chan error)
		for range 3 {
			go func() {
				over <- errOf(c.CallTool(t.Context(), "echo", nil, answeredBy(func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
					if running.Add(1) == 3 {
						close(together)
					}
					<-together
					return jsontext.Value(`{"action":"decline"}`), nil
				})))
			}()
		}
		for range 3 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAQuestionOnTheStreamOfAnotherCallIsThatCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, asking(), mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///own"}}})
		ctx, leave := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() {
			over <- errOf(c.CallTool(ctx, "stuck", nil, answeredBy(func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
				t.Errorf("asked %s", method)
				return nil, nil
			})))
		}()
		synctest.Wait()
		r, err := c.CallTool(t.Context(), "ask", jsontext.Value(askRoots), nil)
		if err != nil || textOf(t, r) != `{"roots":[{"uri":"file:///own"}]}` {
			t.Errorf("%+v %v", r, err)
		}
		leave()
		if err := <-over; kindOf(err) != mcpclient.KindCanceled {
			t.Errorf("the call whose caller left: %v", err)
		}
	})
}

func TestAQuestionBesideTheResultIsAnsweredOnlyIfItCameBefore(t *testing.T) {
	const question = `{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Tools = append(s.Tools, mcptest.Tool{Name: "before", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
				r.Send(question)
				return mcptest.Text("done"), nil
			}}, mcptest.Tool{Name: "after", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
				r.After(question)
				return mcptest.Text("done"), nil
			}})
			c := overPipe(t, s, mcpclient.Options{})
			for i, name := range []string{"after", "before"} {
				_, err := c.CallTool(t.Context(), name, nil, answeredBy(func(ctx context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
					if name == "after" {
						t.Errorf("asked %s", method)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}))
				if err != nil {
					t.Error(err)
				}
				synctest.Wait()
				got := s.Entries(mcptest.MethodResponse)
				if len(got) != i+1 {
					t.Fatalf("%s: %d answers", name, len(got))
				}
				// behind the end of the call it is nobody's: nothing was declared
				if raw := string(got[i].Raw); !strings.Contains(raw, `"action":"cancel"`) && !(name == "after" && strings.Contains(raw, "-32602")) {
					t.Errorf("%s: the server was told %s", name, raw)
				}
			}
			s.ForgiveViolations() // it asked behind the log's back
		})
	}
}

func TestAQuestionPastTheCapReachesNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		held := make(chan struct{})
		s.Tools = append(s.Tools, mcptest.Tool{Name: "two", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
			first := make(chan string)
			go func() { first <- askOn(ctx, r, askRoots) }()
			<-held
			second := askOn(ctx, r, askModel)
			held <- struct{}{}
			return mcptest.Text(<-first + second), nil
		}})
		c := overHTTP(t, s, mcpclient.Options{Dispatch: mcpclient.DispatchOptions{MaxInFlight: 1}})
		r, err := c.CallTool(t.Context(), "two", nil, answeredBy(func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
			if method != "roots/list" {
				t.Errorf("asked %s", method)
			}
			held <- struct{}{}
			<-held
			return jsontext.Value(oneRoot), nil
		}))
		if err != nil || textOf(t, r) != oneRoot+"-32000: Client overloaded" {
			t.Errorf("%+v %v", r, err)
		}
	})
}

func TestALostConnectionEndsTheAnswer(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s, _ := keeping(askForm)
		c := connect(t, s, mcpclient.Options{})
		asked, ended := make(chan string, 1), make(chan string, 1)
		over := make(chan error, 1)
		go func() {
			over <- errOf(c.CallTool(t.Context(), "ask", nil, answeredBy(untilDone(asked, ended))))
		}()
		<-asked
		s.Disconnect()
		_ = wantKind(t, <-over, mcpclient.KindLost, "")
		<-ended
		if r, err := c.CallTool(t.Context(), "echo", nil, answeredBy(byMethod(nil))); err != nil {
			t.Errorf("%+v %v", r, err)
		}
		s.ForgiveViolations() // the refusal reached a server that had forgotten its question
	})
}

func TestACallerAnswersOnTheConnectionThatReplacedAForgottenOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := asking()
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.ExpireSessions()
		type key struct{}
		r, err := c.CallTool(context.WithValue(t.Context(), key{}, "v"), "ask", jsontext.Value(askRoots), answeredBy(func(ctx context.Context, _ string, _ jsontext.Value) (jsontext.Value, error) {
			if ctx.Value(key{}) != "v" {
				t.Error("the context lost the caller's values")
			}
			return jsontext.Value(oneRoot), nil
		}))
		if err != nil || textOf(t, r) != oneRoot || c.Status().Connects != 2 {
			t.Errorf("%+v %v", r, err)
		}
	})
}

func TestClosingTheClientEndsTheAnswer(t *testing.T) {
	for _, s := range []*mcptest.Server{asking(), tool(asks(`{"k":`+askForm+`}`, ""))} {
		synctest.Test(t, func(t *testing.T) {
			c := overHTTP(t, s, mcpclient.Options{})
			asked, ended := make(chan string, 1), make(chan string, 1)
			over := make(chan error, 1)
			go func() {
				over <- errOf(c.CallTool(t.Context(), "ask", jsontext.Value(askForm), answeredBy(untilDone(asked, ended))))
			}()
			<-asked
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-over; kindOf(err) != mcpclient.KindClosed {
				t.Error(err)
			}
			<-ended
		})
	}
}

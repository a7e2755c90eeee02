package mcpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

type answerFunc = func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)

// answered are the options of a call whose caller answers.
func answeredBy(f answerFunc) *mcpclient.CallOptions { return &mcpclient.CallOptions{Answer: f} }

// byMethod answers each method with one result, and refuses others.
func byMethod(results map[string]string) answerFunc {
	return func(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
		if r, ok := results[method]; ok {
			return jsontext.Value(r), nil
		}
		return nil, &jsonrpc.Error{Code: -32601, Message: "not asked for"}
	}
}

// untilDone answers nothing; it reports when it is asked and when its context
// ends.
func untilDone(asked, ended chan<- string) answerFunc {
	return func(ctx context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
		asked <- method
		<-ctx.Done()
		ended <- method
		return nil, ctx.Err()
	}
}

// unused are handlers that must not be asked.
func unused(t *testing.T) mcpclient.Handlers {
	fail := func() { t.Error("a handler was asked") }
	return mcpclient.Handlers{
		Elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
			fail()
			return nil, nil
		},
		Sample: func(context.Context, jsontext.Value) (jsontext.Value, error) { fail(); return nil, nil },
		Roots:  func(context.Context) ([]mcpclient.Root, error) { fail(); return nil, nil },
		Request: map[string]func(context.Context, jsontext.Value) (jsontext.Value, error){
			"roots/list": func(context.Context, jsontext.Value) (jsontext.Value, error) { fail(); return nil, nil },
		},
	}
}

const (
	askURL    = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.test/","elicitationId":"e1"}}`
	oneRoot   = `{"roots":[{"uri":"file:///r"}]}`
	oneSample = `{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`
)

func TestACallerAnswersWhateverAModernServerAsksBeforeAnyHandler(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		const questions = `{"form":` + askForm + `,"url":` + askURL + `,"model":` + askModel + `,"roots":` + askRoots + `,"new":{"method":"future/ask","params":{"a":1}}}`
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{}
		for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
			s.Handle[method] = mcptest.Sequence(asks(questions, `"s1"`), mcptest.Respond(mcptest.Raw(`{"content":[],"contents":[],"messages":[]}`)))
		}
		c := connect(t, s, mcpclient.Options{Handlers: unused(t)})
		var together chan struct{}
		var running atomic.Int32
		options := answeredBy(func(_ context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
			if running.Add(1) == 5 {
				close(together)
			}
			<-together
			switch {
			case method == "elicitation/create" && strings.Contains(string(params), "https://x.test/"):
				return jsontext.Value(`{"action":"accept","content":{"no":"form"},"_meta":{"k":1}}`), nil
			case method == "elicitation/create":
				return jsontext.Value("{\"action\":\"accept\",\n\"content\": {\"name\":9007199254740993}}"), nil
			case method == "sampling/createMessage":
				return jsontext.Value(oneSample), nil
			case method == "roots/list" && params == nil:
				return jsontext.Value(oneRoot), nil
			case method == "future/ask" && string(params) == `{"a":1}`:
				return jsontext.Value(`{"b":2}`), nil
			}
			t.Errorf("asked %s %s", method, params)
			return nil, errors.New("unknown")
		})
		for method, call := range map[string]func() (*mcpclient.Result, error){
			"tools/call":     func() (*mcpclient.Result, error) { return c.CallTool(t.Context(), "echo", nil, options) },
			"resources/read": func() (*mcpclient.Result, error) { return c.ReadResource(t.Context(), "demo://a", options) },
			"prompts/get":    func() (*mcpclient.Result, error) { return c.GetPrompt(t.Context(), "hi", nil, options) },
		} {
			running.Store(0)
			together = make(chan struct{})
			if r, err := call(); err != nil || r.Type != mcpclient.ResultComplete {
				t.Fatalf("%s: %+v %v", method, r, err)
			}
			const want = `{"form":{"action":"accept","content":{"name":9007199254740993}},"url":{"action":"accept","_meta":{"k":1}},"model":` + oneSample + `,"roots":` + oneRoot + `,"new":{"b":2}}`
			if got := param(t, s.Entries(method)[1], "inputResponses"); got != want {
				t.Errorf("%s: the server got %s", method, got)
			}
		}
	})
}

func TestACallerMayAnswerMoreRoundsThanTheClientWould(t *testing.T) {
	for _, limit := range []int{0, -1} {
		overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			var rounds []mcptest.Round
			for i := range 10 {
				rounds = append(rounds, mcptest.Round{Requests: fmt.Sprintf(`{"k%d":%s}`, i, askForm), State: fmt.Sprintf(`"s%d"`, i)})
			}
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Rounds(done(), rounds...)}
			c := connect(t, s, mcpclient.Options{Rounds: mcpclient.RoundOptions{MaxRetries: limit}})
			asked := 0
			_, err := c.CallTool(t.Context(), "echo", nil, answeredBy(func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
				asked++
				return jsontext.Value(`{"action":"decline"}`), nil
			}))
			if err != nil || asked != 10 {
				t.Errorf("%d questions, %v", asked, err)
			}
		})
	}
}

func TestRoundsThatAskNothingKeepTheirLimitAndPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		question, state := asks(`{"k":`+askForm+`}`, ""), asks("", `"s"`)
		s := tool(state, question, state, state, question, state)
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		options := answeredBy(byMethod(map[string]string{"elicitation/create": `{"action":"cancel"}`}))
		start := time.Now()
		_, err := c.CallTool(t.Context(), "echo", nil, options)
		if e := wantKind(t, err, mcpclient.KindProtocol, "3 retries"); !errors.Is(e, mcpclient.ErrRoundLimit) {
			t.Error(e)
		}
		// the first of a row is at once, then 100 ms, 200 ms
		if n, took := s.Count("tools/call"), time.Since(start); n != 9 || took != 400*time.Millisecond {
			t.Errorf("%d requests in %v", n, took)
		}
		options.ReturnInput = true
		if r, err := c.CallTool(t.Context(), "echo", nil, options); err != nil || r.Type != mcpclient.ResultInputRequired {
			t.Errorf("%+v %v", r, err)
		}
	})
}

func TestARefusalOfTheCallerInTheModernEra(t *testing.T) {
	refuse := answeredBy(func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
		return nil, fmt.Errorf("wrapped: %w", &jsonrpc.Error{Code: -32602, Message: "no way"})
	})
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks(`{"k":`+askForm+`,"u":`+askURL+`}`, ""), done())
		if _, err := overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, refuse); err != nil {
			t.Fatal(err)
		}
		if got := param(t, s.Entries("tools/call")[1], "inputResponses"); got != `{"k":{"action":"cancel"},"u":{"action":"cancel"}}` {
			t.Errorf("the server got %s", got)
		}
	})
	for _, question := range []string{askModel, askRoots, `{"method":"future/ask"}`} {
		synctest.Test(t, func(t *testing.T) {
			s := tool(asks(`{"who?":`+question+`}`, ""), done())
			_, err := overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, refuse)
			e := wantKind(t, err, mcpclient.KindInput, "who?")
			rpc, ok := errors.AsType[*jsonrpc.Error](err)
			if !errors.Is(err, mcpclient.ErrInputRefused) || !ok || rpc.Message != "no way" || !e.Sent || e.SafeToRetry || strings.Contains(e.Message, "no way") {
				t.Errorf("%+v", e)
			}
			if n := s.Count("tools/call"); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// badAnswers are answers that no server may get, with what is said of them.
var badAnswers = map[string]struct{ question, answer, text string }{
	"nothing":               {askForm, ``, "not a JSON object"},
	"no object":             {askModel, `[]`, "not a JSON object"},
	"broken":                {askModel, `{"a":`, "not a JSON object"},
	"two values":            {askModel, `{}{}`, "not a JSON object"},
	"no action":             {askForm, `{"content":{}}`, "accept, decline or cancel"},
	"unknown action":        {askURL, `{"action":"maybe"}`, `"maybe"`},
	"content is no object":  {askForm, `{"action":"accept","content":[1]}`, "content"},
	"no roots":              {askRoots, `{}`, "roots"},
	"roots are no list":     {askRoots, `{"roots":{}}`, "roots"},
	"roots without objects": {askRoots, `{"roots":["file:///a"]}`, "roots"},
	"roots elsewhere":       {askRoots, `{"roots":[{"uri":"https://a"}]}`, "file://"},
	"roots without a uri":   {askRoots, `{"roots":[{"name":"a"}]}`, "file://"},
}

func TestAnAnswerThatIsNoneEndsTheCallInEitherEra(t *testing.T) {
	for name, tc := range badAnswers {
		options := answeredBy(func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
			return jsontext.Value(tc.answer), nil
		})
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := tool(asks(`{"which":`+tc.question+`}`, ""), done())
				_, err := connect(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, options)
				e := wantKind(t, err, mcpclient.KindInvalid, tc.text)
				if !strings.Contains(e.Message, "which") || !e.Sent || e.SafeToRetry || e.Method != "tools/call" || e.Name != "echo" || s.Count("tools/call") != 1 {
					t.Errorf("modern: %+v", e)
				}
			})
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s, got := keeping(tc.question)
				_, err := connect(t, s, mcpclient.Options{}).CallTool(t.Context(), "ask", nil, options)
				e := wantKind(t, err, mcpclient.KindInvalid, tc.text)
				if !e.Sent || e.SafeToRetry || e.Method != "tools/call" || e.Name != "ask" {
					t.Errorf("legacy: %+v", e)
				}
				synctest.Wait()
				if n := s.Count("notifications/cancelled"); n != 1 {
					t.Errorf("legacy: %d cancellations", n)
				}
				wantRefused(t, tc.question, <-got)
			})
		})
	}
}

func TestAnAnswerThatFailsOrPanics(t *testing.T) {
	for name, answer := range map[string]answerFunc{
		"fails": func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
			return nil, errors.New("secret")
		},
		"panics": func(context.Context, string, jsontext.Value) (jsontext.Value, error) { panic("secret") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tool(asks(`{"k":`+askForm+`}`, ""), done())
				c := overHTTP(t, s, mcpclient.Options{})
				e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, answeredBy(answer))), mcpclient.KindInternal, "was not answered")
				if strings.Contains(e.Message, "secret") {
					t.Error(e.Message)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				c := overHTTP(t, asking(), mcpclient.Options{})
				r, err := c.CallTool(t.Context(), "ask", jsontext.Value(askForm), answeredBy(answer))
				if err != nil || !strings.Contains(string(r.Raw), "-32603: internal error") {
					t.Errorf("%+v %v", r, err)
				}
			})
		})
	}
}

func TestAMalformedQuestionReachesNoCaller(t *testing.T) {
	never := answeredBy(func(_ context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
		t.Errorf("asked %s %s", method, params)
		return nil, nil
	})
	for _, question := range []string{
		`{"method":"elicitation/create"}`, `{"method":"elicitation/create","params":{"message":5}}`,
		strings.ReplaceAll(askURL, "https://x.test/", "x"), `{"method":"sampling/createMessage"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := tool(asks(`{"k":`+question+`}`, ""), done())
			_ = wantKind(t, errOf(overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, never)), mcpclient.KindProtocol, `"k"`)
		})
		synctest.Test(t, func(t *testing.T) {
			r, err := overHTTP(t, asking(), mcpclient.Options{}).CallTool(t.Context(), "ask", jsontext.Value(question), never)
			if err != nil || !strings.Contains(string(r.Raw), "-32602: ") {
				t.Errorf("%s: %+v %v", question, r, err)
			}
		})
	}
}

func TestACallerThatLeavesAModernQuestionIsGoneAtOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := tool(asks(`{"k":`+askForm+`}`, ""))
		c := connect(t, s, mcpclient.Options{})
		asked, ended := make(chan string, 1), make(chan string, 1)
		ctx, leave := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- errOf(c.CallTool(ctx, "echo", nil, answeredBy(untilDone(asked, ended)))) }()
		<-asked
		leave()
		_ = wantKind(t, <-over, mcpclient.KindCanceled, "questions")
		<-ended
		synctest.Wait()
		if n := s.Count("notifications/cancelled"); n != 0 || s.Count("tools/call") != 1 {
			t.Errorf("%v: nothing was under way", wire(s))
		}
	})
}

func TestTheOverallTimeStandsStillWhileTheCallerAnswers(t *testing.T) {
	const pause = time.Hour
	slow := answeredBy(func(ctx context.Context, _ string, _ jsontext.Value) (jsontext.Value, error) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		return jsontext.Value(`{"action":"decline"}`), ctx.Err()
	})
	question := `{"k":` + askForm + `}`
	for name, s := range map[string]*mcptest.Server{
		"rounds": tool(mcptest.Delay(4*time.Second, asks(question, "")), mcptest.Delay(5*time.Second, asks(question, "")), mcptest.Silence()),
		"task":   tasked("", mcptest.Delay(4*time.Second, state("input_required", `"inputRequests":`+question)), mcptest.Silence()),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 10 * time.Second}})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, slow)), mcpclient.KindTimeout, "timeouts.max")
				want := 10*time.Second + pause
				if name == "rounds" {
					want += pause
				}
				if took := time.Since(start); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a deadline is the caller's own
		c := overHTTP(t, tool(asks(question, "")), mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 10 * time.Second}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(ctx, "echo", nil, slow)), mcpclient.KindTimeout, "caller's deadline")
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

func TestACallerAnswersTheQuestionsOfATask(t *testing.T) {
	question := func(key, question string) mcptest.Handler {
		return state("input_required", `"inputRequests":{"`+key+`":`+question+`}`)
	}
	for _, wait := range []bool{false, true} {
		overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := tasked("", working, question("a", askForm), question("a", askForm), question("b", askRoots), working, completed)
			c := connect(t, s, mcpclient.Options{Handlers: unused(t)})
			options := answeredBy(byMethod(map[string]string{"elicitation/create": `{"action":"accept","content":{"name":"x"}}`, "roots/list": oneRoot}))
			var err error
			var r *mcpclient.Result
			if wait {
				r, err = c.WaitTask(t.Context(), "t/ü 1", options)
			} else {
				r, err = c.CallTool(t.Context(), "echo", nil, options)
			}
			if err != nil || !strings.Contains(string(r.Raw), "done") {
				t.Fatalf("%+v %v", r, err)
			}
			var got []string
			for _, e := range s.Entries("tasks/update") {
				got = append(got, param(t, e, "inputResponses"))
			}
			if want := `[{"a":{"action":"accept","content":{"name":"x"}}} {"b":` + oneRoot + `}]`; fmt.Sprint(got) != want {
				t.Errorf("the task got %v", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := tasked("", question("k", askModel), working)
		_, err := overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, answeredBy(byMethod(nil)))
		if e := wantKind(t, err, mcpclient.KindInput, `"k"`); !errors.Is(e, mcpclient.ErrInputRefused) {
			t.Error(e)
		}
		synctest.Wait()
		if s.Count("tasks/cancel") != 1 || s.Count("tasks/update") != 0 {
			t.Errorf("%v", wire(s))
		}
	})
}

func TestAContinuationIsNeverSentToALegacyServer(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Legacy, mcptest.Modern} {
		overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(era)
			c := connect(t, s, mcpclient.Options{})
			o := &mcpclient.CallOptions{InputResponses: jsontext.Value(`{"k":{"action":"cancel"}}`), RequestState: new("")}
			_, err := c.CallTool(t.Context(), "echo", jsontext.Value(`{"inputResponses":1}`), o)
			err = errors.Join(err, errOf(c.ReadResource(t.Context(), "demo://a", o)), errOf(c.GetPrompt(t.Context(), "hi", nil, o)))
			if err != nil {
				t.Fatal(err)
			}
			for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
				var params map[string]json.RawMessage
				if err := json.Unmarshal(s.Entries(method)[0].Params(), &params); err != nil {
					t.Fatal(err)
				}
				answers, state := string(params["inputResponses"]), string(params["requestState"])
				if sent := answers == `{"k":{"action":"cancel"}}` && state == `""`; sent != (era == mcptest.Modern) || !sent && answers+state != "" {
					t.Errorf("era %v: %s was sent with %q and %q", era, method, answers, state)
				}
			}
		})
	}
}

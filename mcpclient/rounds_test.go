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
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// overBoth runs a test over in-memory HTTP and over an in-memory stream, each
// in a bubble of its own.
func overBoth(t *testing.T, run func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client)) {
	t.Helper()
	for name, connect := range map[string]func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client{"http": overHTTP, "stream": overPipe} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, connect) })
		})
	}
}

// asks is an input_required result; inputRequests and state are raw JSON, ""
// leaves them out.
func asks(inputRequests, state string) mcptest.Handler {
	raw := `{"resultType":"input_required"`
	if inputRequests != "" {
		raw += `,"inputRequests":` + inputRequests
	}
	if state != "" {
		raw += `,"requestState":` + state
	}
	return mcptest.Respond(mcptest.Raw(raw + "}"))
}

const (
	askForm  = `{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`
	askRoots = `{"method":"roots/list"}`
	askModel = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}`
)

func done() mcptest.Handler { return mcptest.Respond(mcptest.Text("done")) }

func accept(content string) func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
	return func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
		return &mcpclient.ElicitResult{Action: "accept", Content: jsontext.Value(content)}, nil
	}
}

// tool is a server whose tool "t" answers by the given handlers, one after the
// other.
func tool(handlers ...mcptest.Handler) *mcptest.Server {
	s := features(mcptest.Modern)
	s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Sequence(handlers...)}
	return s
}

func param(t *testing.T, e mcptest.Entry, name string) string {
	t.Helper()
	var params map[string]json.RawMessage
	if err := json.Unmarshal(e.Params(), &params); err != nil {
		t.Fatal(err)
	}
	return string(params[name])
}

func TestEveryQuestionIsAnsweredAtOnceAndTheRequestRepeated(t *testing.T) {
	overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		const questions = `{"who":` + askForm + `,"größe/\u0031":` + askModel + `,"":` + askRoots + `}`
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{}
		for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
			s.Handle[method] = mcptest.Sequence(asks(questions, `"s1"`), mcptest.Respond(mcptest.Raw(`{"content":[],"contents":[],"messages":[]}`)))
		}
		var running atomic.Int32
		var together chan struct{}
		meet := func() {
			if running.Add(1) == 3 {
				close(together)
			}
			<-together
		}
		c := connect(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{
			Elicit: func(_ context.Context, r *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
				meet()
				if r.Mode != "form" || r.Message != "Who?" || r.Schema.Kind() != '{' || !strings.Contains(string(r.Raw), "Who?") {
					t.Errorf("the question is %+v", r)
				}
				return &mcpclient.ElicitResult{Action: "accept", Content: jsontext.Value("{\n\"name\":\"x\"}")}, nil
			},
			Sample: func(_ context.Context, params jsontext.Value) (jsontext.Value, error) {
				meet()
				return jsontext.Value(`{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`), nil
			},
			Roots: func(context.Context) ([]mcpclient.Root, error) {
				meet()
				return []mcpclient.Root{{URI: "file:///r"}}, nil
			},
		}})
		for method, call := range map[string]func() (*mcpclient.Result, error){
			"tools/call": func() (*mcpclient.Result, error) {
				return c.CallTool(t.Context(), "echo", jsontext.Value(`{"n":9007199254740993}`), nil)
			},
			"resources/read": func() (*mcpclient.Result, error) { return c.ReadResource(t.Context(), "demo://a", nil) },
			"prompts/get": func() (*mcpclient.Result, error) {
				return c.GetPrompt(t.Context(), "hi", map[string]string{"a": "1"}, nil)
			},
		} {
			running.Store(0)
			together = make(chan struct{})
			if r, err := call(); err != nil || r.Type != mcpclient.ResultComplete {
				t.Fatalf("%s: %+v %v", method, r, err)
			}
			sent := s.Entries(method)
			if len(sent) != 2 || sent[0].ID == sent[1].ID {
				t.Fatalf("%s: want two requests with ids of their own: %v", method, sent)
			}
			for _, name := range []string{"name", "uri", "arguments"} {
				if a, b := param(t, sent[0], name), param(t, sent[1], name); a != b {
					t.Errorf("%s: %s changed from %s to %s", method, name, a, b)
				}
			}
			var answers map[string]json.RawMessage
			if err := json.Unmarshal([]byte(param(t, sent[1], "inputResponses")), &answers); err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{
				"who": `"name":"x"`, "größe/1": `"model":"m"`, "": `{"roots":[{"uri":"file:///r"}]}`,
			} {
				if got := string(answers[key]); len(answers) != 3 || !strings.Contains(got, want) {
					t.Errorf("%s: answer %q is %s, want %s", method, key, got, want)
				}
			}
			if got := param(t, sent[1], "requestState"); got != `"s1"` {
				t.Errorf("%s: the state came back as %s", method, got)
			}
		}
	})
}

func TestTheStateComesBackByteForByteOrNotAtAll(t *testing.T) {
	for name, state := range map[string]string{
		"unicode": `"Grüße 世界 😀"`, "escapes": `"a\/b\u00e9\ud83d\ude00\"\\\n\u2028\u0000"`,
		"empty": `""`, "absent": "", "1 MiB": `"` + strings.Repeat(`x\/é`, 1<<18) + `"`, "JSON": `"{\"a\": null}"`,
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				// the state of the round before must not linger
				s := tool(asks(`{"r":`+askRoots+`}`, `"other"`), asks(`{"r":`+askRoots+`}`, state), done())
				c := connect(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}})
				if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
					t.Fatal(err)
				}
				sent := s.Entries("tools/call")
				if got := param(t, sent[1], "requestState"); got != `"other"` {
					t.Errorf("the first state came back as %s", got)
				}
				if got := param(t, sent[2], "requestState"); got != state {
					t.Errorf("the state came back as %.80s, want %.80s", got, state)
				}
			})
		})
	}
}

func TestBrokenTextInAStateIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks("", "\"a\xffb\""), done())
		if _, err := overHTTP(t, s, mcpclient.Options{}).CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := param(t, s.Entries("tools/call")[1], "requestState"); got != "\"a\ufffdb\"" {
			t.Errorf("it came back as %s", got)
		}
	})
}

func TestTheWholeCallsTimeEndsAWaitBetweenRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks("", `"s"`))
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 150 * time.Millisecond}})
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindTimeout, "timeouts.max")
		if n := s.Count("tools/call"); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestANullStateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks(`{"r":`+askRoots+`}`, "null"), done())
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := param(t, s.Entries("tools/call")[1], "requestState"); got != "" {
			t.Errorf("it came back as %s", got)
		}
	})
}

func TestAServerThatAsksForEverIsStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		ask      mcptest.Handler
		retries  int
		requests int
		after    time.Duration
	}{
		"questions":                     {ask: asks(`{"r":`+askRoots+`}`, `"s"`), requests: 4},
		"a state alone, ever slower":    {ask: asks("", `"s"`), requests: 4, after: 300 * time.Millisecond},
		"no questions at all":           {ask: asks("{}", ""), requests: 4, after: 300 * time.Millisecond},
		"one retry":                     {ask: asks("", `"s"`), retries: 1, requests: 2},
		"twelve retries, bounded waits": {ask: asks("", `"s"`), retries: 12, requests: 13, after: 31300 * time.Millisecond},
		"never":                         {ask: asks("", `"s"`), retries: -1, requests: 1},
		"never, with something to say":  {ask: asks(`{"r":`+askRoots+`}`, ""), retries: -1, requests: 1},
		"keys that change at each round": {ask: func(_ context.Context, r *mcptest.Request) (any, error) {
			return mcptest.Raw(fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"k%d":%s}}`, r.N, askRoots)), nil
		}, requests: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tool(tc.ask)
				c := overHTTP(t, s, mcpclient.Options{Rounds: mcpclient.RoundOptions{MaxRetries: tc.retries}, Roots: []mcpclient.Root{{URI: "file:///r"}}})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err := c.CallTool(t.Context(), "echo", nil, nil)
				e := wantKind(t, err, mcpclient.KindProtocol, fmt.Sprintf("after %d retries of tools/call", tc.requests-1))
				if !errors.Is(err, mcpclient.ErrRoundLimit) || e.SafeToRetry || !e.Sent {
					t.Errorf("%+v", e)
				}
				if took := time.Since(start); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
				ids := map[string]bool{}
				for _, sent := range s.Entries("tools/call") {
					ids[sent.ID] = true
				}
				if s.Count("tools/call") != tc.requests || len(ids) != tc.requests {
					t.Errorf("%d requests with %d ids, want %d", s.Count("tools/call"), len(ids), tc.requests)
				}
			})
		})
	}
}

func TestACallersContinuationIsReplacedByTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks(`{"r":`+askRoots+`}`, ""), asks("", `"two"`), done())
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}})
		args := jsontext.Value(`{"requestState":"mine","inputResponses":{}}`)
		_, err := c.CallTool(t.Context(), "echo", args, &mcpclient.CallOptions{InputResponses: jsontext.Value(`{"old":{"action":"cancel"}}`), RequestState: new("one")})
		if err != nil {
			t.Fatal(err)
		}
		sent := s.Entries("tools/call")
		for i, want := range []struct{ responses, state string }{
			{`{"old":{"action":"cancel"}}`, `"one"`}, {`{"r":{"roots":[{"uri":"file:///r"}]}}`, ""}, {"", `"two"`},
		} {
			if responses, state := param(t, sent[i], "inputResponses"), param(t, sent[i], "requestState"); responses != want.responses || state != want.state {
				t.Errorf("request %d: responses %s, state %s", i+1, responses, state)
			}
			if got := param(t, sent[i], "arguments"); got != string(args) {
				t.Errorf("request %d: the arguments are %s", i+1, got)
			}
		}
	})
}

func TestOfQuestionsWithOneKeyTheLastCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks(`{"k":`+askForm+`,"k":`+askRoots+`}`, ""), done())
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := param(t, s.Entries("tools/call")[1], "inputResponses"); got != `{"k":{"roots":[{"uri":"file:///r"}]}}` {
			t.Error(got)
		}
	})
}

func TestAContinuedToolCallNeverLooksAsIfItHadNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks(`{"k":`+askRoots+`}`, ""))
		c := overHTTP(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) {
			s.SetDown(true)
			return nil, nil
		}}})
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindLost, "")
		if e.SafeToRetry || !e.Sent {
			t.Errorf("%+v", e)
		}
	})
}

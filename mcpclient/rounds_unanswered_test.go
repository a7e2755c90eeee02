package mcpclient_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

func TestAQuestionThatNothingAnswersEndsTheCallUnansweredOrGoesToTheCaller(t *testing.T) {
	asked := new(atomic.Int32)
	elicit := func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
		asked.Add(1)
		return &mcpclient.ElicitResult{Action: "decline"}, nil
	}
	const url = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.test/"}}`
	own := jsontext.Value(`{"elicitation":{}}`)
	for name, tc := range map[string]struct {
		questions    string
		options      mcpclient.Options
		capabilities jsontext.Value
		method       string // of the question that is not answered; "" = all are
	}{
		"no handler":                         {questions: `{"k":` + askForm + `}`, method: "elicitation/create"},
		"declared without a handler":         {questions: `{"k":` + askForm + `}`, options: mcpclient.Options{Capabilities: mcpclient.Capabilities{ElicitationForm: true}}, method: "elicitation/create"},
		"no sampling":                        {questions: `{"k":` + askModel + `}`, method: "sampling/createMessage"},
		"tools in sampling":                  {questions: `{"k":{"method":"sampling/createMessage","params":{"messages":[],"tools":[]}}}`, options: mcpclient.Options{Handlers: mcpclient.Handlers{Sample: func(context.Context, jsontext.Value) (jsontext.Value, error) { asked.Add(1); return nil, nil }}}, method: "sampling/createMessage"},
		"no roots":                           {questions: `{"k":` + askRoots + `}`, method: "roots/list"},
		"an unknown method":                  {questions: `{"k":{"method":"future/ask"}}`, method: "future/ask"},
		"a URL when only forms are declared": {questions: `{"k":` + url + `}`, options: mcpclient.Options{Handlers: mcpclient.Handlers{Elicit: elicit}}, method: "elicitation/create"},
		"one of two":                         {questions: `{"a":` + askForm + `,"k":` + askRoots + `}`, options: mcpclient.Options{Handlers: mcpclient.Handlers{Elicit: elicit}}, method: "roots/list"},
		"the caller's own capabilities":      {questions: `{"k":` + askForm + `}`, options: mcpclient.Options{Handlers: mcpclient.Handlers{Elicit: elicit}}, capabilities: own, method: "elicitation/create"},
		"roots, whoever declared them":       {questions: `{"k":` + askRoots + `}`, options: mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}}, capabilities: own},
		"roots declared but empty":           {questions: `{"k":` + askRoots + `}`, options: mcpclient.Options{Capabilities: mcpclient.Capabilities{Roots: true}}},
		"the caller's roots":                 {questions: `{"k":` + askRoots + `}`, options: mcpclient.Options{Capabilities: mcpclient.Capabilities{Roots: true}}, capabilities: jsontext.Value(`{"roots":{}}`), method: "roots/list"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked.Store(0)
				s := tool(asks(tc.questions, `"s"`))
				if tc.method == "" {
					s = tool(asks(tc.questions, `"s"`), done(), asks(tc.questions, `"s"`), done())
				}
				c := overHTTP(t, s, tc.options)
				for i, back := range []bool{false, true} {
					result, err := c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{Capabilities: tc.capabilities, ReturnInput: back})
					requests := i + 1
					switch {
					case tc.method == "":
						requests = 2 * (i + 1)
						if err != nil || result.Type != mcpclient.ResultComplete {
							t.Errorf("ReturnInput %v: %+v %v", back, result, err)
						}
					case back:
						if err != nil || result.Type != mcpclient.ResultInputRequired || !strings.Contains(string(result.Raw), `"inputRequests":`+tc.questions+`,"requestState":"s"`) {
							t.Errorf("ReturnInput: %+v %v", result, err)
						}
					default:
						e := wantKind(t, err, mcpclient.KindProtocol, tc.method)
						if !errors.Is(err, mcpclient.ErrInputRequired) || e.SafeToRetry || !strings.Contains(e.Message, `"k"`) {
							t.Errorf("%+v", e)
						}
					}
					if n := s.Count("tools/call"); n != requests || asked.Load() != 0 {
						t.Errorf("ReturnInput %v: %d requests, want %d; %d handlers ran", back, n, requests, asked.Load())
					}
				}
			})
		})
	}
}

func TestAStateAloneIsContinuedForACallerThatTakesQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks("", `"s"`), asks(`{"k":`+askForm+`}`, `"t"`))
		c := overHTTP(t, s, mcpclient.Options{})
		result, err := c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{Capabilities: jsontext.Value(`{"elicitation":{}}`), ReturnInput: true})
		if err != nil || result.Type != mcpclient.ResultInputRequired || s.Count("tools/call") != 2 {
			t.Errorf("%+v %v after %d requests", result, err, s.Count("tools/call"))
		}
	})
}

func TestAQuestionThatFailsEndsTheCallWithoutARetry(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		elicit func(ctx context.Context, r *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error)
		kind   mcpclient.Kind
		text   string
	}{
		"its error": {elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) { return nil, boom }, text: "boom"},
		"its panic": {elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) { panic("boom") }, text: "panicked"},
		"nothing":   {elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) { return nil, nil }, text: "no result"},
		"an unknown action": {elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
			return &mcpclient.ElicitResult{Action: "ok"}, nil
		}, text: `action "ok"`},
		"a form that is no object": {elicit: accept(`[]`), text: "not a JSON object"},
		"a form that is no JSON":   {elicit: accept(`{"a"`), text: "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tool(asks(`{"r":`+askRoots+`,"k":`+askForm+`}`, `"s"`))
				stopped := make(chan struct{})
				c := overHTTP(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Elicit: tc.elicit, Roots: func(ctx context.Context) ([]mcpclient.Root, error) {
					<-ctx.Done() // the other question is withdrawn
					close(stopped)
					return nil, ctx.Err()
				}}})
				_, err := c.CallTool(t.Context(), "echo", nil, nil)
				if e := wantKind(t, err, tc.kind, tc.text); !strings.Contains(e.Message, `"k"`) || strings.Contains(e.Message, "boom") {
					t.Errorf("the text for callers is %q", e.Message)
				}
				<-stopped
				if n := s.Count("tools/call"); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

func TestMalformedQuestionsAreAProtocolError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for questions, state := range map[string]string{
			"": "", "[]": `"s"`, `"x"`: `"s"`, `{"k":7}`: `"s"`, `{"k":{}}`: `"s"`, `{"k":{"method":5}}`: `"s"`, `{"k":` + askRoots + `}`: "5",
			`{"k":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"::"}}}`: `"s"`, "null": "null",
		} {
			s := tool(asks(questions, state))
			c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}, Handlers: mcpclient.Handlers{Elicit: accept("{}"), ElicitURLs: true}})
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{ReturnInput: true})), mcpclient.KindProtocol, "")
			if n := s.Count("tools/call"); n != 1 {
				t.Errorf("%s: %d requests", questions, n)
			}
		}
	})
}

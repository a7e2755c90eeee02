package mcpclient_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// asking is a legacy server whose tool "ask" puts its arguments' question to
// the client in mid-call and returns the answer.
func asking() *mcptest.Server {
	s := features(mcptest.Legacy)
	s.Tools = append(s.Tools, mcptest.Tool{Name: "ask", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
		var question struct {
			Method string         `json:"method"`
			Params jsontext.Value `json:"params"`
		}
		if err := json.Unmarshal(r.Param("arguments"), &question); err != nil {
			return nil, err
		}
		var params any
		if question.Params != nil {
			params = mcptest.Raw(question.Params)
		}
		answer, err := r.Ask(ctx, question.Method, params)
		if e, ok := errors.AsType[*mcptest.Error](err); ok {
			return mcptest.Text(e.Error()), nil
		}
		if err != nil {
			return nil, err
		}
		return mcptest.Text(string(answer)), nil
	}})
	return s
}

func TestALegacyServersQuestionsInMidCallAreAnswered(t *testing.T) {
	const (
		form  = `{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`
		named = `{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":null}}`
		url   = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.test/","elicitationId":"e1"}}`
		tools = `{"method":"sampling/createMessage","params":{"messages":[],"tools":[]}}`
	)
	reply := func(r *mcpclient.ElicitResult, err error) mcpclient.Handlers {
		return mcpclient.Handlers{Elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) { return r, err }}
	}
	urls := func(h mcpclient.Handlers) mcpclient.Handlers { h.ElicitURLs = true; return h }
	sample := func(result string, err error) mcpclient.Handlers {
		return mcpclient.Handlers{Sample: func(context.Context, jsontext.Value) (jsontext.Value, error) { return jsontext.Value(result), err }}
	}
	filled := &mcpclient.ElicitResult{Action: "accept", Content: jsontext.Value(`{"a":1}`)}
	for name, tc := range map[string]struct {
		question string
		options  mcpclient.Options
		want     string
	}{
		"a form without a mode":              {form, mcpclient.Options{Handlers: reply(filled, nil)}, `{"action":"accept","content":{"a":1}}`},
		"a form with a mode":                 {named, mcpclient.Options{Handlers: reply(filled, nil)}, `{"action":"accept","content":{"a":1}}`},
		"an empty form":                      {form, mcpclient.Options{Handlers: reply(&mcpclient.ElicitResult{Action: "accept"}, nil)}, `{"action":"accept"}`},
		"a declined form keeps its data":     {form, mcpclient.Options{Handlers: reply(&mcpclient.ElicitResult{Action: "decline", Content: filled.Content}, nil)}, `{"action":"decline"}`},
		"a dismissed form":                   {form, mcpclient.Options{Handlers: reply(&mcpclient.ElicitResult{Action: "cancel"}, nil)}, `{"action":"cancel"}`},
		"a URL has no content":               {url, mcpclient.Options{Handlers: urls(reply(filled, nil))}, `{"action":"accept"}`},
		"a URL that is not declared":         {url, mcpclient.Options{Handlers: reply(filled, nil)}, "-32602: "},
		"a URL declared without a handler":   {url, mcpclient.Options{Handlers: reply(filled, nil), Capabilities: mcpclient.Capabilities{ElicitationURL: true}}, `{"action":"cancel"}`},
		"a form when only URLs are declared": {form, mcpclient.Options{Capabilities: mcpclient.Capabilities{ElicitationURL: true}}, "-32602: "},
		"a broken URL":                       {strings.ReplaceAll(url, "https://x.test/", "x"), mcpclient.Options{Handlers: urls(reply(filled, nil))}, "-32602: "},
		"an unknown mode":                    {strings.ReplaceAll(url, `"url",`, `"voice",`), mcpclient.Options{Handlers: urls(reply(filled, nil))}, "-32602: "},
		"a mode that is no string":           {strings.ReplaceAll(url, `"mode":"url"`, `"mode":5`), mcpclient.Options{Handlers: urls(reply(filled, nil))}, "-32602: "},
		"a message that is no string":        {strings.ReplaceAll(form, `"m"`, "5"), mcpclient.Options{Handlers: reply(filled, nil)}, "-32602: "},
		"no params":                          {`{"method":"elicitation/create"}`, mcpclient.Options{Handlers: reply(filled, nil)}, "-32602: "},
		"a form declared without a handler":  {form, mcpclient.Options{Capabilities: mcpclient.Capabilities{ElicitationForm: true}}, `{"action":"cancel"}`},
		"a form that nothing declares":       {form, mcpclient.Options{}, "-32602: "},
		"a handler's private error":          {form, mcpclient.Options{Handlers: reply(nil, errors.New("secret"))}, "-32603: internal error"},
		"a handler without an answer":        {form, mcpclient.Options{Handlers: reply(nil, nil)}, "-32603: internal error"},

		"sampling":                                {askModel, mcpclient.Options{Handlers: sample(`{"model":"m"}`, nil)}, `{"model":"m"}`},
		"sampling with a result that is none":     {askModel, mcpclient.Options{Handlers: sample(`[]`, nil)}, "-32603: internal error"},
		"sampling that fails":                     {askModel, mcpclient.Options{Handlers: sample("", errors.New("secret"))}, "-32603: internal error"},
		"sampling declared without a handler":     {askModel, mcpclient.Options{Capabilities: mcpclient.Capabilities{Sampling: true}}, "-1: User rejected sampling request"},
		"sampling that nothing declares":          {askModel, mcpclient.Options{}, "-32601: "},
		"sampling without params":                 {`{"method":"sampling/createMessage"}`, mcpclient.Options{Handlers: sample(`{}`, nil)}, "-32602: "},
		"tools in sampling that are not declared": {tools, mcpclient.Options{Handlers: sample(`{}`, nil)}, "-32602: "},
		"tools in sampling that are":              {tools, mcpclient.Options{Handlers: sample(`{}`, nil), Capabilities: mcpclient.Capabilities{SamplingTools: true}}, `{}`},

		"roots":                    {askRoots, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///a", Name: "A"}, {URI: "file:///b"}}}, `{"roots":[{"uri":"file:///a","name":"A"},{"uri":"file:///b"}]}`},
		"roots at that time":       {askRoots, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///a"}}, Handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) { return []mcpclient.Root{{URI: "file:///now"}}, nil }}}, `{"roots":[{"uri":"file:///now"}]}`},
		"roots that fail":          {askRoots, mcpclient.Options{Handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) { return nil, errors.New("secret") }}}, "-32603: internal error"},
		"roots declared but empty": {askRoots, mcpclient.Options{Capabilities: mcpclient.Capabilities{Roots: true}}, `{"roots":[]}`},
		"no roots":                 {askRoots, mcpclient.Options{}, "-32601: Roots not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				c := connect(t, asking(), tc.options)
				result, err := c.CallTool(t.Context(), "ask", jsontext.Value(tc.question), nil)
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := result.ToolResult()
				if err != nil || len(decoded.Content) != 1 {
					t.Fatalf("%s: %v", result.Raw, err)
				}
				if got := decoded.Content[0].Text; got != tc.want && !(strings.HasSuffix(tc.want, ": ") && strings.HasPrefix(got, tc.want)) {
					t.Errorf("the server got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestNewRootsAreToldToALegacyServerAndKeptForAModernOne(t *testing.T) {
	first := []mcpclient.Root{{URI: "file:///one"}}
	for name, tc := range map[string]struct {
		era     mcptest.Era
		roots   []mcpclient.Root
		connect bool
		told    int
	}{
		"legacy":                    {era: mcptest.Legacy, roots: first, connect: true, told: 1},
		"legacy, not yet connected": {era: mcptest.Legacy, roots: first},
		"legacy, not declared":      {era: mcptest.Legacy, connect: true},
		"modern":                    {roots: first, connect: true},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := asking()
				if s.Era = tc.era; tc.era == mcptest.Modern {
					s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Sequence(asks(`{"r":`+askRoots+`}`, ""), done())}
				}
				var mu sync.Mutex
				var heard [][]mcpclient.Root
				c := connect(t, s, mcpclient.Options{Roots: tc.roots, Listeners: []mcpclient.Listener{{}, {RootsChanged: func(roots []mcpclient.Root) {
					mu.Lock()
					defer mu.Unlock()
					heard = append(heard, slices.Clone(roots))
					roots[0].URI = "file:///scribbled" // it is the listener's own
				}}}})
				if tc.connect {
					if err := c.Connect(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				roots := []mcpclient.Root{{URI: "file:///two", Name: "2"}}
				if err := c.SetRoots(t.Context(), roots); err != nil {
					t.Fatal(err)
				}
				roots[0].URI = "file:///changed"
				_ = wantKind(t, c.SetRoots(t.Context(), []mcpclient.Root{{URI: "https://x.test/"}}), mcpclient.KindInvalid, "file://")
				if len(heard) != 1 || heard[0][0].URI != "file:///two" {
					t.Errorf("listeners heard %v", heard)
				}
				result, err := c.CallTool(t.Context(), "ask", jsontext.Value(askRoots), nil)
				if err != nil {
					t.Fatal(err)
				}
				const want = `{"roots":[{"uri":"file:///two","name":"2"}]}`
				got := string(result.Raw)
				if tc.era == mcptest.Modern {
					got = param(t, s.Entries("tools/call")[1], "inputResponses")
				}
				if !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), want) {
					t.Errorf("the server got %s", got)
				}
				if n := s.Count("notifications/roots/list_changed"); n != tc.told {
					t.Errorf("it was told %d times, want %d", n, tc.told)
				}
			})
		})
	}
}

func TestRootsCannotBeSetOnAClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, asking(), mcpclient.Options{})
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = wantKind(t, c.SetRoots(t.Context(), nil), mcpclient.KindClosed, "")
	})
}

func TestDefaultsFillTheGapsOfAForm(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"name":{"type":"string","default":"John \u0044oe"}, "age":{"type":"integer","default":30}, "score":{"type":"number","default":95.50},
		"status":{"type":"string","enum":["active","idle"],"default":"active"}, "color":{"type":"string","oneOf":[{"const":"#f00","title":"Red"}],"default":"#f00"},
		"tags":{"type":"array","items":{"type":"string","enum":["a","b"]},"default":["a", "b"]},
		"more":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]},"default":["x"]}, "none":{"type":"array","items":{},"default":[]},
		"verified":{"type":"boolean","default":false}, "big":{"type":"integer","default":9007199254740993},
		"plain":{"type":"string"}, "nothing":{"type":"string","default":null}, "other":{"type":"string","default":5}, "half":{"type":"integer","default":1.5},
		"unlisted":{"type":"string","enum":["a"],"default":"b"}, "stranger":{"type":"array","items":{"enum":["a"]},"default":["a","z"]},
		"text":{"type":"number","default":"1"}, "maybe":{"type":"boolean","default":"no"}, "odd":{"type":["string","null"],"default":"x"}, "weird":7
	},"required":["name"]}`
	const all = `"name":"John \u0044oe","age":30,"score":95.50,"status":"active","color":"#f00","tags":["a","b"],"more":["x"],"none":[],"verified":false,"big":9007199254740993}`
	request := &mcpclient.ElicitRequest{Schema: jsontext.Value(schema)}
	if got, err := request.Defaults(); err != nil || string(got) != "{"+all {
		t.Errorf("%s %v", got, err)
	}
	got, err := mcpclient.FillDefaults(jsontext.Value(schema), jsontext.Value(`{ "extra" : "\/", "verified":null,"age":31 }`))
	want := `{"extra":"\/","verified":null,"age":31,` + strings.NewReplacer(`"age":30,`, "", `"verified":false,`, "").Replace(all)
	if err != nil || string(got) != want {
		t.Errorf("%s\nwant %s\n%v", got, want, err)
	}
	for _, schema := range []string{"", "{}", `{"properties":null}`, `{"properties":{}}`} {
		if got, err := mcpclient.FillDefaults(jsontext.Value(schema), nil); err != nil || string(got) != "{}" {
			t.Errorf("schema %s: %s %v", schema, got, err)
		}
	}
	if _, err := mcpclient.FillDefaults(jsontext.Value("[]"), nil); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("a schema that is none: %v", err)
	}
	if _, err := mcpclient.FillDefaults(nil, jsontext.Value("7")); err == nil || !strings.Contains(err.Error(), "content") {
		t.Errorf("content that is none: %v", err)
	}
}

// FuzzFillDefaults: whatever the schema, a form that is a JSON object stays one.
func FuzzFillDefaults(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":"string","default":"x"}}}`, `{"b":1}`)
	f.Add(`{"properties":{"a":{"type":"array","items":{"enum":[1]},"default":[1]},"a":5}}`, "")
	f.Fuzz(func(t *testing.T, schema, content string) {
		got, err := mcpclient.FillDefaults(jsontext.Value(schema), jsontext.Value(content))
		if err != nil {
			return
		}
		if got.Kind() != '{' || !got.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || strings.ContainsAny(string(got), "\r\n") {
			t.Errorf("schema %q and content %q make %q", schema, content, got)
		}
	})
}

package mcpclient_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestMain(m *testing.M) {
	mcptest.MainStdio(scripts)
	goleak.VerifyTestMain(m)
}

// overHTTP starts the fake server behind in-memory HTTP and a client of it,
// which closes at the end of the test.
func overHTTP(t *testing.T, s *mcptest.Server, o mcpclient.Options) *mcpclient.Client {
	t.Helper()
	url, client := mcptest.StartMemoryHTTP(t, s)
	return newClient(t, &transport.HTTP{URL: url, Client: client}, o)
}

func newClient(t *testing.T, tr transport.Transport, o mcpclient.Options) *mcpclient.Client {
	t.Helper()
	if testing.Verbose() && o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := mcpclient.New(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return c
}

// kindOf is the kind of a client error; -1 for any other error, -2 for none.
func kindOf(err error) mcpclient.Kind {
	if err == nil {
		return -2
	}
	if e, ok := errors.AsType[*mcpclient.Error](err); ok {
		return e.Kind
	}
	return -1
}

func wantKind(t *testing.T, err error, want mcpclient.Kind, text string) *mcpclient.Error {
	t.Helper()
	e, ok := errors.AsType[*mcpclient.Error](err)
	if !ok || e.Kind != want || !strings.Contains(e.Error(), text) {
		t.Fatalf("got error %v (%v), want kind %v with %q", err, kindOf(err), want, text)
	}
	return e
}

// wire drops what is no MCP message from a transcript.
func wire(s *mcptest.Server) []string {
	return slices.DeleteFunc(s.Methods(), func(m string) bool { return m == mcptest.MethodGet || m == mcptest.MethodDelete })
}

func features(era mcptest.Era) *mcptest.Server {
	return &mcptest.Server{
		Era: era,
		Tools: []mcptest.Tool{
			{Name: "echo", Call: mcptest.Echo()},
			{Name: "Grüße, 世界", Call: mcptest.Respond(mcptest.Text("héllo"))},
			{Name: "fail", Call: mcptest.Respond(mcptest.Raw(`{"content":[{"type":"text","text":"no"}],"isError":true}`))},
			{Name: "stuck", Call: mcptest.Silence()},
		},
		Resources: []mcptest.Resource{{URI: "demo://a", Name: "a", Text: "A"}, {URI: "demo://b", Name: "b", Text: "B"}},
		Templates: []mcptest.Template{{URITemplate: "user://{id}/x", Name: "u"}},
		Prompts:   []mcptest.Prompt{{Name: "hi", Get: mcptest.Respond(mcptest.Raw(`{"messages":[]}`))}},
		Complete:  mcptest.Respond(mcptest.Raw(`{"completion":{"values":["x"]}}`)),
		PageSize:  1,
		TTLMs:     60_000,
	}
}

func TestEveryOperationWorksInBothEras(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy, mcptest.Dual} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///srv"}}})
			ctx := t.Context()
			for name, list := range map[string]func(context.Context) (*mcpclient.List, error){
				"echo,Grüße, 世界,fail,stuck": c.ListTools, "demo://a,demo://b": c.ListResources, "user://{id}/x": c.ListResourceTemplates, "hi": c.ListPrompts,
			} {
				l, err := list(ctx)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, item := range l.Items {
					got = append(got, item.Name)
				}
				if strings.Join(got, ",") != name || l.Fingerprint == "" {
					t.Errorf("era %v: the list is %q, want %q", era, got, name)
				}
			}
			args := jsontext.Value(`{"n":9007199254740993,"big":1e400,"z":-0,"deep":{"x":[null]}}`)
			result, err := c.CallTool(ctx, "echo", args, nil)
			if err != nil || !strings.Contains(string(result.Raw), `"structuredContent":`+string(args)) {
				t.Errorf("era %v: the arguments did not come back digit for digit: %v %v", era, result, err)
			}
			if result, err = c.CallTool(ctx, "Grüße, 世界", nil, nil); err != nil || result.IsError || result.Type != mcpclient.ResultComplete {
				t.Errorf("era %v: a name beyond ASCII: %+v %v", era, result, err)
			}
			if result, err = c.CallTool(ctx, "fail", nil, nil); err != nil || !result.IsError {
				t.Errorf("era %v: a tool's own failure is a result: %+v %v", era, result, err)
			}
			if _, err = c.ReadResource(ctx, "demo://b", nil); err != nil {
				t.Error(err)
			}
			if _, err = c.GetPrompt(ctx, "hi", map[string]string{"b": "2", "a": "1"}, nil); err != nil {
				t.Error(err)
			}
			if _, err = c.Complete(ctx, mcpclient.CompleteParams{Prompt: "hi", Argument: "a", Context: map[string]string{"b": "2"}}, nil); err != nil {
				t.Error(err)
			}
			want := mcpclient.EraModern
			if era == mcptest.Legacy {
				want = mcpclient.EraLegacy
			}
			if st := c.Status(); st.State != mcpclient.StateReady || st.Server.Era != want || st.Connects != 1 {
				t.Errorf("era %v: status %+v", era, st)
			}
		})
	}
}

func TestNamesAreLookedUpAfterErrorsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{})
		ctx := t.Context()
		_ = wantKind(t, errOf(c.CallTool(ctx, "nope", nil, nil)), mcpclient.KindRPC, "")
		for name, want := range map[string]bool{"nope": false, "echo": true} {
			if known, err := c.KnowsTool(ctx, name); err != nil || known != want {
				t.Errorf("tool %s: %v %v", name, known, err)
			}
		}
		for uri, want := range map[string]bool{"demo://a": true, "demo://nope": false, "user://7/x": true} {
			if known, err := c.KnowsResource(ctx, uri); err != nil || known != want {
				t.Errorf("resource %s: %v %v", uri, known, err)
			}
		}
		if known, err := c.KnowsPrompt(ctx, "nope"); err != nil || known {
			t.Errorf("prompt: %v %v", known, err)
		}
		lists := s.Count("tools/list")
		for range 50 {
			if _, err := c.KnowsTool(ctx, "nope"); err != nil {
				t.Fatal(err)
			}
		}
		if s.Count("tools/list") != lists {
			t.Error("a wrong name repeated within a second asks the server each time")
		}
	})
}

func errOf[T any](_ T, err error) error { return err }

func TestAFeatureTheServerDoesNotDeclareIsRefusedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{Tools: []mcptest.Tool{{Name: "t", Call: mcptest.Echo()}}}
		c := overHTTP(t, s, mcpclient.Options{})
		_ = wantKind(t, errOf(c.GetPrompt(t.Context(), "p", nil, nil)), mcpclient.KindUnsupported, "prompts/get")
		if s.Count("prompts/get") != 0 {
			t.Error("it was sent all the same")
		}
	})
}

func TestWhatTheProtocolForbidsInResultsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(raw string) mcptest.Handler { return mcptest.Respond(mcptest.Raw(raw)) }
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{
			"tools/call": func(ctx context.Context, r *mcptest.Request) (any, error) {
				name := strings.Trim(string(r.Param("name")), `"`)
				return mcptest.Raw(map[string]string{
					"later": `{"resultType":"later"}`, "number": `{"resultType":7}`, "task": `{"resultType":"task","taskId":"1"}`,
					"null": `{"resultType":null,"content":[]}`, "input": `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}}}`,
				}[name]), nil
			},
			"prompts/list": answer(`{"resultType":"input_required","requestState":"x"}`),
		}
		c := overHTTP(t, s, mcpclient.Options{})
		ctx := t.Context()
		_ = wantKind(t, errOf(c.CallTool(ctx, "later", nil, nil)), mcpclient.KindProtocol, `"later"`)
		_ = wantKind(t, errOf(c.CallTool(ctx, "number", nil, nil)), mcpclient.KindProtocol, "malformed")
		_ = wantKind(t, errOf(c.CallTool(ctx, "task", nil, nil)), mcpclient.KindProtocol, "tasks extension")
		_ = wantKind(t, errOf(c.ListPrompts(ctx)), mcpclient.KindProtocol, "prompts/list")
		declared := &mcpclient.CallOptions{ReturnTask: true, Capabilities: jsontext.Value(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)}
		if r, err := c.CallTool(ctx, "task", nil, declared); err != nil || r.Type != mcpclient.ResultTask {
			t.Errorf("a declared extension: %+v %v", r, err)
		}
		if r, err := c.CallTool(ctx, "null", nil, nil); err != nil || r.Type != mcpclient.ResultComplete {
			t.Errorf("a null resultType: %+v %v", r, err)
		}
		if r, err := c.CallTool(ctx, "input", nil, &mcpclient.CallOptions{ReturnInput: true}); err != nil || r.Type != mcpclient.ResultInputRequired {
			t.Errorf("input_required: %+v %v", r, err)
		}
	})
}

func TestAContinuationCarriesItsStateVerbatim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{})
		for i, state := range []*string{nil, new(""), new("ünïcode \\/ \u2028")} {
			_, err := c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{InputResponses: jsontext.Value(`{"k":{"action":"cancel"}}`), RequestState: state})
			if err != nil {
				t.Fatal(err)
			}
			params := jsontext.Value(s.Entries("tools/call")[i].Params())
			has := strings.Contains(string(params), `"requestState"`)
			if has != (state != nil) || !strings.Contains(string(params), `"inputResponses":{"k":{"action":"cancel"}}`) {
				t.Errorf("state %v: %s", state, params)
			}
		}
	})
}

func TestServersRequestsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///srv", Name: "srv"}}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.WaitFor(t.Context(), mcptest.MethodGet, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for method, want := range map[string]string{"ping": `{}`, "roots/list": `{"roots":[{"uri":"file:///srv","name":"srv"}]}`} {
			if got, err := s.Ask(t.Context(), method, nil); err != nil || string(got) != want {
				t.Errorf("%s: %s %v", method, got, err)
			}
		}
		if _, err := s.Ask(t.Context(), "foo/bar", nil); err == nil || !strings.Contains(err.Error(), "-32601") {
			t.Errorf("an unknown request: %v", err)
		}
	})
}

func TestOptionsAreCheckedBeforeAnythingStarts(t *testing.T) {
	if _, err := mcpclient.New(nil, mcpclient.Options{}); err == nil {
		t.Error("a nil transport was accepted")
	}
	if _, err := mcpclient.New(&transport.HTTP{URL: "http://x"}, mcpclient.Options{MaxPages: -1}); err == nil {
		t.Error("a negative MaxPages was accepted")
	}
}

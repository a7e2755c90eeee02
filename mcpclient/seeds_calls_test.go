package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// operations are the operations that have a timeout of their own, by method.
func operations(c *mcpclient.Client) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"tools/call":               func() error { return errOf(c.CallTool(ctx, "echo", nil, nil)) },
		"tools/list":               func() error { return errOf(c.ListTools(ctx)) },
		"resources/list":           func() error { return errOf(c.ListResources(ctx)) },
		"resources/templates/list": func() error { return errOf(c.ListResourceTemplates(ctx)) },
		"resources/read":           func() error { return errOf(c.ReadResource(ctx, "demo://a", nil)) },
		"prompts/list":             func() error { return errOf(c.ListPrompts(ctx)) },
		"prompts/get":              func() error { return errOf(c.GetPrompt(ctx, "hi", nil, nil)) },
		"completion/complete": func() error {
			return errOf(c.Complete(ctx, mcpclient.CompleteParams{Prompt: "hi", Argument: "a"}, nil))
		},
	}
}

func TestEveryOperationHasItsTimeoutAndADefault(t *testing.T) {
	own := mcpclient.Timeouts{Tool: 1 * time.Second, Resource: 2 * time.Second, Prompt: 3 * time.Second, Completion: 4 * time.Second}
	ownTimes := map[string]time.Duration{
		"tools/call": own.Tool, "tools/list": own.Tool, "resources/list": own.Resource, "resources/templates/list": own.Resource,
		"resources/read": own.Resource, "prompts/list": own.Prompt, "prompts/get": own.Prompt, "completion/complete": own.Completion,
	}
	for _, timeouts := range []mcpclient.Timeouts{{}, own} {
		for method := range ownTimes {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Legacy)
				s.Handle = map[string]mcptest.Handler{method: mcptest.Silence()}
				c := overHTTP(t, s, mcpclient.Options{Timeouts: timeouts, Health: mcpclient.HealthOptions{Disabled: true}})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := time.Minute
				if timeouts.Tool != 0 {
					want = ownTimes[method]
				}
				start := time.Now()
				_ = wantKind(t, operations(c)[method](), mcpclient.KindTimeout, "")
				if took := time.Since(start); took != want {
					t.Errorf("%s gave up after %v, want %v", method, took, want)
				}
			})
		}
	}
}

func TestEachPageHasTheWholeTimeAndMaxBoundsThemAll(t *testing.T) {
	for _, limit := range []time.Duration{0, 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern) // four tools, one a page
			s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Delay(9*time.Second, nil)}
			c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 10 * time.Second, Max: limit}})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			list, err := c.ListTools(t.Context())
			took := time.Since(start)
			if limit == 0 && (err != nil || len(list.Items) != 4 || took != 36*time.Second) {
				t.Errorf("without a bound: %v after %v", err, took)
			}
			if limit != 0 && (!errors.Is(err, &mcpclient.Error{Kind: mcpclient.KindTimeout}) || took != limit) {
				t.Errorf("with Max %v: %v after %v", limit, err, took)
			}
		})
	}
}

func TestWithoutRetriesALostConnectionIsTold(t *testing.T) {
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"resources/read": mcptest.Sequence(mcptest.Hangup(), nil)}
			c := overHTTP(t, s, mcpclient.Options{Reconnect: mcpclient.ReconnectOptions{NoRetry: off}})
			_, err := c.ReadResource(t.Context(), "demo://a", nil)
			if off {
				_ = wantKind(t, err, mcpclient.KindLost, "")
			} else if err != nil {
				t.Errorf("a read is repeated: %v", err)
			}
			if want := map[bool]int{false: 2, true: 1}[off]; s.Count("resources/read") != want {
				t.Errorf("%d reads, want %d", s.Count("resources/read"), want)
			}
		})
	}
}

func TestAProgressHandlerOfAllAsksOnToolCallsAlone(t *testing.T) {
	for _, with := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var told atomic.Int32
			s := features(mcptest.Modern)
			s.Tools = append(s.Tools, mcptest.Tool{Name: "steps", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
				r.Progress(1, 2, "half")
				return mcptest.Text("done"), nil
			}})
			var o mcpclient.Options
			if with {
				o.Handlers.Progress = func(context.Context, mcpclient.Progress) { told.Add(1) }
			}
			c := overHTTP(t, s, o)
			for method, op := range operations(c) {
				if err := op(); err != nil {
					t.Fatalf("%s: %v", method, err)
				}
			}
			if _, err := c.CallTool(t.Context(), "steps", nil, nil); err != nil {
				t.Fatal(err)
			}
			for _, e := range s.Transcript() {
				if asked := e.Meta(mcpclient.MetaProgressToken) != nil; asked != (with && e.Method == "tools/call") {
					t.Errorf("handler %v: %s asks for progress: %v", with, e.Method, asked)
				}
			}
			if want := map[bool]int32{true: 1, false: 0}[with]; told.Load() != want {
				t.Errorf("handler %v: told %d times", with, told.Load())
			}
		})
	}
}

func TestProgressTokensMayComeFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := []any{"t", int64(7), "t", ""}
		s := features(mcptest.Modern)
		n := -1
		c := overHTTP(t, s, mcpclient.Options{NewProgressToken: func() any { n++; return tokens[n] }})
		options := &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) {}}
		if err := errors.Join(errOf(c.ReadResource(t.Context(), "demo://a", options)), errOf(c.ReadResource(t.Context(), "demo://a", options))); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range s.Entries("resources/read") {
			got = append(got, string(e.Meta(mcpclient.MetaProgressToken)))
		}
		if !slices.Equal(got, []string{`"t"`, "7"}) {
			t.Errorf("the tokens were %v", got)
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", options); err != nil { // "t" is free again
			t.Errorf("a token whose request is over: %v", err)
		}
		_ = wantKind(t, errOf(c.ReadResource(t.Context(), "demo://a", options)), mcpclient.KindInvalid, "NewProgressToken")
	})
}

func TestMetaIsSuppliedForAllWeBeginAndForNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{
			Meta: func(_ context.Context, _ *mcpclient.Call, m *mcpclient.Meta) error {
				m.SetString("x/mine", "1")
				return nil
			},
			Roots: []mcpclient.Root{{URI: "file:///a"}},
		})
		for method, op := range operations(c) {
			if err := op(); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
		}
		if err := c.SetRoots(t.Context(), []mcpclient.Root{{URI: "file:///b"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.WaitFor(t.Context(), "notifications/roots/list_changed", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ask(t.Context(), "roots/list", nil); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, e := range s.Transcript() {
			if e.Method == mcptest.MethodGet || e.Method == mcptest.MethodDelete {
				continue
			}
			seen[e.Method] = true
			if got := strings.Contains(string(e.Raw), "x/mine"); got != (e.Method != mcptest.MethodResponse) {
				t.Errorf("%s carries the supplied member: %v", e.Method, got)
			}
		}
		for _, method := range []string{"initialize", "notifications/initialized", "notifications/roots/list_changed", mcptest.MethodResponse} {
			if !seen[method] {
				t.Errorf("%s was not seen", method)
			}
		}
	})
}

func TestAnExtractorMakesTheValueUnlessItIsStructured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Tools = append(s.Tools, mcptest.Tool{Name: "picture", Call: mcptest.Respond(mcptest.Raw(
			`{"content":[{"type":"image","data":"AA==","mimeType":"image/png"}],"_meta":{"k":"server","only":1}}`))})
		var calls atomic.Int32
		c := overHTTP(t, s, mcpclient.Options{ToolResult: func(_ context.Context, r *mcpclient.ToolResult) (any, map[string]any, error) {
			calls.Add(1)
			if r.IsError {
				return nil, nil, errors.New("cannot")
			}
			return len(r.Content), map[string]any{"k": r.Content[0].MIMEType}, nil
		}})
		value, err := c.CallToolValue(t.Context(), "picture", nil, nil)
		if err != nil || value.Value != 1 || value.Text != "" || value.Attributes["k"] != "image/png" || fmt.Sprintf("%s", value.Attributes["only"]) != "1" {
			t.Errorf("%+v %v", value, err)
		}
		if value, err := c.CallToolValue(t.Context(), "echo", jsontext.Value(`{"a":1}`), nil); err != nil || value.Text != `{"a":1}` || calls.Load() != 1 {
			t.Errorf("structured content needs no extractor: %+v %v, %d calls", value, err, calls.Load())
		}
		if e, ok := errors.AsType[*mcpclient.ToolError](errOf(c.CallToolValue(t.Context(), "fail", nil, nil))); !ok || e.Text != "no" {
			t.Errorf("a failure keeps the tool's own text: %v", e)
		}
	})
}

func TestExactlyTheCapIsAdmittedAndTheCodeIsChosen(t *testing.T) {
	for _, limit := range []int{0, 3, mcpclient.Unlimited} {
		synctest.Test(t, func(t *testing.T) {
			admitted := map[int]int{0: 1024, 3: 3, mcpclient.Unlimited: 1100}[limit]
			gate := make(chan struct{})
			var running atomic.Int32
			s := features(mcptest.Legacy)
			c := overPipe(t, s, mcpclient.Options{
				Dispatch: mcpclient.DispatchOptions{MaxInFlight: limit, OverloadCode: -32099},
				Handlers: mcpclient.Handlers{Request: map[string]func(context.Context, jsontext.Value) (jsontext.Value, error){"x/block": blocked(gate, &running)}},
			})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			answers := make(chan error, admitted)
			for range admitted {
				go func() { answers <- errOf(s.Ask(t.Context(), "x/block", nil)) }()
			}
			synctest.Wait()
			if n := int(running.Load()); n != admitted {
				t.Errorf("cap %d: %d run, want %d", limit, n, admitted)
			}
			if limit != mcpclient.Unlimited {
				if err := errOf(s.Ask(t.Context(), "x/block", nil)); err == nil || !strings.Contains(err.Error(), "-32099") {
					t.Errorf("cap %d: one more gives %v", limit, err)
				}
			}
			close(gate)
			for range admitted {
				if err := <-answers; err != nil {
					t.Errorf("cap %d: %v", limit, err)
				}
			}
		})
	}
}

func TestAListIsBoundedOverItsPages(t *testing.T) {
	for limit, fits := range map[int64]bool{0: true, 200: false, mcpclient.Unlimited: true} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			c := overHTTP(t, s, mcpclient.Options{MaxListBytes: limit})
			_, err := c.ListTools(t.Context())
			if fits && err != nil {
				t.Errorf("limit %d: %v", limit, err)
			}
			if e, ok := errors.AsType[*mcpclient.Error](err); !fits && (!ok || e.Kind != mcpclient.KindTooLarge || e.Limit != limit) {
				t.Errorf("limit %d: %v", limit, err)
			}
		})
	}
}

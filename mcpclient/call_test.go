package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestTimeoutsEndACallExactlyThenAndTheServerHearsOfItOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		era      mcptest.Era
		timeouts mcpclient.Timeouts
		deadline time.Duration // of the caller; 0 = none
		leave    time.Duration // when the caller goes away; 0 = never
		after    time.Duration
		kind     mcpclient.Kind
		text     string
	}{
		"the caller's deadline, legacy":           {era: mcptest.Legacy, deadline: 5 * time.Second, after: 5 * time.Second, kind: mcpclient.KindTimeout, text: "caller's deadline"},
		"the caller's deadline, modern":           {deadline: 5 * time.Second, after: 5 * time.Second, kind: mcpclient.KindTimeout, text: "caller's deadline"},
		"the configured timeout, legacy":          {era: mcptest.Legacy, timeouts: mcpclient.Timeouts{Tool: 7 * time.Second}, after: 7 * time.Second, kind: mcpclient.KindTimeout, text: "timeouts.tool)"},
		"the configured timeout, modern":          {timeouts: mcpclient.Timeouts{Tool: 7 * time.Second}, after: 7 * time.Second, kind: mcpclient.KindTimeout, text: "7s"},
		"the tool's own timeout":                  {timeouts: mcpclient.Timeouts{Tool: time.Second, Tools: map[string]time.Duration{"stuck": 90 * time.Second}}, after: 90 * time.Second, kind: mcpclient.KindTimeout, text: "timeouts.tools.stuck"},
		"the earlier of two":                      {timeouts: mcpclient.Timeouts{Tool: time.Minute}, deadline: 3 * time.Second, after: 3 * time.Second, kind: mcpclient.KindTimeout, text: "caller's deadline"},
		"no timeout but the caller's":             {timeouts: mcpclient.Timeouts{Tool: mcpclient.NoTimeout}, deadline: 26 * time.Hour, after: 26 * time.Hour, kind: mcpclient.KindTimeout},
		"a caller that goes away, legacy":         {era: mcptest.Legacy, leave: 2 * time.Second, after: 2 * time.Second, kind: mcpclient.KindCanceled, text: "went away"},
		"a caller that goes away, modern":         {leave: 2 * time.Second, after: 2 * time.Second, kind: mcpclient.KindCanceled, text: "went away"},
		"the default of a minute, if none is set": {after: time.Minute, kind: mcpclient.KindTimeout, text: "1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(tc.era)
				c := overHTTP(t, s, mcpclient.Options{Timeouts: tc.timeouts})
				if _, err := c.ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, cancel)
				}
				start := time.Now()
				_, err := c.CallTool(ctx, "stuck", nil, nil)
				_ = wantKind(t, err, tc.kind, tc.text)
				if took := time.Since(start); took != tc.after {
					t.Errorf("it took %v, want exactly %v", took, tc.after)
				}
				synctest.Wait()
				id := s.Entries("tools/call")[0].ID
				cancelled := s.Entries("notifications/cancelled")
				if tc.era == mcptest.Modern {
					if s.Count(mcptest.MethodAborted) != 1 || len(cancelled) != 0 {
						t.Errorf("the stream must be closed, and nothing sent: %v", s.Methods())
					}
					return
				}
				if len(cancelled) != 1 || !strings.Contains(string(cancelled[0].Params()), `"requestId":`+id+`,`) {
					t.Errorf("want one cancellation of %s, got %v", id, cancelled)
				}
			})
		})
	}
}

func TestACallThatWasEndedForAReasonNamesIt(t *testing.T) {
	for name, tc := range map[string]struct {
		cause error
		kind  mcpclient.Kind
		text  string
	}{
		"a reason":          {errors.New("the program is shutting down"), mcpclient.KindCanceled, "before the call was ended: the program is shutting down"},
		"none":              {nil, mcpclient.KindCanceled, "before the caller went away"},
		"a wrapped default": {fmt.Errorf("done: %w", context.Canceled), mcpclient.KindCanceled, "before the caller went away"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := overHTTP(t, features(mcptest.Modern), mcpclient.Options{})
				connected(t, c)
				ctx, end := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { end(tc.cause) })
				_, err := c.CallTool(ctx, "stuck", nil, nil)
				if e := wantKind(t, err, tc.kind, tc.text); !errors.Is(e, context.Canceled) {
					t.Errorf("%v is no cancellation", e)
				}
			})
		})
	}
	t.Run("a deadline with a reason", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := overHTTP(t, features(mcptest.Modern), mcpclient.Options{})
			connected(t, c)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the turn is over"))
			defer cancel()
			_ = wantKind(t, errOf(c.CallTool(ctx, "stuck", nil, nil)), mcpclient.KindTimeout, "before the call was ended: the turn is over")
		})
	})
}

func TestMetaIsMergedInOrder(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			var mu sync.Mutex
			seen := map[string]int{}
			c := overHTTP(t, s, mcpclient.Options{
				Info: mcpclient.Implementation{Name: "tester", Version: "1"},
				Meta: func(ctx context.Context, call *mcpclient.Call, m *mcpclient.Meta) error {
					mu.Lock()
					seen[call.Method]++
					mu.Unlock()
					span, _ := ctx.Value(spanKey{}).(string)
					m.SetString("traceparent", span)
					m.SetString("io.modelcontextprotocol/protocolVersion", "forged")
					return nil
				},
				Headers: func(_ context.Context, call *mcpclient.Call, h http.Header) { h.Set("Traceparent", "h-"+call.Method) },
				Interceptors: []mcpclient.Interceptor{
					func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
						return next(context.WithValue(ctx, spanKey{}, "span of "+call.Method), call)
					},
				},
			})
			meta := jsontext.Value(`{"mine":{"n":1},"traceparent":"stale","progressToken":7,"io.modelcontextprotocol/clientInfo":"forged","gone":null}`)
			if _, err := c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{Meta: meta}); err != nil {
				t.Fatal(err)
			}
			e := s.Entries("tools/call")[0]
			for key, want := range map[string]string{
				"mine": `{"n":1}`, "traceparent": `"span of tools/call"`, "progressToken": "", "gone": "",
			} {
				if got := string(e.Meta(key)); got != want {
					t.Errorf("era %v: _meta %s is %s, want %s", era, key, got, want)
				}
			}
			if got := e.Header.Get("Traceparent"); got != "h-tools/call" {
				t.Errorf("the header is %q", got)
			}
			for key, want := range map[string]string{
				"io.modelcontextprotocol/protocolVersion":    `"2026-07-28"`,
				"io.modelcontextprotocol/clientInfo":         `{"name":"tester","version":"1"}`,
				"io.modelcontextprotocol/clientCapabilities": `{}`,
			} {
				if era == mcptest.Legacy {
					want = ""
				}
				if got := string(e.Meta(key)); got != want {
					t.Errorf("era %v: _meta %s is %s, want %s", era, key, got, want)
				}
			}
			for _, entry := range s.Transcript() {
				if !strings.Contains(entry.Method, "/") && entry.Method != "initialize" {
					continue
				}
				if string(entry.Meta("traceparent")) != `"span of `+entry.Method+`"` || seen[entry.Method] == 0 {
					t.Errorf("era %v: %s has _meta %s", era, entry.Method, entry.Meta("traceparent"))
				}
			}
		})
	}
}

type spanKey struct{}

func TestAFailingMetaSupplierStopsARequestButNotANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		failing := ""
		c := overHTTP(t, s, mcpclient.Options{Meta: func(_ context.Context, call *mcpclient.Call, m *mcpclient.Meta) error {
			m.SetString("k", "v")
			if call.Method == failing || call.IsNotification() {
				return errors.New("no")
			}
			return nil
		}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.Entries("notifications/initialized"); len(n) != 1 || n[0].Meta("k") != nil {
			t.Errorf("the notification is %v", n)
		}
		failing = "tools/call"
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindInternal, "meta supplier")
		if s.Count("tools/call") != 0 || !e.SafeToRetry {
			t.Error("something was sent")
		}
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, &mcpclient.CallOptions{Meta: jsontext.Value(`[]`)})), mcpclient.KindInvalid, "meta")
	})
}

func TestParametersAreMirroredIntoHeadersFromTheFirstCallOn(t *testing.T) {
	tool := func(header string) mcptest.Tool {
		return mcptest.Tool{Name: "q", InputSchema: `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"` + header + `"}}}`, Call: mcptest.Echo()}
	}
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Tools = append(s.Tools, tool("Region"), mcptest.Tool{Name: "bad", InputSchema: `{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}`})
		c := overHTTP(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "q", jsontext.Value(`{"region":"Zürich"}`), nil); err != nil {
			t.Fatal(err)
		}
		if got := s.Entries("tools/call")[0].Header.Get("Mcp-Param-Region"); got != "=?base64?WsO8cmljaA==?=" {
			t.Errorf("the header is %q", got)
		}
		list, err := c.ListTools(t.Context())
		if err != nil || list.Has("bad") || len(list.Excluded) != 1 || list.Excluded[0].Name != "bad" {
			t.Errorf("an invalid definition must be left out and named: %+v %v", list, err)
		}
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "bad", nil, nil)), mcpclient.KindInvalid, "definition is invalid")
	})
}

func TestABrokenListDoesNotStopCallsNorIsItAskedForWithEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Fail(-32603, "fetch failed", nil, 200)}
		c := overHTTP(t, s, mcpclient.Options{})
		for range 5 {
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Count("tools/list"); n != 1 {
			t.Errorf("the list was asked for %d times", n)
		}
		time.Sleep(10 * time.Second)
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil || s.Count("tools/list") != 2 {
			t.Errorf("%v, %d lists", err, s.Count("tools/list"))
		}
	})
}

func TestAHeaderMismatchIsMendedByListingAgainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		refusals := 1
		s.Handle = map[string]mcptest.Handler{"tools/call": func(_ context.Context, r *mcptest.Request) (any, error) {
			if r.N <= refusals {
				return nil, &mcptest.Error{Code: -32020, Message: "mismatch", Status: 400}
			}
			return mcptest.Text("ok"), nil
		}}
		c := overHTTP(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if calls := s.Entries("tools/call"); len(calls) != 2 || calls[0].ID == calls[1].ID {
			t.Errorf("want two attempts with ids of their own: %v", calls)
		}
		refusals = 100
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindRPC, "-32020")
		if s.Count("tools/call") != 4 {
			t.Errorf("%d attempts, want 4", s.Count("tools/call"))
		}
	})
}

func TestRequestIDsMayComeFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := []any{"a", int64(0), 1 << 53, "", 1.5}
		s := features(mcptest.Modern)
		n := -1
		c := overHTTP(t, s, mcpclient.Options{NewID: func() any { n = min(n+1, len(ids)-1); return ids[n] },
			Changes: mcpclient.ChangeOptions{NoTools: true, NoResources: true, NoPrompts: true}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Fatal(err)
		}
		if got := []string{s.Entries("server/discover")[0].ID, s.Entries("resources/read")[0].ID}; !slices.Equal(got, []string{`"a"`, "0"}) {
			t.Errorf("the ids are %v", got)
		}
		for range 3 {
			_ = wantKind(t, errOf(c.ReadResource(t.Context(), "demo://a", nil)), mcpclient.KindInvalid, "NewID")
		}
	})
}

func TestCompleteNeedsExactlyOneReference(t *testing.T) {
	c := newClient(t, nowhere{}, mcpclient.Options{})
	for _, p := range []mcpclient.CompleteParams{{}, {Prompt: "p", ResourceTemplate: "t"}} {
		_ = wantKind(t, errOf(c.Complete(t.Context(), p, nil)), mcpclient.KindInvalid, "exactly one")
	}
}

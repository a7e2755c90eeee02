package mcpclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// blocked is a handler that waits for its gate or its cancellation.
func blocked(gate <-chan struct{}, running *atomic.Int32) func(context.Context, jsontext.Value) (jsontext.Value, error) {
	return func(ctx context.Context, _ jsontext.Value) (jsontext.Value, error) {
		running.Add(1)
		defer running.Add(-1)
		select {
		case <-gate:
			return jsontext.Value("{}"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestPastTheCapARequestIsRefusedAndEverythingElseGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		gate := make(chan struct{})
		var running, told atomic.Int32
		var out bytes.Buffer
		c := overPipe(t, s, mcpclient.Options{
			Dispatch: mcpclient.DispatchOptions{MaxInFlight: 1},
			Handlers: mcpclient.Handlers{
				Request:      map[string]func(context.Context, jsontext.Value) (jsontext.Value, error){"x/block": blocked(gate, &running)},
				Notification: map[string]func(context.Context, mcpclient.Notification){"x/told": func(context.Context, mcpclient.Notification) { told.Add(1) }},
			},
			Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &out}, nil)),
		})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() { first <- errOf(s.Ask(t.Context(), "x/block", nil)) }()
		synctest.Wait()
		if _, err := s.Ask(t.Context(), "x/block", nil); err == nil || !strings.Contains(err.Error(), "-32000") || !strings.Contains(err.Error(), "overloaded") {
			t.Errorf("the second request: %v", err)
		}
		if _, err := s.Ask(t.Context(), "ping", nil); err != nil {
			t.Errorf("a ping is outside of the cap: %v", err)
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Errorf("our own calls are outside of the cap: %v", err)
		}
		for range 250 {
			s.Notify("x/told", nil)
			s.Notify("x/nobody", nil) // without a handler it costs nothing
		}
		synctest.Wait()
		if n := told.Load(); n != 0 {
			t.Errorf("%d notifications passed the cap", n)
		}
		close(gate)
		if err := <-first; err != nil {
			t.Errorf("the admitted request: %v", err)
		}
		synctest.Wait()
		s.Notify("x/told", nil)
		synctest.Wait()
		if told.Load() != 1 {
			t.Error("the place was not given back")
		}
		if n := strings.Count(out.String(), "were shed"); n != 3 { // 1, 100, 200 of 251
			t.Errorf("%d lines about shedding, want 3:\n%s", n, out.String())
		}
	})
}

// lockedWriter lets a log be read after the goroutines that wrote it are idle.
type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestAWithdrawnRequestFreesItsPlaceAndIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		var running atomic.Int32
		c := overPipe(t, s, mcpclient.Options{
			Dispatch: mcpclient.DispatchOptions{MaxInFlight: 1},
			Handlers: mcpclient.Handlers{Request: map[string]func(context.Context, jsontext.Value) (jsontext.Value, error){"x/block": blocked(nil, &running)}},
		})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Send(`{"jsonrpc":"2.0","id":"q1","method":"x/block"}`)
		synctest.Wait()
		s.Send(`{"jsonrpc":"2.0","id":"q1","method":"x/block"}`) // over the cap before it is a duplicate
		synctest.Wait()
		if running.Load() != 1 {
			t.Fatalf("%d handlers run", running.Load())
		}
		answers := s.Count(mcptest.MethodResponse)
		s.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}`)
		synctest.Wait()
		if running.Load() != 0 || s.Count(mcptest.MethodResponse) != answers {
			t.Errorf("%d run, %d answers more", running.Load(), s.Count(mcptest.MethodResponse)-answers)
		}
		if _, err := s.Ask(t.Context(), "roots/list", nil); err == nil || strings.Contains(err.Error(), "overloaded") {
			t.Errorf("the place was not given back: %v", err)
		}
		s.ForgiveViolations() // the scripted server broke rules itself
	})
}

func TestHandlersMayFailAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		var mu sync.Mutex
		var order []string
		c := overPipe(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{
			Request: map[string]func(context.Context, jsontext.Value) (jsontext.Value, error){
				"x/fail":  func(context.Context, jsontext.Value) (jsontext.Value, error) { return nil, errors.New("secret detail") },
				"x/panic": func(context.Context, jsontext.Value) (jsontext.Value, error) { panic("secret detail") },
				"x/echo":  func(_ context.Context, p jsontext.Value) (jsontext.Value, error) { return p, nil },
			},
			Notification: map[string]func(context.Context, mcpclient.Notification){"": func(_ context.Context, n mcpclient.Notification) {
				mu.Lock()
				order = append(order, string(n.Params))
				mu.Unlock()
				if len(order) == 2 {
					panic("no")
				}
			}},
		}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"x/fail", "x/panic"} {
			if _, err := s.Ask(t.Context(), method, nil); err == nil || !strings.Contains(err.Error(), "-32603") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", method, err)
			}
		}
		if got, err := s.Ask(t.Context(), "x/echo", map[string]any{"n": 1}); err != nil || string(got) != `{"n":1}` {
			t.Errorf("%s %v", got, err)
		}
		for i := range 5 {
			s.Notify("x/n", map[string]any{"i": i})
		}
		synctest.Wait()
		if len(order) != 5 || order[0] != `{"i":0}` || order[4] != `{"i":4}` {
			t.Errorf("notifications arrived as %v", order)
		}
	})
}

func TestAModernServersRequestsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overPipe(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		synctest.Wait()
		if n := s.Count(mcptest.MethodResponse); n != 0 {
			t.Errorf("%d responses to a modern server", n)
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Error(err)
		}
	})
}

func TestLogMessagesGoToTheirRequestOrToTheClient(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			s.Capabilities = `{"logging":{},"tools":{}}`
			s.Handle = map[string]mcptest.Handler{"logging/setLevel": mcptest.Respond(mcptest.Raw(`{}`))}
			s.Tools = append(s.Tools, mcptest.Tool{Name: "talks", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
				for i := range 3 {
					r.Notify("notifications/message", map[string]any{"level": "info", "logger": "t", "data": fmt.Sprint(i)})
				}
				return mcptest.Text("done"), nil
			}})
			var mu sync.Mutex
			var client, call []string
			c := overHTTP(t, s, mcpclient.Options{
				LogLevel: mcpclient.LogWarning,
				Handlers: mcpclient.Handlers{Log: func(_ context.Context, m mcpclient.LogMessage) {
					mu.Lock()
					defer mu.Unlock()
					client = append(client, string(m.Data))
				}},
			})
			_, err := c.CallTool(t.Context(), "talks", nil, &mcpclient.CallOptions{LogLevel: mcpclient.LogDebug, Log: func(_ context.Context, m mcpclient.LogMessage) {
				call = append(call, string(m.Level)+string(m.Data))
			}})
			if err != nil || strings.Join(call, " ") != `info"0" info"1" info"2"` {
				t.Errorf("era %v: %v, the call saw %v", era, err, call)
			}
			if _, err := c.CallTool(t.Context(), "talks", nil, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if strings.Join(client, " ") != `"0" "1" "2"` {
				t.Errorf("era %v: the client saw %v", era, client)
			}
			var levels strings.Builder
			for _, e := range s.Entries("tools/call") {
				levels.WriteString(string(e.Meta("io.modelcontextprotocol/logLevel")))
			}
			if era == mcptest.Modern && levels.String() != `"debug""warning"` {
				t.Errorf("the levels asked for are %s", levels.String())
			}
			if era == mcptest.Legacy && (levels.String() != "" || s.Count("logging/setLevel") != 1) {
				t.Errorf("legacy: levels %q, setLevel %d", levels.String(), s.Count("logging/setLevel"))
			}
		})
	}
}

func TestWhatAClientDeclares(t *testing.T) {
	for name, tc := range map[string]struct {
		o    mcpclient.Options
		want string
	}{
		"nothing": {mcpclient.Options{}, `{}`},
		"handlers": {mcpclient.Options{
			Handlers: mcpclient.Handlers{
				Elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) { return nil, nil }, ElicitURLs: true,
				Sample: func(context.Context, jsontext.Value) (jsontext.Value, error) { return nil, nil },
			},
			Roots: []mcpclient.Root{{URI: "file:///srv"}},
		}, `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`},
		"configured": {mcpclient.Options{Capabilities: mcpclient.Capabilities{
			SamplingTools: true, SamplingContext: true, Extensions: map[string]jsontext.Value{"b.x/y": jsontext.Value(`{"a":1}`), "a.x/y": jsontext.Value(`{}`)},
		}}, `{"sampling":{"tools":{},"context":{}},"extensions":{"a.x/y":{},"b.x/y":{"a":1}}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, old := features(mcptest.Modern), features(mcptest.Legacy)
			c, legacy := overHTTP(t, s, tc.o), overHTTP(t, old, tc.o)
			if err := errors.Join(c.Connect(t.Context()), legacy.Connect(t.Context())); err != nil {
				t.Fatal(err)
			}
			if got := string(s.Entries("server/discover")[0].Meta("io.modelcontextprotocol/clientCapabilities")); got != tc.want {
				t.Errorf("%s: modern %s, want %s", name, got, tc.want)
			}
			want := strings.Replace(tc.want, `"roots":{}`, `"roots":{"listChanged":true}`, 1)
			if got := string(old.Entries("initialize")[0].Params()); !strings.Contains(got, `"capabilities":`+want) {
				t.Errorf("%s: legacy %s, want %s", name, got, want)
			}
		})
	}
}

func TestTheHandshakeMayCarryMetaOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{
			InitializeMeta: jsontext.Value(`{"tenant":"acme","k":"own"}`),
			Meta: func(_ context.Context, _ *mcpclient.Call, m *mcpclient.Meta) error {
				m.SetString("k", "supplied")
				return nil
			},
			Version: mcpclient.VersionOptions{Advertise: "2025-03-26"},
		})
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Fatal(err)
		}
		init, read := s.Entries("initialize")[0], s.Entries("resources/read")[0]
		if string(init.Meta("tenant")) != `"acme"` || string(init.Meta("k")) != `"own"` || read.Meta("tenant") != nil || string(read.Meta("k")) != `"supplied"` {
			t.Errorf("initialize %s, read %s", init.Params(), read.Params())
		}
		if got := c.Status().Server.ProtocolVersion; got != "2025-03-26" {
			t.Errorf("the advertised version was not asked for: %s", got)
		}
	})
}

func TestAMinimumVersionRefusesOlderServers(t *testing.T) {
	for _, minimum := range []string{"2025-06-18", "2026-07-28"} {
		synctest.Test(t, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Versions: []string{"2025-03-26", "2024-11-05"}}
			c := overHTTP(t, s, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{Minimum: minimum}})
			_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindVersion, minimum)
			s.ForgiveViolations()
		})
	}
}

func TestClientInfoMayBeHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{HideInfo: true})
		_, err := c.ReadResource(t.Context(), "demo://a", &mcpclient.CallOptions{Meta: jsontext.Value(`{"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}`)})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Transcript() {
			if e.Meta("io.modelcontextprotocol/clientInfo") != nil {
				t.Errorf("%s tells who we are: %s", e.Method, e.Params())
			}
		}
		s.ForgiveViolations() // the fake expects what the specification only recommends
	})
}

func TestResultsBecomeValues(t *testing.T) {
	answers := map[string]string{
		"text":       `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"_meta":{"mine":1,"io.modelcontextprotocol/serverInfo":{}}}`,
		"structured": `{"content":[{"type":"image"}],"structuredContent":{"id":9007199254740993}}`,
		"null":       `{"content":[{"type":"text","text":"a"}],"structuredContent":null}`,
		"image":      `{"content":[{"type":"image","data":"AA=="}]}`,
		"fails":      `{"content":[{"type":"text","text":"no"},{"type":"hologram","x":1}],"isError":true}`,
		"nothing":    `{}`,
		"empty":      `{"content":[]}`,
	}
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		for name, raw := range answers {
			s.Tools = append(s.Tools, mcptest.Tool{Name: name, Call: mcptest.Respond(mcptest.Raw(raw))})
		}
		c := overHTTP(t, s, mcpclient.Options{})
		for name, want := range map[string]string{"text": "a\nb", "structured": `{"id":9007199254740993}`, "null": "a", "empty": ""} {
			value, err := c.CallToolValue(t.Context(), name, nil, nil)
			if err != nil || value.Text != want {
				t.Errorf("%s: %+v %v", name, value, err)
				continue
			}
			if _, reserved := value.Attributes["io.modelcontextprotocol/serverInfo"]; reserved || (name == "text" && value.Attributes["mine"] == nil) {
				t.Errorf("%s: attributes %v", name, value.Attributes)
			}
		}
		if _, err := c.CallToolValue(t.Context(), "image", nil, nil); err == nil || !strings.Contains(err.Error(), "image") {
			t.Errorf("image: %v", err)
		}
		if e, ok := errors.AsType[*mcpclient.ToolError](errOf(c.CallToolValue(t.Context(), "fails", nil, nil))); !ok || e.Text != "no" || e.Tool != "fails" {
			t.Errorf("fails: %v", e)
		}
		_ = wantKind(t, errOf(c.CallToolValue(t.Context(), "nothing", nil, nil)), mcpclient.KindProtocol, "neither content nor")
	})
}

func TestAFloodOfPingsThatNobodyReadsCostsABoundedNumberOfAnswers(t *testing.T) {
	tr, server := transport.NewPipe()
	c := newClient(t, tr, mcpclient.Options{Version: mcpclient.VersionOptions{Pin: "2025-11-25"}})
	c.Start()
	conn, err := server.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for i := range 20_000 { // it never reads what we answer
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if more := runtime.NumGoroutine() - before; more > 400 {
		t.Errorf("%d goroutines for the answers", more)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

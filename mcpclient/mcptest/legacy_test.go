package mcptest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

const initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// open initialises a session and returns the headers of its requests.
func open(t *testing.T, c *client) []string {
	t.Helper()
	resp := c.do(http.MethodPost, initializeBody)
	if resp.StatusCode != 200 {
		t.Fatalf("initialize = %d", resp.StatusCode)
	}
	header := []string{"MCP-Protocol-Version", "2025-11-25", "Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id")}
	if status, _ := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, header...); status != 202 {
		t.Fatalf("initialized = %d", status)
	}
	return header
}

func newLegacy(t *testing.T, s *Server) (*Server, *client) {
	s.Era = Legacy
	return s, newClient(t, StartHTTP(t, s))
}

func request(id, method string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`
}

func TestLegacySessionsOpenExpireAndEnd(t *testing.T) {
	s, c := newLegacy(t, &Server{})
	if status, body := c.post(request("1", "server/discover")); status != 400 || code(t, body) != -32000 {
		t.Errorf("probe = %d %s", status, body)
	}
	header := open(t, c)
	if header[3] != "session-1" {
		t.Errorf("session = %q", header[3])
	}
	if status, _ := c.post(request("2", "tools/list"), header...); status != 200 {
		t.Errorf("list = %d", status)
	}
	s.ExpireSessions()
	if status, _ := c.post(request("3", "tools/list"), header...); status != 404 {
		t.Errorf("after expiry = %d, want 404", status)
	}
	header = open(t, c)
	if resp := c.do(http.MethodDelete, "", header...); resp.StatusCode != 200 {
		t.Errorf("delete = %d", resp.StatusCode)
	}
	if got := s.Count(MethodDelete); got != 1 {
		t.Errorf("deletes = %d", got)
	}
}

func TestLegacySessionsExpireAfterACount(t *testing.T) {
	_, c := newLegacy(t, &Server{Session: SessionOptions{ExpireAfter: 2, ID: func() string { return "s" }}})
	header := open(t, c) // initialized counts
	if status, _ := c.post(request("2", "ping"), header...); status != 200 {
		t.Errorf("second = %d", status)
	}
	if status, _ := c.post(request("3", "ping"), header...); status != 404 {
		t.Errorf("third = %d, want 404", status)
	}
}

func TestLegacyServersWithoutSessionsReinitialise(t *testing.T) {
	_, c := newLegacy(t, &Server{Session: SessionOptions{None: true}})
	for range 2 {
		header := open(t, c)
		if header[3] != "" {
			t.Fatalf("session = %q, want none", header[3])
		}
		if status, _ := c.post(request("2", "tools/list"), header...); status != 200 {
			t.Errorf("list = %d", status)
		}
	}
}

func TestLegacyOrderIsEnforced(t *testing.T) {
	s, c := newLegacy(t, &Server{})
	header := open(t, c)
	for _, tt := range []struct {
		name, body string
		header     []string
		status     int
		violation  string
	}{
		{"reused id", request("1", "tools/list"), header, 200, "earlier request of the session"},
		{"wrong version", request("2", "tools/list"), append(header[2:4:4], "MCP-Protocol-Version", "2026-07-28"), 400, "MCP-Protocol-Version"},
		{"no version", request("2", "tools/list"), header[2:], 400, "MCP-Protocol-Version"},
		{"no session", request("2", "tools/list"), header[:2], 400, "without a session id"},
		{"invented session", request("2", "tools/list"), append(header[:2:2], "Mcp-Session-Id", "x"), 404, "never assigned"},
		{"initialized twice", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header, 202, "sent twice"},
		{"cancel of initialize", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, header, 202, "initialize was cancelled"},
		{"cancel of nothing", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`, header, 202, "never requested"},
		{"unasked response", `{"jsonrpc":"2.0","id":"x","result":{}}`, header, 202, "did not ask"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, body := c.post(tt.body, tt.header...); status != tt.status {
				t.Errorf("status = %d, want %d: %s", status, tt.status, body)
			}
			wantViolation(t, &s.Log, tt.violation)
		})
	}
	resp := c.do(http.MethodPost, strings.Replace(initializeBody, "2025-11-25", "1.0", 1))
	if resp.StatusCode != 200 {
		t.Errorf("status = %d", resp.StatusCode)
	}
	wantViolation(t, &s.Log, `version "1.0"`)
	if status, _ := c.post(request("2", "tools/list"), "MCP-Protocol-Version", "2025-11-25", "Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id")); status != 200 {
		t.Errorf("status = %d", status)
	}
	wantViolation(t, &s.Log, "before notifications/initialized")
}

func TestTheLegacyGetStreamCarriesNotificationsAndQuestions(t *testing.T) {
	s, c := newLegacy(t, &Server{})
	header := open(t, c)
	resp := c.do(http.MethodGet, "", header...)
	next := lines(resp.Body)
	s.Notify("notifications/tools/list_changed", nil)
	if got := next(t); got != `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("notification = %s", got)
	}
	next(t)
	s.Notify("notifications/resources/updated", map[string]any{"uri": "file:///a"}) // not subscribed
	answer := make(chan json.RawMessage, 1)
	go func() {
		got, _ := s.Ask(t.Context(), "roots/list", nil)
		answer <- got
	}()
	if got := next(t); got != `data: {"jsonrpc":"2.0","id":"ask-1","method":"roots/list"}` {
		t.Errorf("question = %s", got)
	}
	if status, _ := c.post(`{"jsonrpc":"2.0","id":"ask-1","result":{"roots":[]}}`, header...); status != 202 {
		t.Errorf("answer = %d", status)
	}
	if got := <-answer; string(got) != `{"roots":[]}` {
		t.Errorf("Ask = %s", got)
	}
	c.do(http.MethodDelete, "", header...)
	next(t)
	if rest, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("stream after DELETE = %q, %v; want its end", rest, err)
	}
}

func TestLegacyDisconnectIsNoCancellationButTheNotificationIs(t *testing.T) {
	ended := make(chan error, 1)
	s, c := newLegacy(t, &Server{Handle: map[string]Handler{"slow": func(ctx context.Context, r *Request) (any, error) {
		r.LogMessage("info", "started")
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ErrSilent
	}}})
	header := open(t, c)
	resp := c.do(http.MethodPost, request("5", "slow"), header...)
	resp.Body.Close()
	if _, err := s.WaitFor(t.Context(), MethodAborted, 1); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the disconnect cancelled the handler: %v", err)
	default:
	}
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`
	c.post(cancel, header...)
	if err := <-ended; !strings.Contains(err.Error(), "cancelled by the client") {
		t.Errorf("cause = %v", err)
	}
	c.post(cancel, header...)
	wantViolation(t, &s.Log, "cancelled twice")
}

func TestLegacyStreamsResumeAfterTheLastEventID(t *testing.T) {
	s, c := newLegacy(t, &Server{
		SSE: SSEOptions{IDs: true, DropAfter: 2, RetryMs: 10, Prime: true},
		Tools: []Tool{{Name: "p", Call: func(_ context.Context, r *Request) (any, error) {
			for i := range 3 {
				r.Progress(float64(i+1), 3, "")
			}
			return Text("done"), nil
		}}},
	})
	header := open(t, c)
	_, body := c.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"p","_meta":{"progressToken":"T"}}}`, header...)
	if strings.Count(body, `"progress":`) != 2 || !strings.Contains(body, "retry: 10\n") || !strings.HasPrefix(body, "id: stream") || strings.Contains(body, "result") {
		t.Fatalf("first exchange = %s", body)
	}
	last := body[strings.LastIndex(body, "id: ")+4:]
	last, _, _ = strings.Cut(last, "\n")
	resp := c.do(http.MethodGet, "", append(header, "Last-Event-ID", last)...)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(rest), `"progress":3`) != 1 || !strings.Contains(string(rest), `"id":2,"result"`) {
		t.Errorf("resumed = %s, %v", rest, err)
	}
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("violations = %q", v)
	}
}

func TestDualServersTellTheErasApart(t *testing.T) {
	s := &Server{Era: Dual}
	c := newClient(t, StartHTTP(t, s))
	if status, body := c.modern("1", "server/discover", ""); status != 200 || !strings.Contains(body, `["2026-07-28","2025-11-25"`) {
		t.Errorf("discover = %d %s", status, body)
	}
	header := open(t, c)
	if status, body := c.post(request("2", "tools/list"), header...); status != 200 || strings.Contains(body, "resultType") {
		t.Errorf("legacy list = %d %s", status, body)
	}
	if status, body := c.modern("2", "tools/list", ""); status != 200 || !strings.Contains(body, "resultType") {
		t.Errorf("modern list = %d %s", status, body)
	}
}

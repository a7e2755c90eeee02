package mcptest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func newModern(t *testing.T, s *Server) (*Server, *client) {
	s.Era = Modern
	return s, newClient(t, StartHTTP(t, s))
}

func TestModernServerAnswersDiscoverListAndCall(t *testing.T) {
	s, c := newModern(t, &Server{TTLMs: 5, Tools: []Tool{{Name: "echo", Call: Echo()}, {Name: "two"}}, PageSize: 1})
	status, body := c.modern("1", "server/discover", "")
	want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcptest","version":"1.0.0"}},"cacheScope":"private","ttlMs":5,"capabilities":{"tools":{"listChanged":true}},"supportedVersions":["2026-07-28"]}}`
	if status != 200 || body != want {
		t.Errorf("discover = %d %s\nwant %s", status, body, want)
	}
	if _, body = c.modern(`"a"`, "tools/list", ""); !strings.Contains(body, `"nextCursor":"1"`) || !strings.Contains(body, `"id":"a"`) {
		t.Errorf("first page = %s", body)
	}
	if _, body = c.modern("3", "tools/list", `"cursor":"1",`); strings.Contains(body, "nextCursor") || !strings.Contains(body, `"two"`) {
		t.Errorf("last page = %s", body)
	}
	_, body = c.modern("4", "tools/call", `"name":"echo","arguments":{"n":9007199254740993},`, "Mcp-Name", "echo")
	if !strings.Contains(body, `"structuredContent":{"n":9007199254740993}`) {
		t.Errorf("call = %s", body)
	}
	if got := strings.Join(s.Methods(), " "); got != "server/discover tools/list tools/list tools/call" {
		t.Errorf("transcript = %s", got)
	}
	if e, err := s.WaitFor(t.Context(), "tools/call", 1); err != nil || e.ID != "4" || e.Header.Get("Mcp-Name") != "echo" {
		t.Errorf("WaitFor = %+v, %v", e, err)
	}
}

func TestModernServerRefusesWhatTheSpecForbids(t *testing.T) {
	ok := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`
	list := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}
	for _, tt := range []struct {
		name, body string
		header     []string
		status     int
		code       int
		violation  string
	}{
		{"batch", "[" + ok + "]", list, 400, -32700, "batch"},
		{"null id", strings.Replace(ok, `"id":1`, `"id":null`, 1), list, 400, -32700, "id is neither"},
		{"fractional id", strings.Replace(ok, `"id":1`, `"id":1.5`, 1), list, 400, -32700, "id is neither"},
		{"too large id", strings.Replace(ok, `"id":1`, `"id":9007199254740992`, 1), list, 400, -32700, "id is neither"},
		{"duplicate member", strings.Replace(ok, `"id":1`, `"id":1,"id":1`, 1), list, 400, -32700, "unique names"},
		{"no jsonrpc", strings.Replace(ok, `"jsonrpc":"2.0",`, ``, 1), list, 400, -32700, `"jsonrpc"`},
		{"null cursor", strings.Replace(ok, `"params":{`, `"params":{"cursor":null,`, 1), list, 400, -32700, "cursor is null"},
		{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`, list, 202, 0, "never respond"},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, list, 202, 0, "notifications/cancelled over modern HTTP"},
		{"no version header", ok, []string{"Mcp-Method", "tools/list"}, 400, -32020, "MCP-Protocol-Version"},
		{"other version header", ok, []string{"MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"}, 400, -32020, "is not the version of _meta"},
		{"no method header", ok, []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32020, "Mcp-Method"},
		{"no meta", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, list, 400, -32602, "protocolVersion is missing"},
		{"no capabilities", strings.Replace(ok, `"io.modelcontextprotocol/clientCapabilities":{}`, `"x":1`, 1), list, 400, -32602, "clientCapabilities is missing"},
		{"no client info", strings.Replace(ok, `clientInfo`, `x`, 1), list, 200, 0, "no clientInfo"},
		{"accept", ok, append(list, "Accept", "application/json"), 406, -32600, "Accept"},
		{"content type", ok, append(list, "Content-Type", "application/json; charset=utf-8"), 415, -32600, "Content-Type"},
		{"session", ok, append(list, "Mcp-Session-Id", "x"), 200, 0, "Mcp-Session-Id"},
		{"ping", strings.Replace(ok, "tools/list", "ping", 1), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "ping"}, 404, -32601, "ping does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := newModern(t, &Server{})
			status, body := c.post(tt.body, tt.header...)
			if status != tt.status {
				t.Errorf("status = %d, want %d: %s", status, tt.status, body)
			}
			if body != "" && code(t, body) != tt.code {
				t.Errorf("code = %d, want %d", code(t, body), tt.code)
			}
			wantViolation(t, &s.Log, tt.violation)
		})
	}
}

func TestModernServerAnswersUnsupportedVersionsAndUnknownMethodsWithoutBlame(t *testing.T) {
	_, c := newModern(t, &Server{})
	body := strings.ReplaceAll(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+modernMeta+`}}`, "2026-07-28", "2099-01-01")
	status, body := c.post(body, "MCP-Protocol-Version", "2099-01-01", "Mcp-Method", "server/discover")
	if status != 400 || code(t, body) != -32022 || !strings.Contains(body, `"supported":["2026-07-28"]`) {
		t.Errorf("unsupported version = %d %s", status, body)
	}
	if status, body = c.modern("2", "foo/bar", ""); status != 404 || code(t, body) != -32601 {
		t.Errorf("unknown method = %d %s", status, body)
	}
	if status, body = c.post(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`); status != 400 || !strings.Contains(body, "speaks 2026-07-28") {
		t.Errorf("initialize = %d %s", status, body)
	}
}

func TestMcpNameIsDecodedAndCompared(t *testing.T) {
	s, c := newModern(t, &Server{Tools: []Tool{{Name: "Hello, 世界"}, {Name: "plain"}}})
	for _, tt := range []struct{ name, header, violation string }{
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?=", ""},
		{"Hello, 世界", "Hello, 世界", "Mcp-Name"},
		{"plain", "other", "Mcp-Name"},
		{"plain", "", "Mcp-Name must be sent once"},
	} {
		status, _ := c.modern("1", "tools/call", `"name":"`+tt.name+`",`, "Mcp-Name", tt.header)
		if tt.violation == "" {
			if status != 200 {
				t.Errorf("%q: status %d", tt.header, status)
			}
			continue
		}
		if status != 400 {
			t.Errorf("%q: status %d, want 400", tt.header, status)
		}
		wantViolation(t, &s.Log, tt.violation)
	}
}

func TestParamHeadersMustMatchTheArguments(t *testing.T) {
	schema := `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`
	s, c := newModern(t, &Server{Tools: []Tool{{Name: "q", InputSchema: schema}}})
	call := func(args string, header ...string) int {
		status, _ := c.modern("1", "tools/call", `"name":"q","arguments":`+args+`,`, append(header, "Mcp-Name", "q")...)
		return status
	}
	if status := call(`{"region":"eu"}`); status != 400 {
		t.Errorf("missing header before the list was served: %d", status)
	}
	c.modern("1", "tools/list", "")
	if status := call(`{"region":"eu","deep":{"n":42}}`, "Mcp-Param-Region", "eu", "Mcp-Param-N", "42.0"); status != 200 {
		t.Errorf("matching headers: %d", status)
	}
	if status := call(`{"region":null}`); status != 200 {
		t.Errorf("null argument without header: %d", status)
	}
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("violations = %q", v)
	}
	for _, header := range [][]string{{}, {"Mcp-Param-Region", "us"}, {"Mcp-Param-Region", "eu", "Mcp-Param-N", "1"}, {"Mcp-Param-Region", "eu", "Mcp-Param-Other", "1"}} {
		if status := call(`{"region":"eu"}`, header...); status != 400 {
			t.Errorf("%v: status %d, want 400", header, status)
		}
		wantViolation(t, &s.Log, "Mcp-Param-")
	}
}

func TestClosingAModernStreamCancelsTheHandler(t *testing.T) {
	ended := make(chan error, 1)
	s, c := newModern(t, &Server{Tools: []Tool{{Name: "wait", Call: func(ctx context.Context, r *Request) (any, error) {
		r.Notify("notifications/message", map[string]any{"level": "info", "data": "started"})
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ErrSilent
	}}}})
	resp := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait",`+modernMeta+`}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "wait")
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("content type = %s", kind)
	}
	resp.Body.Close()
	if err := <-ended; !strings.Contains(err.Error(), "client closed") {
		t.Errorf("cause = %v", err)
	}
	if e, err := s.WaitFor(t.Context(), MethodAborted, 1); err != nil || e.ID != "7" {
		t.Errorf("aborted = %+v, %v", e, err)
	}
}

func TestSubscriptionsAreAcknowledgedFilteredAndEndedGracefully(t *testing.T) {
	s, c := newModern(t, &Server{})
	resp := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]},`+modernMeta+`}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	next := lines(resp.Body)
	const id = `"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}`
	if got := next(t); got != `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+id+`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}}}` {
		t.Errorf("acknowledgement = %s", got)
	}
	next(t)
	s.Notify("notifications/prompts/list_changed", nil)
	s.Notify("notifications/resources/updated", map[string]any{"uri": "file:///b"})
	s.Notify("notifications/resources/updated", map[string]any{"uri": "file:///a"})
	if got := next(t); got != `data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{`+id+`,"uri":"file:///a"}}` {
		t.Errorf("update = %s", got)
	}
	next(t)
	s.EndSubscriptions()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), `"id":"L","result":{"resultType":"complete",`+id) {
		t.Errorf("end = %s, %v", rest, err)
	}
}

func TestAReusedIDInFlightIsAViolation(t *testing.T) {
	release := make(chan struct{})
	s, c := newModern(t, &Server{Handle: map[string]Handler{"prompts/list": After(release, nil)}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.modern("1", "prompts/list", "")
	}()
	if _, err := s.WaitFor(t.Context(), "prompts/list", 1); err != nil {
		t.Fatal(err)
	}
	c.modern("1", "tools/list", "")
	wantViolation(t, &s.Log, "in flight")
	close(release)
	<-done
	if c.modern("1", "tools/list", ""); len(s.Violations()) != 0 {
		t.Errorf("an id is free again after its answer: %q", s.Violations())
	}
}

func TestScriptedRepliesGoOutAsWritten(t *testing.T) {
	_, c := newModern(t, &Server{
		Discover: Sequence(HTML(200), Fail(-32000, "no", map[string]any{"x": 1}, 503), nil),
		Status: func(method string, n int) *Reply {
			if method == "tools/list" && n == 1 {
				return &Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: "slow down"}
			}
			return nil
		},
	})
	if status, body := c.modern("1", "server/discover", ""); status != 200 || !strings.Contains(body, "<!doctype html>") {
		t.Errorf("html = %d %s", status, body)
	}
	if status, body := c.modern("2", "server/discover", ""); status != 503 || !strings.Contains(body, `"data":{"x":1}`) {
		t.Errorf("fail = %d %s", status, body)
	}
	if status, _ := c.modern("3", "server/discover", ""); status != 200 {
		t.Errorf("third = %d", status)
	}
	if status, body := c.modern("4", "tools/list", ""); status != 429 || body != "slow down" {
		t.Errorf("status hook = %d %s", status, body)
	}
	if status, _ := c.modern("5", "tools/list", ""); status != 200 {
		t.Errorf("after the hook = %d", status)
	}
}

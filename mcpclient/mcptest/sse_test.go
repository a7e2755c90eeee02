package mcptest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func TestSSEOptionsShapeTheStream(t *testing.T) {
	tool := []Tool{{Name: "p", Call: func(_ context.Context, r *Request) (any, error) {
		r.Progress(1, 0, "")
		return Raw(`{"content":[]}`), nil
	}}}
	for _, tt := range []struct {
		name string
		sse  SSEOptions
		want func(body string) bool
	}{
		{"plain", SSEOptions{}, func(b string) bool {
			return strings.HasPrefix(b, `data: {"jsonrpc":"2.0","method":"notifications/progress"`) && strings.HasSuffix(b, "}\n\n")
		}},
		{"crlf", SSEOptions{EOL: "\r\n"}, func(b string) bool { return strings.HasSuffix(b, "}\r\n\r\n") }},
		{"bom and raw text", SSEOptions{BOM: true, Before: []string{"foo: bar\n\n"}}, func(b string) bool { return strings.HasPrefix(b, "\uFEFFfoo: bar\n\ndata: {") }},
		{"comments and event name", SSEOptions{Comments: true, EventName: "message"}, func(b string) bool { return strings.HasPrefix(b, ": keep-alive\n\nevent: message\ndata: {") }},
		{"no space", SSEOptions{NoSpace: true}, func(b string) bool { return strings.HasPrefix(b, "data:{") }},
		{"several data lines", SSEOptions{MultiData: true}, func(b string) bool { return strings.HasPrefix(b, "data: {\ndata:   \"jsonrpc\": \"2.0\",\n") }},
		{"no final blank line", SSEOptions{NoFinalBlank: true}, func(b string) bool { return strings.HasSuffix(b, "}\n") && !strings.HasSuffix(b, "\n\n") }},
		{"byte by byte", SSEOptions{SplitBytes: true}, func(b string) bool { return strings.Count(b, "data: ") == 2 }},
		{"no response", SSEOptions{EndWithoutResponse: true}, func(b string) bool { return strings.Count(b, "data: ") == 1 }},
		{"tail", SSEOptions{Tail: []string{`{"late":1}`}}, func(b string) bool { return strings.HasSuffix(b, "data: {\"late\":1}\n\n") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newModern(t, &Server{Tools: tool, SSE: tt.sse})
			body := strings.Replace(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"p",`+modernMeta+`}}`, `"_meta":{`, `"_meta":{"progressToken":1,`, 1)
			_, got := c.post(body, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "p")
			if !tt.want(got) {
				t.Errorf("body = %q", got)
			}
		})
	}
	_, c := newModern(t, &Server{SSE: SSEOptions{Always: true}})
	if _, body := c.modern("1", "tools/list", ""); !strings.HasPrefix(body, "data: ") {
		t.Errorf("Always: %q", body)
	}
	if status, body := c.modern("2", "foo", ""); status != 404 || !strings.HasPrefix(body, "{") {
		t.Errorf("errors with a status stay JSON: %d %q", status, body)
	}
}

func TestCursorsIDsAndHangupsAreScripted(t *testing.T) {
	s, c := newModern(t, &Server{
		Tools: []Tool{{Name: "a"}}, NextCursor: func(string, int, string) any { return "again" },
		ReplyID: func(json.RawMessage) json.RawMessage { return nil },
		Handle:  map[string]Handler{"prompts/list": Fail(-1, "x", nil, 0)},
	})
	if _, body := c.modern("1", "tools/list", `"cursor":"again",`); !strings.Contains(body, `"nextCursor":"again"`) || strings.Contains(body, `"id"`) {
		t.Errorf("list = %s", body)
	}
	if _, body := c.modern("2", "prompts/list", ""); code(t, body) != -1 {
		t.Errorf("handle = %s", body)
	}
	_ = s
}

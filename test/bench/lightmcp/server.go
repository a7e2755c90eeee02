// Package lightmcp is the least MCP server that a load needs: prepared results, no checks, next to no CPU of its own
// beside what is measured. It must not be mistaken for a correct server.
package lightmcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Mode is how a server answers.
type Mode string

// The modes: servers of 2026-07-28 over HTTP that answer with JSON or with an event stream, one of 2025-11-25 with
// sessions that answers with JSON, and one of 2026-07-28 on stdio.
const (
	JSON   Mode = "json"
	SSE    Mode = "sse"
	Legacy Mode = "legacy"
	Stdio  Mode = "stdio"
)

// Paths of an HTTP server with a meaning; every other path is the same plain endpoint.
const (
	Fresh   = "/fresh"   // lists may not be kept
	Changes = "/changes" // the beginning of paths whose server tells of changed lists
)

// Server answers by the name of the tool: echo and echo_N return their argument text, text_N a text of N bytes,
// rows_N structured content of N bytes, progress_N the text "done" after N progress notifications, one a millisecond,
// since a client may leave out what comes at once. It is safe for concurrent use.
type Server struct {
	mode    Mode
	results sync.Map // tool → string, prepared
	lists   [2]string
}

// New makes a server whose list has the tools that Names says and many more with big schemas; over stdio it is the
// caller's part to call [Server.ServeStdio].
func New(mode Mode, many int) *Server {
	s := &Server{mode: mode}
	for i, ttl := range []int{3_600_000, 0} {
		s.lists[i] = `{` + s.complete() + `"ttlMs":` + strconv.Itoa(ttl) + `,"cacheScope":"public","tools":[` + tools(many) + `]}`
	}
	return s
}

// Names are the tools that each server lists: echo, ten more of that kind, and every size that is measured.
func Names() []string {
	names := []string{"echo", "progress_100"}
	for i := range 10 {
		names = append(names, "echo_"+strconv.Itoa(i))
	}
	for _, kind := range []string{"text_", "rows_"} {
		for _, size := range []int{1 << 10, 100 << 10, 1 << 20, 5 << 20} {
			names = append(names, kind+strconv.Itoa(size))
		}
	}
	return names
}

// BigTool is the name of one of the tools with big schemas.
func BigTool(i int) string { return "tool_" + strconv.Itoa(i) }

func tools(many int) string {
	var b strings.Builder
	for _, name := range Names() {
		fmt.Fprintf(&b, `{"name":%q,"inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}},`, name)
	}
	for i := range many {
		fmt.Fprintf(&b, `{"name":%q,"title":"Tool %d","description":"One of many.","inputSchema":{"type":"object","required":["field_0"],"properties":{`, BigTool(i), i)
		for field := range 30 {
			fmt.Fprintf(&b, `"field_%d":{"type":"string","minLength":1,"maxLength":100,"description":"What the tool shall do with field number %d, in a sentence."},`, field, field)
		}
		b.WriteString(`"limit":{"type":"integer","minimum":0,"maximum":1000,"default":10}}}},`)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// Text is the text that text_N returns: rows of JSON, since tools answer with such more than with prose.
func Text(size int) string {
	const row = `{"id": 12345, "name": "a row of some table", "tags": ["one", "two"]}` + "\n"
	return strings.Repeat(row, size/len(row)+1)[:size]
}

// Rows is the structured content that rows_N returns, without whitespace.
func Rows(size int) string {
	const open, row, end = `{"rows":[`, `{"id":12345,"name":"a row of some table","tags":["one","two"],"price":12.5}`, `],"pad":""}`
	n := max(1, (size-len(open)-len(end)+1)/(len(row)+1))
	rows := open + strings.Repeat(row+",", n-1) + row
	return rows + `],"pad":"` + strings.Repeat("x", max(0, size-len(rows)-len(end))) + `"}`
}

// complete is the member that only the newest era has.
func (s *Server) complete() string {
	if s.mode == Legacy {
		return ""
	}
	return `"resultType":"complete",`
}

// message is what the server reads of a request.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params struct {
		Name string `json:"name"`
		Meta struct {
			ProgressToken jsontext.Value `json:"progressToken"`
		} `json:"_meta"`
		Arguments struct {
			Text jsontext.Value `json:"text"`
		} `json:"arguments"`
		Notifications jsontext.Value `json:"notifications"`
	} `json:"params"`
}

// progress is the number of progress notifications that the call wants.
func (m *message) progress() int {
	count, ok := strings.CutPrefix(m.Params.Name, "progress_")
	if !ok || len(m.Params.Meta.ProgressToken) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(count) // 0 for what is no number
	return n
}

// notifications passes the progress notifications that the call wants to send, each at its time.
func (m *message) notifications(ctx context.Context, send func(string)) {
	n := m.progress()
	if n == 0 {
		return
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for i := range n {
		select {
		case <-ticks.C:
			send(m.notification(i))
		case <-ctx.Done():
			return
		}
	}
}

func (m *message) notification(i int) string {
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Params.Meta.ProgressToken) +
		`,"progress":` + strconv.Itoa(i+1) + `,"total":` + strconv.Itoa(m.progress()) + `,"message":"working on it"}}`
}

// result is the result of a request; "" = there is no such method.
func (s *Server) result(m *message, path string) string {
	capabilities := `"capabilities":{"tools":{}},"serverInfo":{"name":"light","version":"1"}}`
	if strings.HasPrefix(path, Changes) {
		capabilities = strings.Replace(capabilities, `"tools":{}`, `"tools":{"listChanged":true}`, 1)
	}
	switch {
	case m.Method == "tools/call":
		return s.call(m)
	case m.Method == "tools/list" && path == Fresh:
		return s.lists[1]
	case m.Method == "tools/list":
		return s.lists[0]
	case m.Method == "server/discover" && s.mode != Legacy:
		return `{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":3600000,"cacheScope":"public",` + capabilities
	case m.Method == "initialize" && s.mode == Legacy:
		return `{"protocolVersion":"2025-11-25",` + capabilities
	case m.Method == "ping":
		return `{}`
	}
	return ""
}

func (s *Server) call(m *message) string {
	kind, count, _ := strings.Cut(m.Params.Name, "_")
	if kind == "echo" {
		return s.text(string(m.Params.Arguments.Text))
	}
	if kept, ok := s.results.Load(m.Params.Name); ok {
		text, _ := kept.(string) // nothing else is kept
		return text
	}
	size, _ := strconv.Atoi(count) // 0 for what is no number
	var made string
	switch kind {
	case "text":
		made = s.text(strconv.Quote(Text(size)))
	case "rows":
		made = `{` + s.complete() + `"content":[],"structuredContent":` + Rows(size) + `}`
	case "progress":
		made = s.text(`"done"`)
	default:
		return ""
	}
	s.results.Store(m.Params.Name, made)
	return made
}

// text is a result with one text, which is given as JSON.
func (s *Server) text(quoted string) string {
	return `{` + s.complete() + `"content":[{"type":"text","text":` + quoted + `}]}`
}

// reply is the whole answer to a request, in parts, so that a big result is not copied.
func (s *Server) reply(m *message, path string) (parts [3]string, found bool) {
	head := `{"jsonrpc":"2.0","id":` + string(m.ID)
	if result := s.result(m, path); result != "" {
		return [3]string{head + `,"result":`, result, `}`}, true
	}
	return [3]string{head, `,"error":{"code":-32601,"message":"Method not found"}`, `}`}, false
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		http.Error(w, "not a request: "+err.Error(), http.StatusBadRequest)
		return
	}
	if len(m.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if s.mode == Legacy && m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "the-only-session")
	}
	if m.Method == "subscriptions/listen" {
		listen(w, r, &m)
		return
	}
	parts, found := s.reply(&m, r.URL.Path)
	if m.progress() > 0 || s.mode == SSE {
		out := events(w)
		m.notifications(r.Context(), func(text string) { out.event(text) })
		out.event(parts[:]...)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(parts[0])+len(parts[1])+len(parts[2])))
	if !found && s.mode != Legacy {
		w.WriteHeader(http.StatusNotFound)
	}
	for _, part := range parts {
		_, _ = io.WriteString(w, part) // the client may be gone
	}
}

// listen acknowledges a subscription and stays quiet until the client leaves.
func listen(w http.ResponseWriter, r *http.Request, m *message) {
	events(w).event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":`,
		string(m.ID), `},"notifications":`, string(m.Params.Notifications), `}}`)
	<-r.Context().Done()
}

// stream writes server-sent events.
type stream struct{ w http.ResponseWriter }

func events(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return stream{w: w}
}

// event sends one message at once. Its errors say that the client is gone, which the request's context says, too.
func (s stream) event(parts ...string) {
	_, _ = io.WriteString(s.w, "event: message\ndata: ")
	for _, part := range parts {
		_, _ = io.WriteString(s.w, part)
	}
	_, _ = io.WriteString(s.w, "\n\n")
	_ = http.NewResponseController(s.w).Flush()
}

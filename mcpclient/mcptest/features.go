package mcptest

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Tool is one tool. Raw replaces the whole JSON object of the list; Call nil
// answers with an empty content list.
type Tool struct {
	Name        string
	Description string
	InputSchema string // "" = {"type":"object"}
	Raw         string
	Call        Handler
	// TaskSupport is execution.taskSupport; "" = none. See [LegacyTaskOptions].
	TaskSupport string
}

// Resource is one resource. Read nil answers with Text.
type Resource struct {
	URI, Name, MimeType, Text, Raw string
	Read                           Handler
}

// Template is one resource template.
type Template struct {
	URITemplate, Name, Raw string
}

// Prompt is one prompt. Get nil answers with one text message.
type Prompt struct {
	Name, Description, Raw string
	Get                    Handler
}

func itoa(n int) string { return strconv.Itoa(n) }

func (r Raw) json() json.RawMessage { return json.RawMessage(r) }

func (t Tool) schema() json.RawMessage {
	if t.Raw != "" {
		return member(json.RawMessage(t.Raw), "inputSchema")
	}
	if t.InputSchema == "" {
		return json.RawMessage(`{"type":"object"}`)
	}
	return json.RawMessage(t.InputSchema)
}

func (t Tool) item() string {
	if t.Raw != "" {
		return t.Raw
	}
	return `{"name":` + quote(t.Name) + optional("description", t.Description) + `,"inputSchema":` + string(t.schema()) + t.execution() + `}`
}

func (t Tool) execution() string {
	if t.TaskSupport == "" {
		return ""
	}
	return `,"execution":{"taskSupport":` + quote(t.TaskSupport) + "}"
}

func (t Tool) call(ctx context.Context, r *Request) (any, error) {
	if t.Call == nil {
		return Raw(`{"content":[]}`), nil
	}
	return t.Call(ctx, r)
}

func (r Resource) item() string {
	if r.Raw != "" {
		return r.Raw
	}
	name := r.Name
	if name == "" {
		name = r.URI
	}
	return `{"uri":` + quote(r.URI) + `,"name":` + quote(name) + optional("mimeType", r.MimeType) + `}`
}

func (t Template) item() string {
	if t.Raw != "" {
		return t.Raw
	}
	name := t.Name
	if name == "" {
		name = t.URITemplate
	}
	return `{"uriTemplate":` + quote(t.URITemplate) + `,"name":` + quote(name) + `}`
}

func (p Prompt) item() string {
	if p.Raw != "" {
		return p.Raw
	}
	return `{"name":` + quote(p.Name) + optional("description", p.Description) + `}`
}

func optional(name, value string) string {
	if value == "" {
		return ""
	}
	return "," + quote(name) + ":" + quote(value)
}

func items[T interface{ item() string }](list []T) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].item()
	}
	return out
}

// capabilities derives what the script offers.
func (s *Server) capabilities(of Era) json.RawMessage {
	if s.Capabilities != "" {
		return json.RawMessage(s.Capabilities)
	}
	caps := map[string]any{}
	if len(s.Tools) > 0 || s.Handle["tools/list"] != nil || s.Handle["tools/call"] != nil {
		caps["tools"] = map[string]any{"listChanged": true}
	}
	if len(s.Resources)+len(s.Templates) > 0 || s.Handle["resources/list"] != nil || s.Handle["resources/read"] != nil {
		caps["resources"] = map[string]any{"listChanged": true, "subscribe": true}
	}
	if len(s.Prompts) > 0 || s.Handle["prompts/list"] != nil || s.Handle["prompts/get"] != nil {
		caps["prompts"] = map[string]any{"listChanged": true}
	}
	if s.Complete != nil || s.Handle["completion/complete"] != nil {
		caps["completions"] = map[string]any{}
	}
	if s.Logging.On || of == Legacy && s.Handle["logging/setLevel"] != nil {
		caps["logging"] = map[string]any{}
	}
	if s.Tasks && of == Modern {
		caps["extensions"] = map[string]any{tasksExtension: map[string]any{}}
	}
	if s.LegacyTasks.On && of == Legacy {
		tasks := map[string]any{"requests": map[string]any{"tools": map[string]any{"call": map[string]any{}}}}
		if !s.LegacyTasks.NoCancel {
			tasks["cancel"] = map[string]any{}
		}
		caps["tasks"] = tasks
	}
	return marshal(caps)
}

// builtin returns the correct answer to a method of the request's era.
func builtin(r *Request) Handler {
	s := r.server
	list := func(key string, items []string) Handler {
		return func(_ context.Context, r *Request) (any, error) { return s.page(r, key, items) }
	}
	switch r.Method {
	case "tools/list":
		return func(_ context.Context, r *Request) (any, error) {
			s.told.Store(true)
			return s.page(r, "tools", items(s.Tools))
		}
	case "resources/list":
		return list("resources", items(s.Resources))
	case "resources/templates/list":
		return list("resourceTemplates", items(s.Templates))
	case "prompts/list":
		return list("prompts", items(s.Prompts))
	case "tools/call":
		return callTool
	case "resources/read":
		return readResource
	case "prompts/get":
		return getPrompt
	}
	switch {
	case r.Method == "completion/complete" && s.Complete != nil:
		return s.Complete
	case r.Era == Modern && r.Method == "server/discover":
		return discover
	case r.Era == Modern && r.Method == "subscriptions/listen":
		return listen
	case r.Era == Legacy && r.Method == "initialize":
		return initialize
	case r.Era == Modern && s.Tasks && strings.HasPrefix(r.Method, "tasks/"):
		return serveTask
	case r.Era == Legacy && s.LegacyTasks.On && strings.HasPrefix(r.Method, "tasks/"):
		return serveLegacyTask
	case r.Era == Legacy && r.Method == "ping":
		return Respond(Raw("{}"))
	case r.Era == Legacy && r.Method == "logging/setLevel":
		return setLevel
	case r.Era == Legacy && (r.Method == "resources/subscribe" || r.Method == "resources/unsubscribe"):
		return subscribe
	}
	return Fail(-32601, "Method not found", nil, 0)
}

func discover(_ context.Context, r *Request) (any, error) {
	s := r.server
	result := map[string]any{
		"supportedVersions": slices.Concat(s.versions(Modern), s.versions(Legacy)), "capabilities": s.capabilities(Modern),
	}
	if s.Instructions != "" {
		result["instructions"] = s.Instructions
	}
	return s.cacheable(r, marshal(result)), nil
}

// cacheable adds the hints of 2026-07-28 server/utilities/caching.
func (s *Server) cacheable(r *Request, result json.RawMessage) json.RawMessage {
	if r.Era != Modern {
		return result
	}
	scope := s.CacheScope
	if scope == "" {
		scope = "private"
	}
	return with(with(result, "ttlMs", strconv.FormatInt(s.TTLMs, 10)), "cacheScope", quote(scope))
}

// page answers one page of a list; cursors are offsets.
func (s *Server) page(r *Request, key string, list []string) (any, error) {
	from := 0
	if cursor := r.Text("cursor"); cursor != "" {
		n, err := strconv.Atoi(cursor)
		if err != nil && s.NextCursor == nil || n < 0 || n > len(list) {
			return nil, &Error{Code: -32602, Message: "Invalid cursor"}
		}
		from = n
	}
	size := len(list)
	if s.PageSize > 0 {
		size = s.PageSize
	}
	to, next := min(from+size, len(list)), ""
	if to < len(list) {
		next = strconv.Itoa(to)
	}
	var body strings.Builder
	body.WriteString(`{` + quote(key) + `:[`)
	for i, item := range list[from:to] {
		if i > 0 {
			body.WriteString(",")
		}
		body.WriteString(item)
	}
	body.WriteString("]")
	var cursor any
	if next != "" {
		cursor = next
	}
	if s.NextCursor != nil {
		page := 0
		if s.PageSize > 0 {
			page = from / s.PageSize
		}
		cursor = s.NextCursor(r.Method, page, next)
	}
	if cursor != nil {
		body.WriteString(`,"nextCursor":` + string(marshal(cursor)))
	}
	return s.cacheable(r, json.RawMessage(body.String()+"}")), nil
}

func callTool(ctx context.Context, r *Request) (any, error) {
	for _, t := range r.server.Tools {
		if t.Name == r.Text("name") {
			if r.Era == Legacy {
				return callLegacyTool(ctx, r, t)
			}
			return t.call(ctx, r)
		}
	}
	return nil, &Error{Code: -32602, Message: "Unknown tool: " + r.Text("name")}
}

func readResource(ctx context.Context, r *Request) (any, error) {
	for _, res := range r.server.Resources {
		if res.URI == r.Text("uri") {
			if res.Read != nil {
				return res.Read(ctx, r)
			}
			body := `{"contents":[{"uri":` + quote(res.URI) + optional("mimeType", res.MimeType) + `,"text":` + quote(res.Text) + `}]}`
			return r.server.cacheable(r, json.RawMessage(body)), nil
		}
	}
	code := -32602
	if r.Era == Legacy {
		code = -32002
	}
	return nil, &Error{Code: code, Message: "Resource not found", Data: map[string]any{"uri": r.Text("uri")}}
}

func getPrompt(ctx context.Context, r *Request) (any, error) {
	for _, p := range r.server.Prompts {
		if p.Name == r.Text("name") {
			if p.Get != nil {
				return p.Get(ctx, r)
			}
			return Raw(`{"messages":[{"role":"user","content":{"type":"text","text":` + quote(p.Name) + `}}]}`), nil
		}
	}
	return nil, &Error{Code: -32602, Message: "Unknown prompt: " + r.Text("name")}
}

func subscribe(_ context.Context, r *Request) (any, error) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.conn.resources[r.Text("uri")] = r.Method == "resources/subscribe"
	return Raw("{}"), nil
}

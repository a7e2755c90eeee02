package mcptest

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
)

// enterModern applies the rules for requests of 2026-07-28 basic/index (`_meta`)
// and basic/transports/streamable-http (Request Metadata).
func (c *conn) enterModern(r *Request) error {
	if r.Method == "initialize" {
		return c.refuseInitialize()
	}
	if r.Method == "ping" {
		c.s.violate("ping does not exist on a modern connection")
	}
	version, _ := unquote(r.Meta("io.modelcontextprotocol/protocolVersion"))
	if c.http {
		if err := c.checkHeaders(r, version); err != nil {
			return err
		}
	}
	if version == "" {
		return c.refuseMeta(r, "protocolVersion", "a string")
	}
	if caps := r.Meta("io.modelcontextprotocol/clientCapabilities"); len(caps) == 0 || caps[0] != '{' {
		return c.refuseMeta(r, "clientCapabilities", "an object")
	}
	info := r.Meta("io.modelcontextprotocol/clientInfo")
	if name, _ := unquote(member(info, "name")); name == "" {
		c.s.violate("%s: _meta has no clientInfo with a name", r.Method)
	}
	if raw := r.Meta("io.modelcontextprotocol/logLevel"); raw != nil {
		level, _ := unquote(raw)
		if !slices.Contains([]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}, level) {
			c.s.violate("%s: _meta logLevel is %s, which is no level", r.Method, raw)
		}
	}
	r.Version = version
	if supported := c.s.versions(Modern); !slices.Contains(supported, version) {
		return &Error{
			Code: -32022, Message: "Unsupported protocol version",
			Data: map[string]any{"supported": slices.Concat(supported, c.s.versions(Legacy)), "requested": version},
		}
	}
	return nil
}

// refuseInitialize names the versions, as basic/versioning asks.
func (c *conn) refuseInitialize() error {
	e := &Error{
		Code: -32601, Message: "initialize is not supported; this server speaks " + strings.Join(c.s.versions(Modern), ", "),
		Data: map[string]any{"supported": c.s.versions(Modern)},
	}
	if c.http {
		e.Code, e.Status = -32020, http.StatusBadRequest
	}
	return e
}

func (c *conn) refuseMeta(r *Request, key, kind string) error {
	c.s.violate("%s: _meta io.modelcontextprotocol/%s is missing or not %s", r.Method, key, kind)
	return &Error{Code: -32602, Message: "_meta io.modelcontextprotocol/" + key + " is required", Status: http.StatusBadRequest}
}

// nameSource is the params member that Mcp-Name mirrors.
var nameSource = map[string]string{
	"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
	"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}

func (c *conn) checkHeaders(r *Request, version string) error {
	mismatch := func(text string) error {
		c.s.violate("%s: %s", r.Method, text)
		return &Error{Code: -32020, Message: "Header mismatch: " + text}
	}
	if r.Header.Get("Mcp-Session-Id") != "" || r.Header.Get("Last-Event-Id") != "" {
		c.s.violate("%s: a modern request carries Mcp-Session-Id or Last-Event-ID", r.Method)
	}
	switch got := r.Header.Values("MCP-Protocol-Version"); {
	case c.s.Lax.Version:
	case len(got) != 1:
		return mismatch("MCP-Protocol-Version must be sent once")
	case version != "" && got[0] != version:
		return mismatch("MCP-Protocol-Version " + got[0] + " is not the version of _meta, " + version)
	}
	if c.s.Lax.Names {
		return nil
	}
	if got := r.Header.Values("Mcp-Method"); len(got) != 1 || got[0] != r.Method {
		return mismatch("Mcp-Method must be the method, got " + strings.Join(got, ", "))
	}
	if source, ok := nameSource[r.Method]; ok {
		got := r.Header.Values("Mcp-Name")
		if len(got) != 1 {
			return mismatch("Mcp-Name must be sent once")
		}
		if name, ok := decodeHeader(got[0]); !ok || name != r.Text(source) {
			return mismatch("Mcp-Name " + got[0] + " is not params." + source + " " + r.Text(source))
		}
	}
	if r.Method == "tools/call" {
		return c.checkParamHeaders(r)
	}
	return nil
}

// checkParamHeaders compares Mcp-Param-* with the arguments. A difference is a
// violation only once the tool list was served: a client cannot know before.
func (c *conn) checkParamHeaders(r *Request) error {
	i := slices.IndexFunc(c.s.Tools, func(t Tool) bool { return t.Name == r.Text("name") })
	if i < 0 {
		return nil
	}
	mismatch := func(text string) error {
		if c.s.told.Load() {
			c.s.violate("tools/call %s: %s", c.s.Tools[i].Name, text)
		}
		return &Error{Code: -32020, Message: "Header mismatch: " + text}
	}
	known := map[string]bool{}
	for name, path := range headerPlan(c.s.Tools[i].schema(), nil) {
		key := http.CanonicalHeaderKey("Mcp-Param-" + name)
		known[key] = true
		value := r.Param("arguments")
		for _, step := range path {
			value = member(value, step)
		}
		got := r.Header.Values(key)
		absent := len(value) == 0 || string(value) == "null"
		switch {
		case absent && len(got) > 0:
			return mismatch(key + " is sent although the argument is absent")
		case absent:
		case len(got) != 1:
			return mismatch(key + " must be sent once")
		case !sameValue(got[0], value):
			return mismatch(key + " " + got[0] + " is not the argument " + string(value))
		}
	}
	for key := range r.Header {
		if strings.HasPrefix(key, "Mcp-Param-") && !known[key] {
			return mismatch(key + " is not in the tool's schema")
		}
	}
	return nil
}

// headerPlan maps x-mcp-header names to property paths.
func headerPlan(schema json.RawMessage, path []string) map[string][]string {
	plan := map[string][]string{}
	var properties map[string]json.RawMessage
	if json.Unmarshal(member(schema, "properties"), &properties) != nil {
		return plan
	}
	for property, sub := range properties {
		at := append(slices.Clone(path), property)
		if name, ok := unquote(member(sub, "x-mcp-header")); ok {
			plan[name] = at
		}
		maps.Copy(plan, headerPlan(sub, at))
	}
	return plan
}

// sameValue compares a header with an argument; integers by number.
func sameValue(header string, value json.RawMessage) bool {
	text, ok := decodeHeader(header)
	if !ok {
		return false
	}
	if s, isString := unquote(value); isString {
		return s == text
	}
	if string(value) == "true" || string(value) == "false" {
		return text == string(value)
	}
	a, okA := new(big.Rat).SetString(text)
	b, okB := new(big.Rat).SetString(string(value))
	return okA && okB && a.Cmp(b) == 0
}

// decodeHeader undoes the Base64 sentinel (Value Encoding) and refuses values
// that should have used it.
func decodeHeader(value string) (string, bool) {
	if inner, ok := strings.CutPrefix(value, "=?base64?"); ok {
		if inner, ok = strings.CutSuffix(inner, "?="); ok {
			b, err := base64.StdEncoding.Strict().DecodeString(inner)
			return string(b), err == nil
		}
	}
	for i := range len(value) {
		if b := value[i]; (b < 0x20 && b != '\t') || b > 0x7e {
			return "", false
		}
	}
	return value, true
}

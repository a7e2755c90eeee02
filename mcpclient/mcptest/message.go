package mcptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// message is one parsed JSON-RPC message of the client.
type message struct {
	raw         json.RawMessage
	id          json.RawMessage // nil when absent
	method      string
	params      json.RawMessage
	result, err json.RawMessage
}

func (m *message) isRequest() bool      { return m.method != "" && m.id != nil }
func (m *message) isNotification() bool { return m.method != "" && m.id == nil }

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,15})$`)

// parse reads one message strictly (2026-07-28 basic/index, Messages). The
// error says what a client may not send.
func parse(raw []byte) (*message, error) {
	raw = bytes.Clone(bytes.TrimSpace(raw))
	value := jsontext.Value(raw)
	if !value.IsValid() { // refuses duplicate names and broken UTF-8 too
		return nil, errors.New("not one valid JSON value with unique names in valid UTF-8")
	}
	switch value.Kind() {
	case '{':
	case '[':
		return nil, errors.New("a batch; each message must be sent alone")
	default:
		return nil, errors.New("not a JSON object")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	m := &message{raw: raw, params: fields["params"], result: fields["result"], err: fields["error"]}
	if string(fields["jsonrpc"]) != `"2.0"` {
		return nil, errors.New(`"jsonrpc" is not "2.0"`)
	}
	if id, ok := fields["id"]; ok {
		if id[0] != '"' && (!integer.Match(id) || len(bytes.TrimLeft(id, "-")) == 16 && string(bytes.TrimLeft(id, "-")) > "9007199254740991") {
			return nil, errors.New("the id is neither a string nor an integer within 2^53-1: " + string(id))
		}
		m.id = id
	}
	if method, ok := fields["method"]; ok {
		if m.method, ok = unquote(method); !ok || m.method == "" {
			return nil, errors.New("the method is not a string")
		}
	}
	hasResult, hasError := fields["result"] != nil, fields["error"] != nil
	switch {
	case m.method != "" && (hasResult || hasError):
		return nil, errors.New("a method beside a result or error")
	case m.method == "" && hasResult == hasError:
		return nil, errors.New("neither a request nor a response")
	case m.method == "" && m.id == nil:
		return nil, errors.New("a response without an id")
	case m.params != nil && m.params[0] != '{':
		return nil, errors.New("params is not an object")
	}
	for _, name := range []string{"_meta", "arguments", "cursor", "inputResponses", "requestState"} {
		if string(member(m.params, name)) == "null" {
			return nil, errors.New("params." + name + " is null; absent members are left out")
		}
	}
	for name := range fields {
		switch name {
		case "jsonrpc", "id", "method", "params", "result", "error":
		default:
			return nil, errors.New("unknown member " + name)
		}
	}
	return m, nil
}

// member returns one member of a JSON object, byte for byte; nil when there is
// none.
func member(object json.RawMessage, name string) json.RawMessage {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	return fields[name]
}

func unquote(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	return s, json.Unmarshal(raw, &s) == nil
}

func quote(s string) string { return string(marshal(s)) }

// marshal writes v as JSON without HTML escapes; Raw and RawMessage verbatim.
func marshal(v any) json.RawMessage {
	switch v := v.(type) {
	case nil:
		return nil
	case Raw:
		return json.RawMessage(v)
	case json.RawMessage:
		return v
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("mcptest: the script holds a value that is no JSON: " + err.Error()) // a mistake of the test
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// with adds a member to a JSON object unless it is there.
func with(object json.RawMessage, name, value string) json.RawMessage {
	if len(object) == 0 || object[0] != '{' || member(object, name) != nil {
		return object
	}
	rest := bytes.TrimLeft(object[1:], " \t\r\n")
	sep := ","
	if len(rest) > 0 && rest[0] == '}' {
		sep = ""
	}
	return json.RawMessage("{" + quote(name) + ":" + value + sep + string(rest))
}

func notification(method string, params json.RawMessage) []byte {
	if params == nil {
		return []byte(`{"jsonrpc":"2.0","method":` + quote(method) + `}`)
	}
	return []byte(`{"jsonrpc":"2.0","method":` + quote(method) + `,"params":` + string(params) + `}`)
}

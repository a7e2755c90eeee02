package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// headerAnnotation marks a tool parameter that is mirrored into an HTTP header
// (2026-07-28 basic/transports/streamable-http, Custom Headers from Tool
// Parameters).
const headerAnnotation = "x-mcp-header"

const httpTransport = transport.NameHTTP

// paramHeader is one mirrored parameter.
type paramHeader struct {
	header string   // Mcp-Param-NAME
	path   []string // property names from the arguments' root
}

// mirrorsParams says whether tool parameters are mirrored into headers.
func (s *session) mirrorsParams() bool {
	return s.era == EraModern && s.conn.PerRequestStreams()
}

// listWait bounds how long a call waits for the tools to be listed: a slow list
// must not stop calls that may well need no header.
func listWait(ctx context.Context) time.Duration {
	const most = 3 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		return min(most, time.Until(deadline)/4)
	}
	return most
}

// listAgain is how long calls go out without a look at the tools after that
// failed, so that a server whose list is broken is not asked with every call.
const listAgain = 10 * time.Second

// toolsSeen returns the newest list of tools for a call that needs to know its
// tool; the first such call lists them. nil = the list cannot be had for now.
func (c *Client) toolsSeen(ctx context.Context, tool string) *List {
	list := c.lists.tools.newest()
	if list != nil || c.lists.tools.failedWithin(listAgain) {
		return list
	}
	wait, cancel := context.WithTimeout(ctx, listWait(ctx))
	defer cancel()
	list, err := c.lists.tools.join(wait, c)
	if err != nil {
		c.lists.tools.markFailed()
		c.log.DebugContext(ctx, "a call goes out without a look at the tools", "tool", tool, "error", err)
		return nil
	}
	return list
}

// paramHeaders builds the Mcp-Param-* headers of one tool call, for which the
// tool's schema must be known. A list that cannot be had does not stop the
// call: the server will say what is missing.
func (c *Client) paramHeaders(ctx context.Context, tool string, arguments jsontext.Value) (http.Header, error) {
	list := c.toolsSeen(ctx, tool)
	if list == nil {
		return nil, nil
	}
	for _, excluded := range list.Excluded {
		if excluded.Name == tool {
			return nil, &Error{Kind: KindInvalid, SafeToRetry: true, Message: fmt.Sprintf("the tool's definition is invalid, so it cannot be called over HTTP: %s", excluded.Reason)}
		}
	}
	plan := list.plans[tool]
	if len(plan) == 0 {
		return nil, nil
	}
	header := make(http.Header, len(plan)+4)
	for _, p := range plan {
		if text, ok := headerValue(lookup(arguments, p.path)); ok {
			header[p.header] = []string{transport.EncodeHeaderValue(text)}
		}
	}
	return header, nil
}

// lookup follows property names; nil when there is nothing.
func lookup(value jsontext.Value, path []string) jsontext.Value {
	for _, name := range path {
		if value.Kind() != '{' {
			return nil
		}
		var next jsontext.Value
		_ = eachMember(value, func(key string, member jsontext.Value) error {
			if key == name {
				next = member
			}
			return nil
		})
		value = next
	}
	return value
}

// headerValue is a parameter's text in a header; ok is false for null and for
// what no header carries, which the server's own validation will refuse.
func headerValue(value jsontext.Value) (text string, ok bool) {
	switch value.Kind() {
	case '"':
		return unquote(value)
	case 't', 'f':
		return string(value), true
	case '0':
		text := string(value)
		if strings.ContainsAny(text, ".eE") {
			// 42.0 and 4.2e1 are integers too
			if f, err := strconv.ParseFloat(text, 64); err == nil && f == float64(int64(f)) {
				return strconv.FormatInt(int64(f), 10), true
			}
		}
		return text, true
	}
	return "", false
}

// headerPlan reads the annotations of one tool, or says why they are invalid.
func headerPlan(tool jsontext.Value) ([]paramHeader, error) {
	w := planWalker{seen: map[string]bool{}}
	err := eachMember(tool, func(key string, value jsontext.Value) error {
		if key != "inputSchema" {
			return nil
		}
		return w.schema(value, nil, true)
	})
	return w.plan, err
}

type planWalker struct {
	plan []paramHeader
	seen map[string]bool // header names in lower case
}

// schema visits one schema. reachable is true while the way from the root went
// through `properties` alone.
func (w *planWalker) schema(schema jsontext.Value, path []string, reachable bool) error {
	if schema.Kind() != '{' {
		return nil
	}
	var annotation, kind jsontext.Value
	err := eachMember(schema, func(key string, value jsontext.Value) error {
		switch key {
		case headerAnnotation:
			annotation = value
		case "type":
			kind = value
		case "properties":
			return w.schemas(value, path, reachable)
		case "patternProperties", "dependentSchemas", "$defs", "definitions":
			return w.schemas(value, path, false)
		case "items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains",
			"propertyNames", "not", "if", "then", "else", "prefixItems", "allOf", "anyOf", "oneOf":
			return w.anywhere(value, path)
		}
		return nil
	})
	if err != nil || annotation == nil {
		return err
	}
	return w.annotate(annotation, kind, path, reachable)
}

// schemas visits the values of an object of schemas.
func (w *planWalker) schemas(object jsontext.Value, path []string, reachable bool) error {
	if object.Kind() != '{' {
		return nil
	}
	return eachMember(object, func(name string, schema jsontext.Value) error {
		return w.schema(schema, append(slices.Clip(path), name), reachable)
	})
}

// anywhere visits one schema or an array of them, out of static reach.
func (w *planWalker) anywhere(value jsontext.Value, path []string) error {
	if value.Kind() != '[' {
		return w.schema(value, path, false)
	}
	return eachElement(value, func(schema jsontext.Value) error {
		return w.schema(schema, path, false)
	})
}

func (w *planWalker) annotate(annotation, kind jsontext.Value, path []string, reachable bool) error {
	name, ok := unquote(annotation)
	where := strings.Join(path, ".")
	switch {
	case !ok:
		return fmt.Errorf("the x-mcp-header of %q is not a string", where)
	case name == "":
		return fmt.Errorf("the x-mcp-header of %q is empty", where)
	case strings.IndexFunc(name, notToken) >= 0:
		return fmt.Errorf("the x-mcp-header %q of %q is not a valid header name", name, where)
	case !reachable || len(path) == 0:
		return fmt.Errorf("the x-mcp-header %q of %q is not on a property reachable through properties alone", name, where)
	case !primitive(kind):
		return fmt.Errorf("the x-mcp-header %q of %q is on a parameter that is not a string, integer or boolean", name, where)
	case w.seen[strings.ToLower(name)]:
		return fmt.Errorf("the x-mcp-header %q is used twice", name)
	}
	w.seen[strings.ToLower(name)] = true
	w.plan = append(w.plan, paramHeader{header: http.CanonicalHeaderKey("Mcp-Param-" + name), path: slices.Clone(path)})
	return nil
}

// notToken reports a character outside of an HTTP token (RFC 9110 5.6.2).
func notToken(r rune) bool {
	const marks = "!#$%&'*+-.^_`|~"
	alnum := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !alnum && !strings.ContainsRune(marks, r)
}

// primitive reports whether a schema's type is string, integer or boolean, or
// one of them or null.
func primitive(kind jsontext.Value) bool {
	one := func(v jsontext.Value) bool {
		text, _ := unquote(v)
		return text == "string" || text == "integer" || text == "boolean"
	}
	if kind.Kind() != '[' {
		return one(kind)
	}
	count := 0
	err := eachElement(kind, func(v jsontext.Value) error {
		if text, _ := unquote(v); text == "null" {
			return nil
		}
		if count++; !one(v) {
			return errors.New("not primitive")
		}
		return nil
	})
	return err == nil && count == 1
}

package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Content is one block of a tool result or prompt message, decoded as far as
// its type is known (2026-07-28 schema, ContentBlock).
type Content struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	Data     string         `json:"data"` // Base64
	MIMEType string         `json:"mimeType"`
	URI      string         `json:"uri"`
	Resource jsontext.Value `json:"resource"`
	// Raw is the whole block as the server sent it.
	Raw jsontext.Value `json:"-"`
}

// ToolResult is a decoded CallToolResult.
type ToolResult struct {
	Content []Content
	// Structured is structuredContent; nil when it is absent or null.
	Structured jsontext.Value
	IsError    bool
	Meta       jsontext.Value

	hasContent bool // there was a content that is not null
}

// ToolResult decodes a complete result of a tool call. Blocks of unknown type
// keep their Raw; null blocks are dropped.
func (r *Result) ToolResult() (*ToolResult, error) {
	var wire struct {
		Content    jsontext.Value `json:"content"`
		Structured jsontext.Value `json:"structuredContent"`
		IsError    bool           `json:"isError"`
		Meta       jsontext.Value `json:"_meta"`
	}
	if err := json.Unmarshal(r.Raw, &wire, jsonOptions); err != nil {
		return nil, fmt.Errorf("the result is not a CallToolResult: %w", err)
	}
	out := &ToolResult{Structured: wire.Structured, IsError: wire.IsError, Meta: wire.Meta}
	if out.Structured.Kind() == 'n' {
		out.Structured = nil
	}
	if wire.Content.Kind() == 'n' || len(wire.Content) == 0 {
		return out, nil
	}
	out.hasContent = true
	err := eachElement(wire.Content, func(raw jsontext.Value) error {
		if raw.Kind() != '{' {
			return nil
		}
		block := Content{Raw: raw}
		if err := json.Unmarshal(raw, &block, jsonOptions); err != nil {
			block = Content{Raw: raw} // a field of an unexpected type: the caller still has Raw
		}
		out.Content = append(out.Content, block)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the content of the result: %w", err)
	}
	return out, nil
}

// ToolResultExtractor turns the content of a tool result into a value and
// attributes; see [Client.CallToolValue].
type ToolResultExtractor func(ctx context.Context, r *ToolResult) (value any, attributes map[string]any, err error)

// ToolValue is a tool's answer as a value.
type ToolValue struct {
	// Value is structuredContent as a jsontext.Value if there was one, else
	// what the extractor made of the content.
	Value any
	// Text is structuredContent's JSON, or the text of Value if it is a string.
	Text string
	// Attributes are the result's `_meta` without keys reserved by MCP, then
	// those of the extractor, which win.
	Attributes map[string]any
}

// ToolError is a tool's own failure, from [Client.CallToolValue].
type ToolError struct {
	Tool string
	// Text is what the tool said.
	Text string
}

// Error returns the tool's text.
func (e *ToolError) Error() string { return fmt.Sprintf("tool %s failed: %s", e.Tool, e.Text) }

// CallToolValue calls a tool and turns its result into a value:
// structuredContent if there is any, else what Options.ToolResult makes of the
// content. A tool's own failure is a [*ToolError]; an input_required or task
// result is not possible here and fails.
func (c *Client) CallToolValue(ctx context.Context, name string, arguments jsontext.Value, options *CallOptions) (*ToolValue, error) {
	result, err := c.CallTool(ctx, name, arguments, options)
	if err != nil {
		return nil, err
	}
	if result.Type != ResultComplete {
		return nil, &Error{Kind: KindInvalid, Method: methodCallTool, Name: name, Sent: true, Message: "the call is not complete: its result is of type " + result.Type}
	}
	decoded, err := result.ToolResult()
	if err != nil {
		return nil, &Error{Kind: KindProtocol, Method: methodCallTool, Name: name, Sent: true, Message: "the tool's result is malformed", Err: err}
	}
	if decoded.Structured == nil && !decoded.hasContent && !decoded.IsError {
		return nil, &Error{Kind: KindProtocol, Method: methodCallTool, Name: name, Sent: true, Message: "the tool's result has neither content nor structuredContent"}
	}
	out := &ToolValue{Attributes: attributes(decoded.Meta)}
	if decoded.Structured != nil {
		out.Value, out.Text = decoded.Structured, string(decoded.Structured)
	} else {
		value, more, err := c.opts.ToolResult(ctx, decoded)
		switch {
		case err != nil && decoded.IsError:
			out.Text = plainText(decoded.Content)
		case err != nil:
			return nil, fmt.Errorf("the result of tool %s cannot be extracted: %w", name, err)
		}
		out.Value = value
		if text, ok := value.(string); ok {
			out.Text = text
		}
		maps.Copy(out.Attributes, more)
	}
	if decoded.IsError {
		return nil, &ToolError{Tool: name, Text: out.Text}
	}
	return out, nil
}

// attributes are the members of a `_meta` object that MCP does not reserve.
func attributes(meta jsontext.Value) map[string]any {
	out := map[string]any{}
	if meta.Kind() != '{' {
		return out
	}
	_ = eachMember(meta, func(key string, value jsontext.Value) error {
		prefix, _, prefixed := strings.Cut(key, "/")
		labels := strings.Split(prefix, ".")
		if prefixed && len(labels) > 1 && (labels[1] == "modelcontextprotocol" || labels[1] == "mcp") {
			return nil
		}
		out[key] = value
		return nil
	})
	return out
}

// JoinText joins the text blocks of a result with line breaks. Any other block
// is an error that names its type.
func JoinText(_ context.Context, r *ToolResult) (any, map[string]any, error) {
	for _, block := range r.Content {
		if block.Type != "text" {
			return nil, nil, errors.New("unsupported content type: " + block.Type)
		}
	}
	return plainText(r.Content), nil, nil
}

func plainText(content []Content) string {
	var parts []string
	for _, block := range content {
		if block.Type == "text" {
			parts = append(parts, block.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// standsIn reports whether a timeout becomes a normal result.
func (c *Client) standsIn(r *request, err error) bool {
	if c.opts.Timeouts.ToolResult == "" || r.method != methodCallTool {
		return false
	}
	_, own := errors.AsType[*ownTimeout](err)
	return own
}

// timedOut is the result in place of a tool call that exceeded its timeout.
func (c *Client) timedOut() *Result {
	raw := appendString([]byte(`{"content":[{"type":"text","text":`), c.opts.Timeouts.ToolResult)
	return &Result{Raw: append(raw, "}]}"...), Type: ResultComplete, TimedOut: true}
}

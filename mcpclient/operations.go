package mcpclient

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ListTools returns every tool of the server, from the cache while it is
// fresh. Over modern HTTP, tools with invalid x-mcp-header annotations are left
// out and named in List.Excluded.
func (c *Client) ListTools(ctx context.Context) (*List, error) {
	return c.lists.tools.get(ctx, c, c.opts.Cache.NoTools)
}

// ListResources returns every resource of the server, as ListTools does.
func (c *Client) ListResources(ctx context.Context) (*List, error) {
	return c.lists.resources.get(ctx, c, c.opts.Cache.NoResources)
}

// ListResourceTemplates returns every resource template of the server, as
// ListTools does.
func (c *Client) ListResourceTemplates(ctx context.Context) (*List, error) {
	return c.lists.templates.get(ctx, c, c.opts.Cache.NoResources)
}

// ListPrompts returns every prompt of the server, as ListTools does.
func (c *Client) ListPrompts(ctx context.Context) (*List, error) {
	return c.lists.prompts.get(ctx, c, c.opts.Cache.NoPrompts)
}

// EvictTools makes the next ListTools ask the server.
func (c *Client) EvictTools() { c.lists.tools.invalidate() }

// EvictResources makes the next ListResources and ListResourceTemplates ask the
// server.
func (c *Client) EvictResources() {
	c.lists.resources.invalidate()
	c.lists.templates.invalidate()
}

// EvictPrompts makes the next ListPrompts ask the server.
func (c *Client) EvictPrompts() { c.lists.prompts.invalidate() }

// CallTool calls a tool. arguments is one JSON object without line breaks; nil
// = none. The name is sent as it is: only the server knows whether it exists.
// A tool that failed is a result with IsError, not an error. A call is sent a
// second time only if it surely did not start. A tool that a server of
// 2025-11-25 runs as a task alone (execution.taskSupport) is called as one and
// waited for.
func (c *Client) CallTool(ctx context.Context, name string, arguments jsontext.Value, options *CallOptions) (*Result, error) {
	if len(arguments) > 0 && !(options != nil && options.Checked) {
		if err := checkObject("arguments", arguments); err != nil {
			return nil, about(err, methodCallTool, name)
		}
	}
	params := appendString(append(make([]byte, 0, len(name)+16), `"name":`...), name)
	return c.do(ctx, &request{method: methodCallTool, name: name, params: params, arguments: arguments, continuation: continuation(options), options: options})
}

// ReadResource reads a resource.
func (c *Client) ReadResource(ctx context.Context, uri string, options *CallOptions) (*Result, error) {
	params := appendString([]byte(`"uri":`), uri)
	return c.do(ctx, &request{method: methodReadResource, name: uri, params: params, continuation: continuation(options), options: options})
}

// GetPrompt renders a prompt.
func (c *Client) GetPrompt(ctx context.Context, name string, arguments map[string]string, options *CallOptions) (*Result, error) {
	params := appendString([]byte(`"name":`), name)
	if len(arguments) > 0 {
		params = append(params, `,"arguments":`...)
		params = appendStringMap(params, arguments)
	}
	return c.do(ctx, &request{method: methodGetPrompt, name: name, params: params, continuation: continuation(options), options: options})
}

// CompleteParams is one question for completions (2026-07-28
// server/utilities/completion). Exactly one of Prompt and ResourceTemplate is
// set.
type CompleteParams struct {
	Prompt           string            // a prompt's name
	ResourceTemplate string            // a URI or URI template
	Argument         string            // the argument to complete
	Value            string            // what was typed so far
	Context          map[string]string // arguments that are known already
}

// Complete asks for completions of an argument.
func (c *Client) Complete(ctx context.Context, p CompleteParams, options *CallOptions) (*Result, error) {
	if (p.Prompt == "") == (p.ResourceTemplate == "") {
		return nil, &Error{Kind: KindInvalid, Method: methodComplete, SafeToRetry: true, Message: "set exactly one of the prompt and the resource template to complete for"}
	}
	var params []byte
	if p.Prompt != "" {
		params = appendString([]byte(`"ref":{"type":"ref/prompt","name":`), p.Prompt)
	} else {
		params = appendString([]byte(`"ref":{"type":"ref/resource","uri":`), p.ResourceTemplate)
	}
	params = appendString(append(params, `},"argument":{"name":`...), p.Argument)
	params = appendString(append(params, `,"value":`...), p.Value)
	params = append(params, '}')
	if len(p.Context) > 0 {
		params = appendStringMap(append(params, `,"context":{"arguments":`...), p.Context)
		params = append(params, '}')
	}
	return c.do(ctx, &request{method: methodComplete, params: params, options: options})
}

// KnowsTool reports whether the server's catalogue has a tool of this name. It
// is meant for telling an unknown name from another error, after the error.
func (c *Client) KnowsTool(ctx context.Context, name string) (bool, error) {
	return c.lists.tools.knows(ctx, c, name)
}

// KnowsPrompt is KnowsTool for prompts.
func (c *Client) KnowsPrompt(ctx context.Context, name string) (bool, error) {
	return c.lists.prompts.knows(ctx, c, name)
}

// KnowsResource is KnowsTool for resources. A URI that a resource template may
// produce counts as known.
func (c *Client) KnowsResource(ctx context.Context, uri string) (bool, error) {
	known, err := c.lists.resources.knows(ctx, c, uri)
	if known || err != nil {
		return known, err
	}
	templates, err := c.lists.templates.get(ctx, c, false)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(templates.Items, func(t Item) bool {
		literal, _, _ := strings.Cut(t.Name, "{")
		return strings.HasPrefix(uri, literal)
	}), nil
}

// checkObject refuses what would not be one line of valid JSON on the wire:
// there are servers that end at the first line they cannot read.
func checkObject(what string, object jsontext.Value) error {
	text := ""
	switch {
	case object.Kind() != '{':
		text = "are not a JSON object"
	case bytes.IndexByte(object, '\n') >= 0 || bytes.IndexByte(object, '\r') >= 0:
		text = "hold a line break; write them on one line"
	case !object.IsValid():
		text = "are not valid JSON"
	default:
		return nil
	}
	return &Error{Kind: KindInvalid, SafeToRetry: true, Message: "the " + what + " " + text}
}

// continuation writes what continues an input_required result (2026-07-28
// patterns/mrtr); older servers know no such params.
func continuation(o *CallOptions) []byte {
	if o == nil {
		return nil
	}
	var params []byte
	if len(o.InputResponses) > 0 {
		params = append(append(params, `,"inputResponses":`...), o.InputResponses...)
	}
	if o.RequestState != nil {
		params = appendString(append(params, `,"requestState":`...), *o.RequestState)
	}
	return params
}

// appendStringMap writes a JSON object of strings, in the order of its keys.
func appendStringMap(dst []byte, m map[string]string) []byte {
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, key)
		dst = append(dst, ':')
		dst = appendString(dst, m[key])
	}
	return append(dst, '}')
}

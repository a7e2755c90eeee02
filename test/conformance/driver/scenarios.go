package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// connect is all that a server without capabilities can be asked for.
func connect(ctx context.Context, c *mcpclient.Client) error { return c.Connect(ctx) }

func list(ctx context.Context, c *mcpclient.Client) error {
	_, err := c.ListTools(ctx)
	return err
}

// callOne calls a tool after it was found in the list.
func callOne(name, arguments string) scenario {
	return func(ctx context.Context, c *mcpclient.Client) error {
		tools, err := c.ListTools(ctx)
		if err != nil {
			return err
		}
		if !tools.Has(name) {
			return fmt.Errorf("the list has no tool %s", name)
		}
		return succeed(c.CallTool(ctx, name, jsontext.Value(arguments), nil))
	}
}

// succeed wants a complete result.
func succeed(result *mcpclient.Result, err error) error {
	switch {
	case err != nil:
		return err
	case result.Type != mcpclient.ResultComplete:
		return fmt.Errorf("the result is of type %s: %s", result.Type, result.Raw)
	case result.IsError:
		return fmt.Errorf("the tool failed: %s", result.Raw)
	}
	return nil
}

// callRounds calls tools that ask for input in every way, and one that does not.
func callRounds(ctx context.Context, c *mcpclient.Client) error {
	var failures []error
	for _, name := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
		if err := succeed(c.CallTool(ctx, name, jsontext.Value(`{}`), nil)); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(failures...)
}

// useEverything uses one of each thing that the server has.
func useEverything(ctx context.Context, c *mcpclient.Client) error {
	tools, err := c.ListTools(ctx)
	if err != nil {
		return err
	}
	for _, tool := range tools.Items {
		if _, err := c.CallTool(ctx, tool.Name, jsontext.Value(`{}`), nil); err != nil {
			return err
		}
	}
	resources, err := c.ListResources(ctx)
	if err != nil {
		return err
	}
	for _, resource := range resources.Items {
		if _, err := c.ReadResource(ctx, resource.Name, nil); err != nil {
			return err
		}
	}
	prompts, err := c.ListPrompts(ctx)
	if err != nil {
		return err
	}
	for _, prompt := range prompts.Items {
		if _, err := c.GetPrompt(ctx, prompt.Name, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// callFromContext makes the calls that the suite names.
func callFromContext(ctx context.Context, c *mcpclient.Client) error {
	var data struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &data); err != nil {
		return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
	}
	if len(data.ToolCalls) == 0 {
		return errors.New("MCP_CONFORMANCE_CONTEXT has no toolCalls")
	}
	if err := list(ctx, c); err != nil {
		return err
	}
	for _, call := range data.ToolCalls {
		if err := succeed(c.CallTool(ctx, call.Name, jsontext.Value(call.Arguments), nil)); err != nil {
			return err
		}
	}
	return nil
}

// callRemaining calls every tool of the list, which must not have those with invalid annotations.
func callRemaining(ctx context.Context, c *mcpclient.Client) error {
	tools, err := c.ListTools(ctx)
	if err != nil {
		return err
	}
	if len(tools.Excluded) == 0 || !tools.Has("valid_tool") {
		return fmt.Errorf("%d tools were excluded, %d remain", len(tools.Excluded), len(tools.Items))
	}
	for _, tool := range tools.Items {
		if err := succeed(c.CallTool(ctx, tool.Name, jsontext.Value(`{"region":"us-west1"}`), nil)); err != nil {
			return err
		}
	}
	return nil
}

// echoSchema sends the schema of one tool to another, byte for byte.
func echoSchema(ctx context.Context, c *mcpclient.Client) error {
	tools, err := c.ListTools(ctx)
	if err != nil {
		return err
	}
	for _, item := range tools.Items {
		if item.Name != "json_schema_2020_12_tool" {
			continue
		}
		var tool struct {
			InputSchema json.RawMessage `json:"inputSchema"`
		}
		if err := json.Unmarshal(item.Raw, &tool); err != nil {
			return err
		}
		arguments := fmt.Appendf(nil, `{"schema":%s}`, tool.InputSchema)
		return succeed(c.CallTool(ctx, "json_schema_echo", arguments, nil))
	}
	return errors.New("the list has no tool json_schema_2020_12_tool")
}

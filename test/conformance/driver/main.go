// Command driver is the client under test of the official conformance suite: it does over mcpclient what each scenario
// of the client role asks for. The suite starts it with the server's URL as the last argument and names the scenario
// in the environment. It says nothing of the protocol version, so that every scenario also tests its detection.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: driver URL, with MCP_CONFORMANCE_SCENARIO in the environment")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second) // the suite kills after 30
	defer cancel()
	name := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	scenario, options, err := find(name)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options.Info = mcpclient.Implementation{Name: "mcpbridge-conformance", Version: "1.0.0"}
	options.Logger = logger
	client, err := mcpclient.New(&transport.HTTP{URL: os.Args[1], Logger: logger}, options)
	if err != nil {
		return err
	}
	client.Start()
	err = scenario(ctx, client)
	closing, stop := context.WithTimeout(context.Background(), 4*time.Second)
	defer stop()
	if err := errors.Join(err, client.Close(closing)); err != nil {
		return fmt.Errorf("scenario %s: %w", name, err)
	}
	return nil
}

// scenario is what the client does once it is started.
type scenario func(context.Context, *mcpclient.Client) error

// find returns what to do for a scenario, and the options it needs.
func find(name string) (scenario, mcpclient.Options, error) {
	var options mcpclient.Options
	switch name {
	case "initialize":
		return connect, options, nil
	case "json-schema-ref-no-deref":
		return list, options, nil
	case "request-metadata":
		options.Roots = []mcpclient.Root{{URI: "file:///tmp", Name: "tmp"}}
		options.Handlers.Elicit = confirm
		options.Handlers.Sample = sample
		return connect, options, nil
	case "tools_call":
		return callOne("add_numbers", `{"a":5,"b":3}`), options, nil
	case "sse-retry":
		return callOne("test_reconnection", `{}`), options, nil
	case "elicitation-sep1034-client-defaults":
		options.Handlers.Elicit = fillDefaults
		return callOne("test_client_elicitation_defaults", `{}`), options, nil
	case "sep-2322-client-request-state":
		options.Handlers.Elicit = confirm
		return callRounds, options, nil
	case "http-standard-headers":
		return useEverything, options, nil
	case "http-custom-headers":
		return callFromContext, options, nil
	case "http-invalid-tool-headers":
		return callRemaining, options, nil
	case "json-schema-2020-12-preservation":
		return echoSchema, options, nil
	}
	return nil, options, fmt.Errorf("unknown scenario %q", name)
}

// confirm accepts and confirms.
func confirm(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
	return &mcpclient.ElicitResult{Action: "accept", Content: jsontext.Value(`{"confirmed":true}`)}, nil
}

// fillDefaults accepts a form as it stands, with the defaults of its schema.
func fillDefaults(_ context.Context, r *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
	var schema struct {
		Properties map[string]struct {
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(r.Schema, &schema); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	content := map[string]json.RawMessage{}
	for name, property := range schema.Properties {
		if property.Default != nil {
			content[name] = property.Default
		}
	}
	raw, err := json.Marshal(content)
	return &mcpclient.ElicitResult{Action: "accept", Content: raw}, err
}

func sample(context.Context, jsontext.Value) (jsontext.Value, error) {
	return jsontext.Value(`{"role":"assistant","content":{"type":"text","text":"yes"},"model":"none"}`), nil
}

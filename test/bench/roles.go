package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"

	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// roles are the processes that this program is besides the one that measures: NAME ARGUMENTS. Each runs until ctx
// ends, if it does not end by itself.
var roles = map[string]func(ctx context.Context, args []string) error{
	"load":  loadRole,  // SPEC: calls, and prints a sample
	"floor": floorRole, // URL: forwards each call as one POST
	"sdk":   sdkRole,   // URL, or COMMAND...: forwards each call through the official Go SDK's client
	"mcp":   mcpRole,   // MODE TOOLS: an MCP server
	"sink":  sinkRole,  // a collector that drops what it gets
	"pin":   pinRole,   // CPUS COMMAND...: becomes the command, on these processors
}

// role is the role that the arguments of a program name, if they name one.
func role(args []string) (run func(context.Context) error, ok bool) {
	if len(args) < 2 || roles[args[1]] == nil {
		return nil, false
	}
	return func(ctx context.Context) error {
		if err := roles[args[1]](ctx, args[2:]); err != nil {
			return fmt.Errorf("%s: %w", args[1], err)
		}
		return nil
	}, true
}

func loadRole(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("takes its specification, got %q", args)
	}
	var spec loadSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return err
	}
	s, err := load(ctx, spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

func floorRole(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("takes the URL of the MCP server, got %q", args)
	}
	return serveReference(ctx, newPoster(args[0]))
}

func sdkRole(ctx context.Context, args []string) error {
	var url string
	if len(args) == 1 {
		url, args = args[0], nil
	}
	s, err := newSession(ctx, url, args)
	if err != nil {
		return err
	}
	defer s.Close()
	return serveReference(ctx, s)
}

func mcpRole(ctx context.Context, args []string) error {
	modes := []lightmcp.Mode{lightmcp.JSON, lightmcp.SSE, lightmcp.Legacy, lightmcp.Stdio}
	if len(args) != 2 || !slices.Contains(modes, lightmcp.Mode(args[0])) {
		return fmt.Errorf("takes one of %v and a number of tools, got %q", modes, args)
	}
	many, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	server := lightmcp.New(lightmcp.Mode(args[0]), many)
	if args[0] == string(lightmcp.Stdio) {
		return server.ServeStdio(ctx, os.Stdin, os.Stdout)
	}
	return serveHTTP(ctx, server)
}

func sinkRole(ctx context.Context, _ []string) error {
	return serveHTTP(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what does not arrive is no loss
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
}

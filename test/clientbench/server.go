package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// tools are the sizes of results by the names that workloads have for them.
var tools = map[string]int{"small": 1 << 10, "large": 1 << 20}

// toolName is the server's name of a tool.
func toolName(size string) string { return fmt.Sprintf("text_%d", tools[size]) }

// answer is the text of a tool's result.
func answer(size string) string { return lightmcp.Text(tools[size]) }

// serve is the server's process: server json|sse|stdio.
func serve(args []string) error {
	if len(args) != 1 {
		return errors.New("the server takes the transport as its argument")
	}
	server := lightmcp.New(lightmcp.Mode(args[0]), 0)
	if args[0] == string(lightmcp.Stdio) {
		return server.ServeStdio(context.Background(), os.Stdin, os.Stdout)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	return http.Serve(listener, server)
}

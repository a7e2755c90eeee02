package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serverArg as the first argument makes the program one of the MCP servers that are disturbed.
const serverArg = "server"

// A server's files in the folder of the run. The mode file is how it is told to misbehave; it outlives the server.
func callsFile(dir, name string) string { return filepath.Join(dir, name+".calls") }
func pidFile(dir, name string) string   { return filepath.Join(dir, name+".pid") }
func modeFile(dir, name string) string  { return filepath.Join(dir, name+".mode") }

// The modes of a server. slowMode is followed by the milliseconds that each call takes.
const (
	mode500  = "500"
	mode404  = "404"
	modeHTML = "html"
	slowMode = "slow "
)

// toolName is the tool that all calls of a run are for. Its result is recorded in the calls file before it answers.
const toolName = "record"

// serverCommand are the arguments that start the server of a target.
func serverCommand(dir string, t *target) []string {
	args := []string{serverArg, "-name", t.name, "-dir", dir}
	if t.kind != kindStdio {
		args = append(args, "-http", t.address)
	}
	if t.kind == kindModern {
		args = append(args, "-stateless")
	}
	return args
}

// chaosServer is an MCP server on the official SDK that records each call.
type chaosServer struct {
	calls *os.File
	mode  string // path of the mode file
}

func serverMain(ctx context.Context, args []string) error {
	set := flag.NewFlagSet(serverArg, flag.ContinueOnError)
	name := set.String("name", "", "name of the target")
	dir := set.String("dir", "", "folder of the run")
	addr := set.String("http", "", "serve streamable HTTP on this address, not stdio")
	stateless := set.Bool("stateless", false, "no sessions: both eras, not only the legacy one")
	if err := set.Parse(args); err != nil {
		return err
	}
	calls, err := os.OpenFile(callsFile(*dir, *name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer calls.Close()
	s := &chaosServer{calls: calls, mode: modeFile(*dir, *name)}
	server := s.mcp()
	if err := replaceFile(pidFile(*dir, *name), strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if *addr == "" {
		return server.Run(ctx, &mcp.StdioTransport{})
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: *stateless})
	web := &http.Server{Handler: s.faults(handler)}
	fmt.Println("listening")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the driver, however that ends
		web.Close()
	}()
	defer context.AfterFunc(ctx, func() { web.Close() })()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// replaceFile writes a file so that readers see the old or the new content.
func replaceFile(path, content string) error {
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (s *chaosServer) mcp() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "chaos", Version: "1.0.0"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"},"delay_ms":{"type":"integer"}},"required":["id"]}`)
	server.AddTool(&mcp.Tool{Name: toolName, Description: "Records its id.", InputSchema: schema}, s.record)
	return server
}

// record appends the id in one write, and answers after the delay. A call that cannot be recorded has no answer, so
// that it cannot pass for a success.
func (s *chaosServer) record(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		ID      string `json:"id"`
		DelayMS int    `json:"delay_ms"`
	}
	if err := json.Unmarshal(request.Params.Arguments, &in); err != nil {
		return nil, err
	}
	if _, err := s.calls.WriteString(in.ID + "\n"); err != nil {
		return nil, err
	}
	delay := time.Duration(in.DelayMS) * time.Millisecond
	if slow, ok := strings.CutPrefix(s.current(), slowMode); ok {
		ms, err := strconv.Atoi(slow)
		if err != nil {
			return nil, err
		}
		delay = time.Duration(ms) * time.Millisecond
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.ID}}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// current reads the mode anew for each request; a server without a mode file is well.
func (s *chaosServer) current() string {
	raw, err := os.ReadFile(s.mode)
	if err != nil {
		return ""
	}
	return string(raw)
}

// faults answers in place of the server while the mode says so.
func (s *chaosServer) faults(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch s.current() {
		case mode500:
			http.Error(w, "out of order", http.StatusInternalServerError)
		case mode404:
			http.NotFound(w, r)
		case modeHTML:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<!doctype html><title>Sign in</title><p>Please sign in to continue.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

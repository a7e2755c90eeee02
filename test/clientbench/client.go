package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// caller makes one call and returns the text of its result; close ends the client.
type caller struct {
	call  func(ctx context.Context) (string, error)
	close func() error
}

// connector makes a client; the arguments are those of load.
type connector func(ctx context.Context, target, kind, tool string) (*caller, error)

const callArguments = `{"query":"what is the answer","limit":10}`

// load is a client's process: client ours|sdk TARGET json|sse|stdio small|large DURATION CALLERS [PROFILE]. TARGET is
// the server's URL, or its program on stdio. It prints one sample.
func load(args []string) error {
	if len(args) != 6 && len(args) != 7 {
		return fmt.Errorf("the client takes 6 or 7 arguments, got %q", args)
	}
	who, target, kind, tool := args[0], args[1], args[2], args[3]
	duration, err := time.ParseDuration(args[4])
	if err != nil {
		return err
	}
	callers, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	ctx := context.Background()
	connect := map[string]connector{"ours": ours, "sdk": sdk}[who]
	if connect == nil {
		return fmt.Errorf("unknown client %q", who)
	}
	c, err := connect(ctx, target, kind, tool)
	if err != nil {
		return err
	}
	text, err := c.call(ctx)
	if err != nil {
		return err
	}
	if want := len(answer(tool)); len(text) != want {
		return fmt.Errorf("the result has %d bytes of text, want %d", len(text), want)
	}
	if _, err := spin(ctx, c, callers, duration/5); err != nil { // warm-up
		return err
	}
	if len(args) == 7 {
		file, err := os.Create(args[6])
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	s, err := spin(ctx, c, callers, duration)
	if err != nil {
		return err
	}
	if err := c.close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// spin calls for the duration and measures this process.
func spin(ctx context.Context, c *caller, callers int, duration time.Duration) (sample, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began, cpu := time.Now(), cpuTime()
	var calls atomic.Int64
	failures := make([]error, callers)
	var workers sync.WaitGroup
	for i := range callers {
		workers.Go(func() {
			for time.Since(began) < duration {
				if _, failures[i] = c.call(ctx); failures[i] != nil {
					return
				}
				calls.Add(1)
			}
		})
	}
	workers.Wait()
	used, took := cpuTime()-cpu, time.Since(began)
	runtime.ReadMemStats(&after)
	if err := errors.Join(failures...); err != nil {
		return sample{}, err
	}
	n := float64(calls.Load())
	return sample{
		CPU:    float64(used.Nanoseconds()) / 1000 / n,
		Allocs: float64(after.Mallocs-before.Mallocs) / n, Bytes: float64(after.TotalAlloc-before.TotalAlloc) / n,
		Calls: int(n), Seconds: took.Seconds(),
	}, nil
}

// cpuTime is what this process has used so far, its children not included.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // the arguments are constant
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// ours is this module's client. It decodes the result, as the SDK does.
func ours(ctx context.Context, target, kind, tool string) (*caller, error) {
	var over transport.Transport = &transport.HTTP{URL: target}
	if kind == "stdio" {
		over = &transport.Command{Path: target, Args: []string{"server", "stdio"}, Env: os.Environ()}
	}
	client, err := mcpclient.New(over, mcpclient.Options{})
	if err != nil {
		return nil, err
	}
	if err := client.Connect(ctx); err != nil {
		return nil, err
	}
	return &caller{
		call: func(ctx context.Context) (string, error) {
			raw, err := client.CallTool(ctx, toolName(tool), jsontext.Value(callArguments), nil)
			if err != nil {
				return "", err
			}
			result, err := raw.ToolResult()
			if err != nil {
				return "", err
			}
			if len(result.Content) != 1 {
				return "", fmt.Errorf("%d content blocks", len(result.Content))
			}
			return result.Content[0].Text, nil
		},
		close: func() error { return client.Close(ctx) },
	}, nil
}

// sdk is the client of the official Go SDK.
func sdk(ctx context.Context, target, kind, tool string) (*caller, error) {
	var over mcp.Transport = &mcp.StreamableClientTransport{
		Endpoint: target, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	if kind == "stdio" {
		over = &mcp.CommandTransport{Command: exec.Command(target, "server", "stdio")}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, over, nil)
	if err != nil {
		return nil, err
	}
	return &caller{
		call: func(ctx context.Context) (string, error) {
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: toolName(tool), Arguments: json.RawMessage(callArguments)})
			if err != nil {
				return "", err
			}
			if len(result.Content) != 1 {
				return "", fmt.Errorf("%d content blocks", len(result.Content))
			}
			text, ok := result.Content[0].(*mcp.TextContent)
			if !ok {
				return "", fmt.Errorf("a content block of type %T", result.Content[0])
			}
			return text.Text, nil
		},
		close: session.Close,
	}, nil
}

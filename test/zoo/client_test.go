package zoo

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// logger passes what the client logs to the test, and fails it at an error.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s", line)
	if strings.Contains(string(line), "level=ERROR") {
		w.t.Errorf("the client logged an error: %s", line)
	}
	return len(line), nil
}

// client is a started client; it is closed at the end of the test, in bounded time.
type client struct {
	*mcpclient.Client
	t *testing.T

	mu      sync.Mutex
	counts  map[string]int // notifications by method
	changed chan struct{}  // closed and replaced at each notification
}

// dial starts a client that declares everything, since some servers hide tools from clients that cannot answer.
func dial(t *testing.T, target transport.Transport, change func(*mcpclient.Options)) *client {
	t.Helper()
	c := &client{t: t, counts: map[string]int{}, changed: make(chan struct{})}
	options := mcpclient.Options{
		Key:     "zoo",
		Logger:  logger(t),
		Version: mcpclient.VersionOptions{DetectTimeout: patience, Timeout: patience},
		Roots:   []mcpclient.Root{{URI: "file:///tmp", Name: "tmp"}},
		Handlers: mcpclient.Handlers{
			Elicit: func(context.Context, *mcpclient.ElicitRequest) (*mcpclient.ElicitResult, error) {
				return &mcpclient.ElicitResult{Action: "decline"}, nil
			},
			Sample: func(context.Context, jsontext.Value) (jsontext.Value, error) {
				return jsontext.Value(`{"role":"assistant","content":{"type":"text","text":"forty-two"},"model":"zoo"}`), nil
			},
			Notification: map[string]func(context.Context, mcpclient.Notification){"": c.count},
		},
	}
	if change != nil {
		change(&options)
	}
	var err error
	if c.Client, err = mcpclient.New(target, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	c.Start()
	return c
}

// close ends the client, which takes the time that the server needs to end, but not more than the transport allows.
func (c *client) close() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		c.t.Errorf("close after %v: %v", time.Since(began), err)
	}
}

func (c *client) count(_ context.Context, n mcpclient.Notification) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[n.Method]++
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until there were n notifications of a method.
func (c *client) await(method string, n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		c.mu.Lock()
		seen, changed := c.counts[method], c.changed
		c.mu.Unlock()
		if seen >= n {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			c.t.Fatalf("%d of %d %s came", seen, n, method)
		}
	}
}

// connect waits for the connection and returns what was negotiated.
func (c *client) connect() *mcpclient.Server {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		c.t.Fatalf("connect: %v", err)
	}
	return c.Status().Server
}

// awaitConnections waits until the client is ready after n connections.
func (c *client) awaitConnections(n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status := c.Status()
		if status.Connects >= n && status.State == mcpclient.StateReady {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("the client is %v after %d connections: %v", status.State, status.Connects, status.LastError)
		}
	}
}

// call calls a tool within the time that a test has.
func (c *client) call(name, arguments string) (*mcpclient.Result, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.CallTool(ctx, name, jsontext.Value(arguments), nil)
}

// mustCall calls a tool and wants a good result with this text in it.
func (c *client) mustCall(name, arguments, want string) {
	c.t.Helper()
	if outcome := describe(c.call(name, arguments)); !strings.HasPrefix(outcome, "result ") || !strings.Contains(outcome, want) {
		c.t.Errorf("%s: got %s, want a result with %q", name, outcome, want)
	}
}

// describe puts the outcome of a request into one line: "result JSON", "isError JSON", "rpc CODE MESSAGE" or
// "KIND MESSAGE".
func describe(result *mcpclient.Result, err error) string {
	if err != nil {
		e, ok := asError(err)
		switch {
		case !ok:
			return "foreign error: " + err.Error()
		case e.Kind == mcpclient.KindRPC:
			return fmt.Sprintf("rpc %d %s", e.RPC.Code, e.RPC.Message)
		}
		return fmt.Sprintf("%v %s", e.Kind, e.Message)
	}
	switch {
	case result.Type != mcpclient.ResultComplete:
		return result.Type + " " + string(result.Raw)
	case result.IsError:
		return "isError " + string(result.Raw)
	}
	return "result " + string(result.Raw)
}

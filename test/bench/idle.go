package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// Rows of what is measured without a load.
const (
	oneTarget       = "one target"
	manyTargets     = "many targets"
	changingTargets = "many targets that tell of changed lists"
	demoStart       = "bridge serve --demo, a call of its child process"
	bareStart       = "Connect server with one bare POST"
)

// measureTargets measures bridges that have nothing to do, all of them at the same time.
func measureTargets(ctx context.Context, r *runner) ([]row, error) {
	server, err := r.startServer(ctx, lightmcp.JSON, 0)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	kinds := []struct {
		name, path string
		targets    int
	}{{oneTarget, "/t", 1}, {manyTargets, "/t", r.targets}, {changingTargets, lightmcp.Changes, r.targets}}
	var rows []row
	var bridges []*process
	for _, kind := range kinds {
		var targets []string
		for i := range kind.targets {
			targets = append(targets, fmt.Sprintf("  t%d: {url: \"http://%s%s/%d\"}\n", i, server.address, kind.path, i))
		}
		p, err := r.startBridge(ctx, nil, targets...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		defer p.stop()
		if err := ready(ctx, p, kind.targets); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		bridges = append(bridges, p)
	}
	before := make([]time.Duration, len(bridges))
	for i, p := range bridges {
		if before[i], err = cpuTime(p.cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := wait(ctx, r.settle); err != nil {
		return nil, err
	}
	took := time.Since(began)
	for i, p := range bridges {
		after, err := cpuTime(p.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		now, _, err := memory(p.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{name: kinds[i].name, values: map[metric][]float64{
			resident: {float64(now) / (1 << 20)},
			idleCPU:  {float64((after - before[i]).Microseconds()) / 1000 / took.Seconds()},
		}})
	}
	return rows, nil
}

// ready waits until all targets of a bridge are connected.
func ready(ctx context.Context, p *process, targets int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 4*patience, fmt.Errorf("the %d targets were not all connected within %s", targets, 4*patience))
	defer cancel()
	conn, err := dial(p.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := mcpbridgegrpc.NewHealthServiceClient(conn).WatchTargets(ctx, &pb.WatchTargetsRequest{})
	if err != nil {
		return err
	}
	connected := map[string]bool{}
	for len(connected) < targets {
		event, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		if event.GetTarget().GetState() == pb.TargetState_TARGET_STATE_READY {
			connected[event.GetTarget().GetName()] = true
		}
	}
	return nil
}

// wait lets time pass, which is what is measured here.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// measureStart measures how long it takes from the start of a process to its first answer.
func measureStart(ctx context.Context, r *runner) ([]row, error) {
	server, err := r.startServer(ctx, lightmcp.JSON, 0)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	rows := []row{{name: demoStart, values: map[metric][]float64{}}, {name: bareStart, values: map[metric][]float64{}}}
	commands := [][]string{{r.bridge, "serve", "--demo", "--listen", "127.0.0.1:0"}, {r.self, "floor", "http://" + server.address}}
	for range r.rounds {
		for i, command := range commands { // not pinned, since a pinned one begins as another program
			if err := measureOneStart(ctx, rows[i], command); err != nil {
				return nil, fmt.Errorf("%s: %w", rows[i].name, err)
			}
		}
	}
	return rows, nil
}

func measureOneStart(ctx context.Context, row row, command []string) error {
	began := time.Now()
	p, err := launch(ctx, false, []string{"OTEL_TRACES_EXPORTER=none"}, command...)
	if err != nil {
		return err
	}
	defer p.stop()
	over, err := newRemote(p.address)
	if err != nil {
		return err
	}
	defer over.Close()
	answer, err := over.CallTool(ctx, &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"text":"hello"}`), JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT})
	if err != nil {
		return err
	}
	took := time.Since(began)
	if result := answer.GetResult(); !strings.Contains(result.GetStructuredContentJson(), "hello") {
		return wrong(answer)
	}
	now, _, err := memory(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	row.values[starting] = append(row.values[starting], took.Seconds()*1000)
	row.values[resident] = append(row.values[resident], float64(now)/(1<<20))
	return nil
}

// each runs f for 0 to n-1, at most at once at a time, and returns the first error.
func each(n, atOnce int, f func(i int) error) error {
	errs := make(chan error, 1)
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := f(i); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// sample is one measurement.
type sample struct {
	cpu      float64 // µs of the process per call
	rate     float64 // calls per second
	p50, p99 float64 // milliseconds
}

func dial(c *contender) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+cmp.Or(c.address, c.process.address), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// check makes one call and looks at its answer.
func check(c *contender, text string) error {
	conn, err := dial(c)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	response, err := mcpbridgegrpc.NewToolsServiceClient(conn).CallTool(ctx, c.request)
	if err != nil {
		return err
	}
	result := response.GetResult()
	if strings.Contains(result.GetStructuredContentJson(), text) {
		return nil
	}
	if len(result.GetContent()) == 1 && result.GetContent()[0].GetText().GetText() == text {
		return nil
	}
	return fmt.Errorf("wrong answer: %v", response)
}

// load calls for the duration and measures the CPU of the contender's process meanwhile.
func load(c *contender, callers int, duration time.Duration) (sample, error) {
	conn, err := dial(c)
	if err != nil {
		return sample{}, err
	}
	defer conn.Close()
	tools := mcpbridgegrpc.NewToolsServiceClient(conn)
	ctx := context.Background()
	if c.parent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", c.parent)
	}
	spin := func(duration time.Duration) ([]time.Duration, error) {
		times, failures := make([][]time.Duration, callers), make([]error, callers)
		end := time.Now().Add(duration)
		var workers sync.WaitGroup
		for i := range callers {
			workers.Go(func() {
				for {
					began := time.Now()
					if began.After(end) {
						return
					}
					if _, failures[i] = tools.CallTool(ctx, c.request); failures[i] != nil {
						return
					}
					times[i] = append(times[i], time.Since(began))
				}
			})
		}
		workers.Wait()
		return slices.Sorted(slices.Values(slices.Concat(times...))), errors.Join(failures...)
	}
	if _, err := spin(duration / 5); err != nil { // warm-up
		return sample{}, err
	}
	before, err := cpuTime(c.process.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	times, err := spin(duration)
	if err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	after, err := cpuTime(c.process.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	n := len(times)
	if n == 0 {
		return sample{}, errors.New("no call ended within the measurement; raise -duration")
	}
	return sample{
		cpu:  float64((after - before).Microseconds()) / float64(n),
		rate: float64(n) / took.Seconds(),
		p50:  times[n/2].Seconds() * 1000,
		p99:  times[n*99/100].Seconds() * 1000,
	}, nil
}

// cpuTime is the user and system time of a process, to 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time needs Linux: %w", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // from field 3, the state, on
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // Linux reports in ticks of 1/100 s
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

// loadSpec is what one load generator does.
type loadSpec struct {
	Via         string   // grpc; post and sdk call the MCP server directly
	Address     string   // of the listener, or the URL of the MCP server
	Command     []string // the MCP server's, with sdk; nil = the address says where it is
	Work        work
	Callers     int
	Connections int // that the callers share, at most one for each
	WarmUp      time.Duration
	Duration    time.Duration
	Parent      string // traceparent of the calls over grpc; "" = none
	PID         int    // of the process whose CPU and memory are measured; 0 = the generator itself
}

// sample is one measurement.
type sample struct {
	CPU           float64 // µs of the process per call
	Rate          float64 // calls per second
	P50, P95, P99 float64 // milliseconds
	Told          float64 // progress messages per call
	Memory, Peak  int     // bytes that the process holds at the end, and the most it held while measured
}

// load warms up, then calls for the duration and measures the process meanwhile.
func load(ctx context.Context, spec loadSpec) (sample, error) {
	job, err := spec.Work.prepare()
	if err != nil {
		return sample{}, err
	}
	ways, end, err := spec.connect(ctx)
	if err != nil {
		return sample{}, err
	}
	defer end()
	if spec.Parent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", spec.Parent)
	}
	if _, err := spin(ctx, job, ways, spec.Callers, spec.WarmUp); err != nil {
		return sample{}, err
	}
	if err := resetPeak(spec.PID); err != nil {
		return sample{}, err
	}
	job.told.Store(0)
	before, err := cpuTime(spec.PID)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	times, err := spin(ctx, job, ways, spec.Callers, spec.Duration)
	if err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	after, err := cpuTime(spec.PID)
	if err != nil {
		return sample{}, err
	}
	now, peak, err := memory(spec.PID)
	if err != nil {
		return sample{}, err
	}
	n := len(times)
	at := func(share int) float64 { return times[(n-1)*share/100].Seconds() * 1000 }
	return sample{
		CPU:  float64((after - before).Nanoseconds()) / 1000 / float64(n),
		Rate: float64(n) / took.Seconds(),
		P50:  at(50), P95: at(95), P99: at(99),
		Told:   float64(job.told.Load()) / float64(n),
		Memory: now, Peak: peak,
	}, nil
}

// connect makes the ways that the callers share. The caller must call end.
func (s *loadSpec) connect(ctx context.Context) (ways []api, end func(), err error) {
	var ends []func() error
	end = func() {
		for _, end := range ends {
			_ = end() // the measurement is over
		}
	}
	for range max(1, min(s.Connections, s.Callers)) {
		switch s.Via {
		case "grpc":
			r, err := newRemote(s.Address)
			if err != nil {
				end()
				return nil, nil, err
			}
			ways, ends = append(ways, r), append(ends, r.Close)
		case "post":
			ways = append(ways, newPoster(s.Address))
		case "sdk":
			c, err := newSession(ctx, s.Address, s.Command)
			if err != nil {
				end()
				return nil, nil, err
			}
			ways, ends = append(ways, c), append(ends, c.Close)
		default:
			end()
			return nil, nil, fmt.Errorf("there is no way %q to call", s.Via)
		}
	}
	return ways, end, nil
}

// spin calls for the duration, at least once for each caller, and returns how long each call took, sorted. The first
// error ends it.
func spin(ctx context.Context, job *job, ways []api, callers int, duration time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	times := make([][]time.Duration, callers)
	until := time.Now().Add(duration)
	var workers sync.WaitGroup
	for i := range callers {
		workers.Go(func() {
			for n := i; ; n++ {
				began := time.Now()
				if n > i && began.After(until) {
					return
				}
				if err := job.do(ctx, ways[i%len(ways)], n); err != nil {
					cancel(err)
					return
				}
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	all := slices.Sorted(slices.Values(slices.Concat(times...)))
	if len(all) == 0 {
		return nil, errors.New("there are no callers")
	}
	return all, nil
}

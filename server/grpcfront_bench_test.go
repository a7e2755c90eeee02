package server

import (
	"context"
	"log/slog"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
)

// BenchmarkListeners compares the CPU time of both listeners, in turns, by a
// call that needs no MCP server, from 16 callers on one connection. Their client
// is grpc-go's, in the same process, so that its share is in all figures.
func BenchmarkListeners(b *testing.B) {
	const callers, each = 16, 100
	set, err := targets.New(config.Default(), targets.Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Options{Targets: set})
	if err != nil {
		b.Fatal(err)
	}
	all, alone := loopback(b), loopback(b)
	served := make(chan error, 2)
	go func() { served <- s.Serve(all) }()
	go func() { served <- s.ServeGRPC(alone) }()
	var conns [2]*grpc.ClientConn
	for i, addr := range []string{all.Addr().String(), alone.Addr().String()} {
		if conns[i], err = grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			b.Fatal(err)
		}
	}
	var used [2]int64
	rounds := 0
	for ; b.Loop(); rounds++ {
		for i, conn := range conns {
			before := cpuTime(b)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if err := conn.Invoke(b.Context(), mcpbridgev1connect.HealthServiceListTargetsProcedure, &pb.ListTargetsRequest{}, &pb.ListTargetsResponse{}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			used[i] += cpuTime(b) - before
		}
	}
	calls := float64(rounds * callers * each)
	b.ReportMetric(float64(used[0])/calls, "all-cpu-ns/call")
	b.ReportMetric(float64(used[1])/calls, "grpc-cpu-ns/call")
	b.ReportMetric(float64(used[0])/float64(used[1]), "ratio")
	for _, conn := range conns {
		conn.Close()
	}
	if err := s.Shutdown(context.WithoutCancel(b.Context())); err != nil {
		b.Error(err)
	}
	for range conns {
		if err := <-served; err != nil {
			b.Error(err)
		}
	}
}

// cpuTime is what this process has used of the CPU, in nanoseconds.
func cpuTime(tb testing.TB) int64 {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

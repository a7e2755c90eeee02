package server

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
)

// BenchmarkListeners compares the two listeners by a call that needs no MCP
// server. The client, grpc-go's, is the same for both and in the same process;
// user+sys is the CPU time of both ends.
func BenchmarkListeners(b *testing.B) {
	set, err := targets.New(config.Default(), targets.Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Options{Targets: set})
	if err != nil {
		b.Fatal(err)
	}
	both, fast := loopback(b), loopback(b)
	go func() { _ = s.Serve(both) }()
	go func() { _ = s.ServeGRPC(fast) }()
	defer func() {
		if err := s.Shutdown(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	}()
	for name, addr := range map[string]string{"main": both.Addr().String(), "fast": fast.Addr().String()} {
		b.Run(name, func(b *testing.B) {
			conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			b.SetParallelism(16)
			b.ReportAllocs()
			before := cpuTime(b)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := conn.Invoke(b.Context(), mcpbridgev1connect.HealthServiceListTargetsProcedure, &pb.ListTargetsRequest{}, &pb.ListTargetsResponse{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

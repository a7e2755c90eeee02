package server

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/grpcreflect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// result is what a call in the background came to.
type result struct {
	res *pb.CallToolResponse
	err error
}

// callInBackground starts a call and waits until the server has it.
func callInBackground(t *testing.T, b *bridge, server *mcptest.Server, protocol string) <-chan result {
	t.Helper()
	client := b.tools(protocol)
	done := make(chan result, 1)
	before := server.Count("tools/call")
	go func() {
		res, err := client.CallTool(context.WithoutCancel(t.Context()), &pb.CallToolRequest{Name: "echo"})
		done <- result{res, err}
	}()
	if _, err := server.WaitFor(t.Context(), "tools/call", before+1); err != nil {
		t.Fatal(err)
	}
	return done
}

// refused reports whether the listener is closed.
func refused(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

func TestCallsInFlightFinishWhileTheServerShutsDown(t *testing.T) {
	for _, protocol := range []string{overGRPC, overFastGRPC, overGRPCWeb, overConnectJSON} {
		t.Run(protocol, func(t *testing.T) {
			gate := make(chan struct{})
			server := shop(mcptest.Modern)
			server.Tools[0].Call = mcptest.After(gate, mcptest.Echo())
			b := one(t, server).ready()
			health := b.health(protocol)
			if status, err := health.check(t.Context(), ""); err != nil || status != healthServing {
				t.Fatalf("health %v, %v; want SERVING", status, err)
			}
			call := callInBackground(t, b, server, protocol)
			ended := make(chan error, 1)
			go func() { ended <- b.Shutdown(context.WithoutCancel(t.Context())) }()
			if err := <-b.served; err != nil { // returns as soon as the listener is closed
				t.Errorf("serve: %v", err)
			}
			b.served <- nil // for the end of the test
			if !refused(b.addr) {
				t.Error("the listener still accepts connections")
			}
			select {
			case err := <-ended:
				t.Fatalf("Shutdown returned %v with a call in flight", err)
			default:
			}
			close(gate)
			if got := <-call; got.err != nil || got.res.GetResult() == nil {
				t.Errorf("the call in flight came to %v, %v", got.res, got.err)
			}
			if err := <-ended; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
}

func TestShutdownIsBounded(t *testing.T) {
	for _, protocol := range []string{overGRPC, overFastGRPC, overConnectJSON} {
		t.Run(protocol, func(t *testing.T) {
			server := shop(mcptest.Modern)
			server.Tools[0].Call = mcptest.Silence()
			b := one(t, server).ready()
			call := callInBackground(t, b, server, protocol)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := b.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v, want the context's error", err)
			}
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("Shutdown took %v", took)
			}
			got := <-call
			wantError(t, got.err, connect.CodeUnknown, reasonOutcomeUnknown, "shut down")
		})
	}
}

func TestHealthWatchesEndWhenTheServerShutsDown(t *testing.T) {
	for _, protocol := range []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect} {
		t.Run(protocol, func(t *testing.T) {
			b := one(t, shop(mcptest.Modern)).ready()
			next, err := b.health(protocol).watch(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if status, err := next(); err != nil || status != healthServing {
				t.Fatalf("first status %v, %v; want SERVING", status, err)
			}
			if err := b.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if status, err := next(); err != nil || status != healthNotServing {
				t.Errorf("second status %v, %v; want NOT_SERVING", status, err)
			}
			_, err = next()
			wantError(t, err, connect.CodeUnavailable, reasonTargetUnavailable, "shutting down")
		})
	}
}

func TestAnIdleReflectionStreamDoesNotHoldTheShutdown(t *testing.T) {
	for _, protocol := range listenersForGRPC() {
		t.Run(protocol, func(t *testing.T) {
			b := one(t, shop(mcptest.Modern)).ready()
			stream := grpcreflect.NewClient(b.client(protocol)).NewStream(t.Context())
			if _, err := stream.ListServices(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := b.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if err := stream.Close(); connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("the stream ended with %v, want unavailable", err)
			}
		})
	}
}

func TestShutdownTwiceIsFine(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for range 2 {
		if err := b.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

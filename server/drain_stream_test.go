package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// shutdown begins one that may take as long as the limit, and returns its end.
func (b *bridge) shutdown(limit time.Duration) <-chan error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), limit)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- b.Shutdown(ctx)
	}()
	<-b.draining.Done()
	return ended
}

func TestStreamedCallsFinishWhileTheServerShutsDown(t *testing.T) {
	for name, era := range eras {
		for _, protocol := range streaming() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				gate := make(chan struct{})
				b := one(t, tooled(era, func(_ context.Context, r *mcptest.Request) (any, error) {
					r.Progress(1, 0, "")
					<-gate
					r.Progress(2, 0, "")
					return mcptest.Text("done"), nil
				})).ready()
				s := b.stream(t.Context(), protocol, workAt(0))
				if got := s.next(); got != "progress 1" {
					t.Fatal(got)
				}
				ended := b.shutdown(time.Minute)
				close(gate)
				wantRest(t, s, "progress 2", "outcome done", "end")
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestQuestionsAreAnsweredWhileTheServerShutsDown(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, _ *mcptest.Server, protocol string) {
		d := b.begin(t.Context(), protocol, everything(), askForm)
		d.want("ask 1 elicitation/create")
		ended := b.shutdown(time.Minute)
		d.answer("1", accepted)
		d.want("outcome "+accepted, "end")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestACallWithoutItsFirstMessageDoesNotHoldTheShutdown(t *testing.T) {
	for _, protocol := range []string{overGRPC, overFastGRPC, overConnect} {
		t.Run(protocol, func(t *testing.T) {
			b := one(t, asker(mcptest.Modern)).ready()
			d := b.interactive(t.Context(), protocol)
			if err := d.stream.SendHeaders(); err != nil {
				t.Fatal(err)
			}
			// A call that is answered came after the one without a message, on the same connection.
			wantRest(t, b.stream(t.Context(), protocol, &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "work", ArgumentsJson: new(`{}`)}}), "outcome ", "end")
			ended := b.shutdown(time.Minute)
			d.wantError(connect.CodeUnavailable, reasonTargetUnavailable, "", "shutting down")
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func wantOutcomeUnknown(t *testing.T, err error) {
	t.Helper()
	wantError(t, err, connect.CodeUnknown, reasonOutcomeUnknown, "shut down")
	if got := detail[*errdetails.RetryInfo](t, err); got != nil {
		t.Errorf("the caller may retry: %v", got)
	}
}

func TestTheOutcomeOfAStreamedCallThatAShutdownCutsIsUnknown(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			b := one(t, asker(era)).ready()
			waiting := tooled(era, mcptest.Silence())
			silent := one(t, waiting).ready()
			asked := b.begin(t.Context(), overGRPC, everything(), askForm)
			asked.want("ask 1 elicitation/create")
			quiet := silent.stream(t.Context(), overConnect, workAt(pb.LogLevel_LOG_LEVEL_DEBUG))
			if _, err := waiting.WaitFor(t.Context(), "tools/call", 1); err != nil {
				t.Fatal(err)
			}
			for _, server := range []*bridge{b, silent} {
				if err := <-server.shutdown(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
			event, err := asked.next()
			for err == nil && strings.HasPrefix(event, "withdrawn") {
				event, err = asked.next()
			}
			wantOutcomeUnknown(t, err)
			_, err = quiet.stream.Receive()
			wantOutcomeUnknown(t, err)
		})
	}
}

func TestARequestThatDoesNotComeDoesNotHoldTheShutdown(t *testing.T) {
	for _, method := range []string{"CallToolStream", "WatchTools"} {
		t.Run(method, func(t *testing.T) {
			began := make(chan struct{})
			tell := func(next connect.ServerFunc) connect.ServerFunc {
				return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
					close(began)
					return next(ctx, spec, stream)
				}
			}
			b := start(t, Options{Interceptors: []connect.ServerInterceptor{tell}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
			conn, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "POST /mcpbridge.v1.ToolsService/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\nContent-Length: 100\r\n\r\n\x00\x00", method); err != nil {
				t.Fatal(err)
			}
			<-began
			if err := <-b.shutdown(10 * time.Second); err != nil {
				t.Error(err)
			}
			if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), "shutting down") {
				t.Errorf("the caller was told %q, %v", answer, err)
			}
		})
	}
}

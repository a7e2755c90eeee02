package server

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// cancellations counts what told the server that a call is over: a closed
// exchange on modern HTTP, a notification elsewhere. Closing the exchange of a
// legacy server tells it nothing.
func cancellations(server *mcptest.Server) int {
	if server.Era == mcptest.Legacy {
		return server.Count("notifications/cancelled")
	}
	return server.Count(mcptest.MethodAborted)
}

// wantCancelled waits for n cancellations and for the tool to have nothing under
// way, and checks that there are no more.
func wantCancelled(t *testing.T, server *mcptest.Server, n int) {
	t.Helper()
	method := "notifications/cancelled"
	if server.Era == mcptest.Modern {
		if len(server.Entries("tools/call")) == 1 && cancellations(server) == 0 {
			return // the question of a modern server had ended the exchange
		}
		method = mcptest.MethodAborted
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if n > 0 {
		if _, err := server.WaitFor(ctx, method, n); err != nil {
			t.Error(err)
		}
	}
	if got := cancellations(server); got != n {
		t.Errorf("%d cancellations, want %d", got, n)
	}
}

func TestACallerThatLeavesAtAnyMomentCancelsAtMostOnce(t *testing.T) {
	for name, era := range eras {
		for _, protocol := range streaming() {
			for moment, want := range map[string]int{"before the start": 0, "before an event": 1, "after an event": 1, "after the outcome": 0, "after the end": 0} {
				t.Run(name+"/"+protocol+"/"+moment, func(t *testing.T) {
					gate := make(chan struct{})
					server := tooled(era, func(ctx context.Context, r *mcptest.Request) (any, error) {
						if moment != "before an event" {
							r.Progress(1, 0, "")
						}
						select {
						case <-gate:
							return mcptest.Text("done"), nil
						case <-ctx.Done():
							return nil, mcptest.ErrSilent
						}
					})
					watch, done := returned()
					b := start(t, Options{Interceptors: []connect.ServerInterceptor{watch}}, map[string]targetConfig{"shop": {server: server}}).ready()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if moment == "before the start" {
						cancel()
						if stream, err := b.tools(protocol).CallToolStream(ctx, workAt(0)); err == nil {
							if _, err := stream.Receive(); err == nil {
								t.Error("an event came")
							}
						}
						wantCancelled(t, server, 0)
						return
					}
					s := b.stream(ctx, protocol, workAt(0))
					if _, err := server.WaitFor(t.Context(), "tools/call", 1); err != nil {
						t.Fatal(err)
					}
					if moment != "before an event" {
						if got := s.next(); got != "progress 1" {
							t.Fatal(got)
						}
					}
					switch moment {
					case "after the outcome":
						close(gate)
						if got := s.next(); got != "outcome done" {
							t.Fatal(got)
						}
					case "after the end":
						close(gate)
						wantRest(t, s, "outcome done", "end")
					}
					cancel()
					wait(done)
					wantCancelled(t, server, want)
				})
			}
		}
	}
}

func TestACallerThatLeavesAnInteractiveCallCancelsAtMostOnce(t *testing.T) {
	for name, era := range eras {
		for _, moment := range []string{"no message", "a question is open", "a question was answered", "the outcome is there"} {
			t.Run(name+"/"+moment, func(t *testing.T) {
				answered := make(chan struct{})
				server := asker(era)
				if moment == "a question was answered" {
					ask := server.Tools[0].Call
					server.Tools[0].Call = func(ctx context.Context, r *mcptest.Request) (any, error) {
						out, err := ask(ctx, r)
						if era == mcptest.Legacy || r.Param("inputResponses") != nil {
							close(answered)
							<-ctx.Done()
							return nil, mcptest.ErrSilent
						}
						return out, err
					}
				}
				watch, done := returned()
				b := start(t, Options{Interceptors: []connect.ServerInterceptor{watch}}, map[string]targetConfig{"shop": {server: server}}).ready()
				ctx, cancel := context.WithCancel(t.Context())
				if moment == "no message" {
					ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
				}
				defer cancel()
				d := b.interactive(ctx, overGRPC)
				want := 0
				switch moment {
				case "no message":
					if err := d.stream.SendHeaders(); err != nil {
						t.Fatal(err)
					}
					if _, err := d.stream.Receive(); err == nil { // after the deadline
						t.Error("an event came")
					}
					wait(done)
					wantCancelled(t, server, 0)
					return
				default:
					d.start(everything(), askForm)
					d.want("ask 1 elicitation/create")
				}
				switch moment {
				case "a question is open":
					if era == mcptest.Legacy {
						want = 1
					} // a modern server waits for nothing
				case "a question was answered":
					d.answer("1", filled)
					<-answered
					want = 1
				case "the outcome is there":
					d.answer("1", filled)
					d.want("outcome " + filled)
				}
				cancel()
				_ = d.stream.Close() // net/http looks at ctx again only when it has something to send
				wait(done)
				wantCancelled(t, server, want)
			})
		}
	}
}

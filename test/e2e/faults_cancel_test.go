package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

const cancelled = "notifications/cancelled"

// late answers requests when they are cancelled.
func late(era mcptest.Era) *mcptest.Server {
	return &mcptest.Server{Era: era, AnswerCancelled: true, Tools: []mcptest.Tool{echoTool(), {Name: "late", Call: func(ctx context.Context, _ *mcptest.Request) (any, error) {
		<-ctx.Done()
		return mcptest.Text("too late"), nil
	}}}}
}

func TestFault28AnAnswerAfterTheCancellationIsDropped(t *testing.T) {
	server := late(mcptest.Legacy)
	modernChild, modernLog := fakeChild(t, "late")
	legacyChild, legacyLog := fakeChild(t, "late-legacy")
	s := serve(t, map[string]target{"http-legacy": fake(t, server), "stdio-modern": modernChild, "stdio-legacy": legacyChild}).stubs(t)
	for name, log := range map[string]*mcptest.Log{"http-legacy": &server.Log, "stdio-modern": &modernLog.Log, "stdio-legacy": &legacyLog.Log} {
		t.Run(name, func(t *testing.T) {
			s.must(t, name, "echo", "{}")
			since := s.target(t, name).GetSince().AsTime()
			for round := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() {
					_, err := s.call(ctx, name, "late", "{}")
					failed <- err
				}()
				arrived(t, log, "tools/call", 1+6*round+1)
				cancel()
				if err := <-failed; status.Code(err) != codes.Canceled {
					t.Errorf("error %s, want CANCELED", explain(err))
				}
				arrived(t, log, cancelled, round+1) // now the answer is on its way
				each(5, func(i int) {
					arguments := fmt.Sprintf(`{"round":%d,"i":%d}`, round, i)
					if got, err := s.call(t.Context(), name, "echo", arguments); err != nil || got != arguments {
						t.Errorf("the next call returned %q, %s", got, explain(err))
					}
				})
			}
			one := s.target(t, name)
			if one.GetState() != pb.TargetState_TARGET_STATE_READY || !one.GetSince().AsTime().Equal(since) || one.GetPool().GetInFlight() != 0 || one.GetPool().GetConnections() != 1 {
				t.Errorf("it was ready since %v, now it is %v", since, one)
			}
			wantCount(t, log, cancelled, 20)
		})
	}
}

// gated has a tool that waits for a call of another one.
func gated(era mcptest.Era) *mcptest.Server {
	var mu sync.Mutex
	gate := make(chan struct{})
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{
		{Name: "wait", Call: func(ctx context.Context, _ *mcptest.Request) (any, error) {
			mu.Lock()
			open := gate
			mu.Unlock()
			select {
			case <-open:
				return mcptest.Text("waited"), nil
			case <-ctx.Done():
				return nil, mcptest.ErrSilent
			}
		}},
		{Name: "open", Call: func(context.Context, *mcptest.Request) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			close(gate)
			gate = make(chan struct{})
			return mcptest.Text("opened"), nil
		}},
	}}
}

func TestFault33ACancellationReachesItsOwnCallAlone(t *testing.T) {
	overModern, overLegacy := gated(mcptest.Modern), gated(mcptest.Legacy)
	modernChild, modernLog := fakeChild(t, "gated")
	legacyChild, legacyLog := fakeChild(t, "gated-legacy")
	targets := map[string]target{"http-modern": fake(t, overModern), "http-legacy": fake(t, overLegacy), "stdio-modern": modernChild, "stdio-legacy": legacyChild}
	logs := map[string]*mcptest.Log{"http-modern": &overModern.Log, "http-legacy": &overLegacy.Log, "stdio-modern": &modernLog.Log, "stdio-legacy": &legacyLog.Log}
	told, made := map[string]int{}, map[string]int{} // what a child got is logged a moment later
	s := serve(t, targets).stubs(t)
	for victim := range targets {
		t.Run(victim, func(t *testing.T) {
			type outcome struct {
				target, text string
				err          error
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			given, kept := make(chan outcome, 1), make(chan outcome, 2*len(targets))
			wait := func(ctx context.Context, name string, done chan<- outcome) {
				made[name]++
				go func() {
					text, err := s.call(ctx, name, "wait", "{}")
					done <- outcome{name, text, err}
				}()
				arrived(t, logs[name], "tools/call", made[name])
			}
			for name := range targets {
				wait(t.Context(), name, kept) // one on the victim's own target, too
			}
			wait(ctx, victim, given)
			calls := logs[victim].Entries("tools/call")
			id := calls[len(calls)-1].ID

			cancel()
			if o := <-given; status.Code(o.err) != codes.Canceled {
				t.Errorf("%q, %s, want CANCELED", o.text, explain(o.err))
			}
			how := cancelled
			if victim == "http-modern" {
				how = mcptest.MethodAborted // the end of the response stream cancels there
			}
			told[victim]++
			entry := arrived(t, logs[victim], how, told[victim])
			if got := string(member(entry.Params(), "requestId")); how == cancelled && got != id || how != cancelled && entry.ID != id {
				t.Errorf("%s %s is about request %s%s, want %s", how, entry.Raw, got, entry.ID, id)
			}

			for name := range targets {
				made[name]++
				s.must(t, name, "open", "{}")
			}
			for range targets {
				if o := <-kept; o.err != nil || o.text != "waited" {
					t.Errorf("the call on %s: %q, %s", o.target, o.text, explain(o.err))
				}
			}
			for name, log := range logs {
				if got := total(calledOff(name, log)); got != told[name] {
					t.Errorf("%s was told of %d cancellations, want %d: %q", name, got, told[name], log.Methods())
				}
			}
		})
	}
}

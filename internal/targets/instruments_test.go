package targets

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestInstrumentsWatchTheTargetThatTheyWereMadeFor(t *testing.T) {
	gate := make(chan struct{})
	server := func() *mcptest.Server {
		return &mcptest.Server{Tools: []mcptest.Tool{{Name: "gated", Call: mcptest.After(gate, mcptest.Echo())}}}
	}
	one, two := server(), server()
	var mu sync.Mutex // guards seen
	var seen []string
	note := func(target, what string) {
		mu.Lock()
		defer mu.Unlock()
		if line := target + ": " + what; !slices.Contains(seen, line) {
			seen = append(seen, line)
		}
	}
	queued := make(chan struct{}, 1)
	d := Deps{Instruments: func(name string, c *config.Target) Instruments {
		return Instruments{
			Interceptors: []mcpclient.Interceptor{func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
				if call.Method == "tools/call" {
					note(name, "intercepted")
				}
				return next(ctx, call)
			}},
			Meta: func(_ context.Context, _ *mcpclient.Call, meta *mcpclient.Meta) error {
				meta.SetString("target", fmt.Sprint(name, c.Baggage.Policy))
				return nil
			},
			Headers: func(_ context.Context, _ *mcpclient.Call, h http.Header) { h.Set("X-Target", name) },
			OnConnect: func(ctx context.Context, _ mcpclient.ConnectAttempt) (context.Context, func(*mcpclient.Server, error)) {
				note(name, "connects")
				return ctx, func(*mcpclient.Server, error) { note(name, "connected") }
			},
			OnWait: func(context.Context) func(context.Context, error) {
				return func(context.Context, error) { note(name, "waited") }
			},
			OnQueue: func(context.Context) func(error) {
				queued <- struct{}{}
				return func(error) { note(name, "queued") }
			},
		}
	}}
	a, b := httpTarget(mcptest.StartHTTP(t, one)), httpTarget(mcptest.StartHTTP(t, two))
	a.Pool.MaxInFlight, a.Lazy, b.Lazy = 1, true, true
	b.Baggage.Policy = config.BaggageDrop
	s := newSet(t, d, map[string]*config.Target{"a": a, "b": b})
	var calls sync.WaitGroup
	start := func(target string) {
		calls.Go(func() {
			if _, err := call(t, s, target, "gated"); err != nil {
				t.Error(err)
			}
		})
	}
	start("a")
	if _, err := one.WaitFor(t.Context(), "tools/call", 1); err != nil {
		t.Fatal(err)
	}
	start("a")
	start("b")
	<-queued
	close(gate)
	calls.Wait()

	slices.Sort(seen)
	want := []string{"a: connected", "a: connects", "a: intercepted", "a: queued", "a: waited", "b: connected", "b: connects", "b: intercepted", "b: waited"}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
	for want, log := range map[string]*mcptest.Log{"aforward": &one.Log, "bdrop": &two.Log} {
		entry := log.Entries("tools/call")[0]
		if got := entry.Meta("target"); string(got) != `"`+want+`"` || entry.Header.Get("X-Target") != want[:1] {
			t.Errorf("_meta.target %s, header %q; want those of %s", got, entry.Header.Get("X-Target"), want[:1])
		}
	}
}

package mcpclient_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// states records the states of a client, without repetitions.
type states struct {
	mu   sync.Mutex
	seen []mcpclient.State
}

func (s *states) on(st mcpclient.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.seen); n == 0 || s.seen[n-1] != st.State {
		s.seen = append(s.seen, st.State)
	}
}

func (s *states) want(t *testing.T, want ...mcpclient.State) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.seen, want) {
		t.Errorf("the states were %v, want %v", s.seen, want)
	}
}

func TestAQuietServerIsProbedAndATalkingOneIsNot(t *testing.T) {
	for era, method := range map[mcptest.Era]string{mcptest.Legacy: "ping", mcptest.Modern: "server/discover"} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			c := overHTTP(t, s, mcpclient.Options{})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := s.Count(method)
			for range 20 { // five minutes of traffic
				time.Sleep(15 * time.Second)
				if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
					t.Fatal(err)
				}
			}
			if n := s.Count(method) - before; n != 0 {
				t.Errorf("era %v: %d probes although the server was heard", era, n)
			}
			time.Sleep(5 * time.Minute)
			if n := s.Count(method) - before; n < 9 || n > 11 {
				t.Errorf("era %v: %d probes in five quiet minutes, want about one per 30s", era, n)
			}
			if st := c.Status(); st.State != mcpclient.StateReady || st.Connects != 1 {
				t.Errorf("era %v: %+v", era, st)
			}
		})
	}
}

func TestAQuietClientHasNoGoroutine(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Legacy, mcptest.Modern} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			before := runtime.NumGoroutine()
			url, client := mcptest.StartMemoryHTTP(t, s)
			c := newClient(t, &transport.HTTP{URL: url, Client: client, NoGetStream: true}, mcpclient.Options{
				Changes: mcpclient.ChangeOptions{NoTools: true, NoResources: true, NoPrompts: true},
			})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			client.CloseIdleConnections()
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > 1 { // that of the server
				t.Errorf("era %v: %d goroutines, want none but the server's", era, n)
			}
		})
	}
}

func TestAnyAnswerProvesLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"ping": mcptest.Fail(-32601, "no ping here", nil, 200)}
		c := overHTTP(t, s, mcpclient.Options{})
		c.Start()
		time.Sleep(10 * time.Minute)
		if st := c.Status(); st.State != mcpclient.StateReady || st.Connects != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAServerThatStopsAnsweringIsReplacedAfterTwoProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"ping": mcptest.Sequence(nil, mcptest.Silence(), nil, mcptest.Silence(), mcptest.Silence(), nil)}
		var seen states
		c := overHTTP(t, s, mcpclient.Options{OnState: seen.on})
		c.Start()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		seen.want(t, mcpclient.StateConnecting, mcpclient.StateReady, mcpclient.StateSuspect, mcpclient.StateReady,
			mcpclient.StateSuspect, mcpclient.StateReconnecting, mcpclient.StateReady)
		if n := s.Count("initialize"); n != 2 {
			t.Errorf("%d handshakes, want 2", n)
		}
	})
}

func TestHealthAndReconnectionCanBeSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overPipe(t, s, mcpclient.Options{Health: mcpclient.HealthOptions{Disabled: true}, Reconnect: mcpclient.ReconnectOptions{Disabled: true}})
		c.Start()
		time.Sleep(10 * time.Minute)
		if s.Count("ping") != 0 {
			t.Error("it was probed")
		}
		s.Hangup()
		time.Sleep(10 * time.Minute)
		if st := c.Status(); st.State != mcpclient.StateIdle || st.Connects != 1 {
			t.Errorf("it came back by itself: %+v", st)
		}
		if _, err := c.ListTools(t.Context()); err != nil || c.Status().Connects != 2 {
			t.Errorf("a call brings it back: %v %+v", err, c.Status())
		}
	})
}

func TestAttemptsMayBeBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &switchable{}
		c := newClient(t, namedHTTP{tr}, mcpclient.Options{Reconnect: mcpclient.ReconnectOptions{MaxAttempts: 3, Multiplier: 1}})
		c.Start()
		time.Sleep(time.Hour)
		if n := tr.dials.Load(); n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
		if e := wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "nothing listens there"); e.RetryAfter != mcpclient.NeverAgain || !strings.Contains(e.Message, "reconnect.max_attempts") {
			t.Errorf("it promises another attempt in %v", e.RetryAfter)
		}
	})
}

func TestListenersSeeEachOperationOnceAndMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Discover = mcptest.Fail(-32601, "no", nil, 404)
		var mu sync.Mutex
		var log []string
		note := func(kind string, op mcpclient.Operation) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, kind+" "+op.Method+" "+op.Name)
		}
		c := overHTTP(t, s, mcpclient.Options{Listeners: []mcpclient.Listener{
			{Before: func(context.Context, mcpclient.Operation) { panic("no") }},
			{
				Before: func(_ context.Context, op mcpclient.Operation) { note("before", op) },
				After:  func(_ context.Context, op mcpclient.Operation, _ *mcpclient.Result) { note("after", op) },
				Error:  func(_ context.Context, op mcpclient.Operation, _ error) { note("error", op) },
			},
		}})
		if _, err := c.ListTools(t.Context()); err != nil { // four pages
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "fail", nil, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "stuck", nil, nil); err == nil {
			t.Fatal("it answered")
		}
		want := []string{
			"before server/discover ", "error server/discover ", "before initialize ", "after initialize ", "before tools/list ", "after tools/list ",
			"before tools/call fail", "after tools/call fail", "before tools/call stuck", "error tools/call stuck",
		}
		mu.Lock()
		defer mu.Unlock()
		// the list's own operation begins before the connection it waits for
		sorted := func(l []string) []string { l = slices.Clone(l); slices.Sort(l); return l }
		if !slices.Equal(sorted(log), sorted(want)) {
			t.Errorf("listeners saw\n%q, want\n%q", log, want)
		}
	})
}

func TestProgressReachesItsCallInOrderAndBeforeTheResult(t *testing.T) {
	for _, over := range []func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client{overHTTP, overPipe} {
		for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
			synctest.Test(t, func(t *testing.T) {
				s := features(era)
				s.Tools = append(s.Tools, mcptest.Tool{Name: "steps", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
					for i := range 20 {
						r.Progress(float64(i+1), 20, "step")
					}
					r.Progress(5, 20, "goes back")
					return mcptest.Text("done"), nil
				}})
				c := over(t, s, mcpclient.Options{})
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						var got []float64
						_, err := c.CallTool(t.Context(), "steps", nil, &mcpclient.CallOptions{Progress: func(_ context.Context, p mcpclient.Progress) {
							got = append(got, p.Progress)
							if len(got) == 1 {
								time.Sleep(time.Second) // a slow handler loses nothing
							}
						}})
						if err != nil || len(got) != 20 || !slices.IsSorted(got) {
							t.Errorf("era %v: %v, progress %v", era, err, got)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func TestProgressMayExtendTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Tools = append(s.Tools, mcptest.Tool{Name: "long", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
			for i := range 5 {
				select {
				case <-time.After(8 * time.Second):
				case <-ctx.Done():
					return nil, mcptest.ErrSilent
				}
				r.Progress(float64(i+1), 5, "")
			}
			<-ctx.Done()
			return nil, mcptest.ErrSilent
		}})
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 10 * time.Second, ProgressExtends: true}})
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := c.CallTool(t.Context(), "long", nil, &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) {}})
		_ = wantKind(t, err, mcpclient.KindTimeout, "10s")
		if took := time.Since(start); took != 50*time.Second {
			t.Errorf("it took %v: five times 8s of progress, then 10s of silence", took)
		}
	})
}

func TestATimeoutMayBeANormalResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, features(mcptest.Legacy), mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: time.Second, ToolResult: "too slow"}})
		value, err := c.CallToolValue(t.Context(), "stuck", nil, nil)
		if err != nil || value.Text != "too slow" {
			t.Errorf("%+v %v", value, err)
		}
		if r, err := c.CallTool(t.Context(), "stuck", nil, nil); err != nil || !r.TimedOut || r.IsError {
			t.Errorf("%+v %v", r, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.CallTool(ctx, "stuck", nil, nil); !errors.Is(err, &mcpclient.Error{Kind: mcpclient.KindTimeout}) {
			t.Errorf("the caller's own deadline is still an error: %v", err)
		}
	})
}

func TestAServerThatIsBusyWithACallIsNotTakenForDead(t *testing.T) {
	for _, over := range []func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client{overHTTP, overPipe} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Tools = append(s.Tools, mcptest.Tool{Name: "busy", Call: mcptest.Delay(9*time.Minute, mcptest.Respond(mcptest.Text("done")))})
			s.Handle = map[string]mcptest.Handler{"ping": mcptest.Silence()} // it does one thing at a time
			c := over(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 10 * time.Minute}})
			if _, err := c.CallTool(t.Context(), "busy", nil, nil); err != nil {
				t.Errorf("the call was cut off: %v", err)
			}
			if st := c.Status(); st.Connects != 1 {
				t.Errorf("the connection was replaced under the call: %+v", st)
			}
			time.Sleep(2 * time.Minute) // nothing is under way any more
			synctest.Wait()
			if st := c.Status(); st.Connects < 2 {
				t.Errorf("a dead server was not replaced: %+v", st)
			}
		})
	}
}

func TestAProbeThatIsAnsweredBadlyCutsNoCall(t *testing.T) {
	for era, method := range map[mcptest.Era]string{mcptest.Legacy: "ping", mcptest.Modern: "server/discover"} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			s.Tools = append(s.Tools, mcptest.Tool{Name: "slow", Call: func(ctx context.Context, _ *mcptest.Request) (any, error) {
				time.Sleep(40 * time.Second)
				return mcptest.Text("done"), nil
			}})
			var connected atomic.Bool
			s.Status = func(m string, _ int) *mcptest.Reply {
				if m == method && connected.Load() {
					return &mcptest.Reply{Status: 404}
				}
				return nil
			}
			c := overHTTP(t, s, mcpclient.Options{})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			connected.Store(true)
			time.Sleep(34 * time.Second) // the first probe has failed
			if st := c.Status().State; st != mcpclient.StateSuspect {
				t.Fatalf("era %v: %v after a bad answer to the probe", era, st)
			}
			if _, err := c.CallTool(t.Context(), "slow", nil, nil); err != nil {
				t.Errorf("era %v: the call under way was cut: %v", era, err)
			}
			if n := s.Count("tools/call"); n != 1 {
				t.Errorf("era %v: the tool ran %d times", era, n)
			}
		})
	}
}

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// oneAtATime serves one request after the other, except those that stay open.
func oneAtATime(next http.Handler) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodPost && string(member(body, "method")) != `"subscriptions/listen"` {
			mu.Lock()
			defer mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

func TestFault26AServerWhoseListTakesSixSecondsStaysHealthy(t *testing.T) {
	t.Parallel()
	for era, version := range map[mcptest.Era]string{mcptest.Modern: modern, mcptest.Legacy: legacy} {
		for name, busy := range map[string]bool{"serves calls meanwhile": false, "serves nothing meanwhile": true} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				wrap, probed := bare, "10s" // however slow the machine is
				if busy {
					wrap, probed = oneAtATime, "2s" // two of them while the list is made
				}
				slow := &mcptest.Server{Era: era, Tools: []mcptest.Tool{echoTool()}, Handle: map[string]mcptest.Handler{"tools/list": mcptest.Delay(6*time.Second, nil)}}
				config, _ := fakeBehind(t, slow, wrap)
				config["health"] = map[string]any{"interval": "500ms", "timeout": probed, "failures": 2}
				quick := &mcptest.Server{Tools: []mcptest.Tool{echoTool()}}
				s := serve(t, map[string]target{"slow": config, "quick": fake(t, quick)}).stubs(t)
				states := s.watch(t, "slow")
				eventually(t, "the target", func() string {
					if one := s.target(t, "slow"); one.GetState() != pb.TargetState_TARGET_STATE_READY {
						return one.GetState().String()
					}
					return ""
				})
				for len(states) > 0 {
					<-states // of before it was ready
				}

				probe := map[mcptest.Era]string{mcptest.Modern: "server/discover", mcptest.Legacy: "ping"}[era]
				probes := slow.Count(probe)
				listed := make(chan error, 1)
				go func() {
					list, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "slow"})
					if err == nil && len(list.GetTools()) != 1 {
						err = fmt.Errorf("%d tools, want one", len(list.GetTools()))
					}
					listed <- err
				}()
				arrived(t, &slow.Log, "tools/list", 1)
				for i := range 20 {
					s.must(t, "slow", "echo", "{}")
					s.must(t, "quick", "echo", "{}")
					if i > 0 || busy {
						continue
					}
					select {
					case err := <-listed:
						t.Fatalf("calls waited for the list, which ended with %s", explain(err))
					default:
					}
				}
				if err := <-listed; err != nil {
					t.Error(explain(err))
				}
				s.must(t, "slow", "echo", "{}")
				if busy {
					arrived(t, &slow.Log, probe, probes+2) // they went unanswered for too long
				}
				for len(states) > 0 {
					if state := <-states; state != healthpb.HealthCheckResponse_SERVING {
						t.Errorf("its health became %v", state)
					}
				}
				if last := s.target(t, "slow").GetLastError(); last.GetReason() == "TARGET_UNAVAILABLE" {
					t.Errorf("its connection was replaced: %v", last)
				}
			})
		}
	}
}

// slowTools has tools that take 25 and 35 seconds, the latter with and without progress.
func slowTools(era mcptest.Era) *mcptest.Server {
	done := mcptest.Respond(mcptest.Text("done"))
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{
		{Name: "25s", Call: mcptest.Delay(25*time.Second, done)},
		{Name: "35s", Call: mcptest.Delay(35*time.Second, done)},
		{Name: "35s with progress", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for i := range 35 {
				select {
				case <-tick.C:
					r.Progress(float64(i+1), 35, "")
				case <-ctx.Done():
					return nil, mcptest.ErrSilent
				}
			}
			return done(ctx, r)
		}},
	}}
}

// slowTargets are servers with slowTools on every transport.
func slowTargets(t *testing.T) map[string]target {
	t.Helper()
	stdio, _ := fakeChild(t, "slow")
	return map[string]target{"http-modern": fake(t, slowTools(mcptest.Modern)), "http-legacy": fake(t, slowTools(mcptest.Legacy)), "stdio": stdio}
}

func TestFault30ATimeoutIsWhatTheConfigurationSays(t *testing.T) {
	t.Parallel()
	targets := slowTargets(t)
	for _, config := range targets {
		config["timeouts"] = map[string]string{"tool": "60s"}
	}
	targets["http-hasty"] = target{"url": targets["http-legacy"]["url"], "timeouts": map[string]string{"tool": "2s"}}
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			text, err := s.call(t.Context(), name, "25s", "{}")
			if name == "http-hasty" {
				wantReason(t, err, codes.DeadlineExceeded, "TIMEOUT")
				if took := time.Since(began); took < 2*time.Second || took > 20*time.Second {
					t.Errorf("gave up after %v, want 2s", took)
				}
				return
			}
			if took := time.Since(began); err != nil || text != "done" || took < 25*time.Second {
				t.Errorf("after %v: %q, %s", took, text, explain(err))
			}
		})
	}
}

func TestFault31ACallOf35SecondsPassesWithGrpcKeepalive(t *testing.T) {
	t.Parallel()
	targets := slowTargets(t)
	b := serve(t, targets)
	conn, err := grpc.NewClient("passthrough:///"+b.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := stubs{tools: mcpbridgegrpc.NewToolsServiceClient(conn)}
	for name := range targets {
		for _, tool := range []string{"35s", "35s with progress"} {
			t.Run(name+" "+tool, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				text, err := s.call(t.Context(), name, tool, "{}")
				if took := time.Since(began); err != nil || text != "done" || took < 34*time.Second {
					t.Errorf("after %v: %q, %s", took, text, explain(err))
				}
			})
		}
	}
}

// silent never answers what begins a connection.
func silent(era mcptest.Era) *mcptest.Server {
	return &mcptest.Server{Era: era, Discover: mcptest.Silence(), Initialize: mcptest.Silence()}
}

func TestFault35EveryTargetHasItsOwnTimeToInitialize(t *testing.T) {
	t.Parallel()
	const quick, slow = 500 * time.Millisecond, 3 * time.Second
	for name, start := range map[string]func(t *testing.T) target{
		"http-modern": func(t *testing.T) target { return fake(t, silent(mcptest.Modern)) },
		"http-legacy": func(t *testing.T) target { return fake(t, silent(mcptest.Legacy)) },
		"stdio":       func(t *testing.T) target { child, _ := fakeChild(t, "silent"); return child },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := []time.Duration{quick, slow}
			targets := map[string]target{}
			for _, limit := range limits {
				config := start(t)
				config["lazy"] = true // the call begins the connection
				config["timeouts"] = map[string]string{"initialize": limit.String(), "detect": (limit / 2).String()}
				targets[limit.String()] = config
			}
			s := serve(t, targets).stubs(t)
			took := make([]time.Duration, len(limits))
			each(len(limits), func(i int) {
				began, limit := time.Now(), limits[i]
				_, err := s.call(t.Context(), limit.String(), "any", "{}")
				took[i] = time.Since(began)
				wantReason(t, err, codes.Unavailable, "TARGET_UNAVAILABLE")
				if !strings.Contains(fmt.Sprint(err), limit.String()) || took[i] < limit {
					t.Errorf("after %v: %s, want it to name %v", took[i], explain(err), limit)
				}
			})
			if took[0] >= took[1] {
				t.Errorf("a target with %v failed after %v, one with %v after %v", quick, took[0], slow, took[1])
			}
		})
	}
}

package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// journal collects what hooks are told.
type journal struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	j.lines = nil
}

// insideKey marks the context of a connection attempt.
type insideKey struct{}

// onConnect notes attempts and gives each a mark of its own.
func (j *journal) onConnect(ctx context.Context, a mcpclient.ConnectAttempt) (context.Context, func(*mcpclient.Server, error)) {
	mark := fmt.Sprintf("attempt %d, again %t", a.Number, a.Again)
	j.add("%s", mark)
	return context.WithValue(ctx, insideKey{}, mark), func(server *mcpclient.Server, err error) {
		version := ""
		if server != nil {
			version = server.ProtocolVersion
		}
		j.add("%s: %q, failed %t", mark, version, err != nil)
	}
}

func TestConnectionAttemptsAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := features(mcptest.Legacy)
		url, client := mcptest.StartMemoryHTTP(t, s)
		tr := &switchable{Transport: &transport.HTTP{URL: url, Client: client}}
		c := newClient(t, tr, mcpclient.Options{
			OnConnect: j.onConnect,
			Interceptors: []mcpclient.Interceptor{func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
				if mark := ctx.Value(insideKey{}); mark != nil {
					j.add("%s inside %v", call.Method, mark)
				}
				return next(ctx, call)
			}},
		})
		_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "")
		tr.up.Store(true)
		time.Sleep(6 * time.Second)
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		j.want(t,
			"attempt 1, again false", `attempt 1, again false: "", failed true`,
			"attempt 2, again false",
			"server/discover inside attempt 2, again false", "initialize inside attempt 2, again false", "notifications/initialized inside attempt 2, again false",
			`attempt 2, again false: "2025-11-25", failed false`)

		s.ExpireSessions()
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		j.want(t,
			"attempt 1, again true",
			"initialize inside attempt 1, again true", "notifications/initialized inside attempt 1, again true",
			`attempt 1, again true: "2025-11-25", failed false`)
	})
}

func TestAttemptsThatTheGateRefusesAreNotObserved(t *testing.T) {
	var j journal
	c := overHTTP(t, features(mcptest.Modern), mcpclient.Options{
		OnConnect: j.onConnect,
		ConnectGate: func(context.Context) (func(error), error) {
			return nil, &mcpclient.Error{Kind: mcpclient.KindUnavailable, Message: "not now", RetryAfter: time.Hour}
		},
	})
	_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "not now")
	j.want(t)
}

func TestWaitsForAConnectionAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := features(mcptest.Modern)
		s.Discover = mcptest.Delay(3*time.Second, nil)
		c := overHTTP(t, s, mcpclient.Options{
			Lazy:      true,
			OnConnect: (&journal{}).onConnect,
			OnWait: func(ctx context.Context) func(context.Context, error) {
				began := time.Now()
				return func(attempt context.Context, err error) {
					j.add("%v waited %v for %v: %v", ctx.Value(insideKey{}), time.Since(began), attempt.Value(insideKey{}), kindOf(err))
				}
			},
		})
		caller := context.WithValue(t.Context(), insideKey{}, "a caller")
		hurried, cancel := context.WithTimeout(caller, time.Second)
		defer cancel()
		if _, err := c.ReadResource(hurried, "demo://a", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for range 2 { // the second has nothing to wait for
			if _, err := c.ReadResource(caller, "demo://a", nil); err != nil {
				t.Error(err)
			}
		}
		j.want(t,
			"a caller waited 1s for attempt 1, again false: timeout",
			"a caller waited 2s for attempt 1, again false: kind(-2)")
	})
}

func TestTheRequestsOfAnOperationShareATrail(t *testing.T) {
	ask := func(t *testing.T, c *mcpclient.Client) {
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		server func() *mcptest.Server
		before func(*mcptest.Server, *mcpclient.Client)
		want   []string // the requests, each with the first one of its operation
	}{
		"one request": {
			server: func() *mcptest.Server { return features(mcptest.Modern) },
			want:   []string{"tools/call after none"},
		},
		"a retry": {
			server: func() *mcptest.Server { return features(mcptest.Legacy) },
			before: func(s *mcptest.Server, _ *mcpclient.Client) { s.ExpireSessions() },
			want:   []string{"tools/call after none", "tools/call after tools/call"},
		},
		"rounds": {
			server: func() *mcptest.Server { return tool(asks("", `"s1"`), asks("", `"s2"`), done()) },
			want:   []string{"tools/call after none", "tools/call after tools/call", "tools/call after tools/call"},
		},
		"a task": {
			server: func() *mcptest.Server { return tasked("", working, completed) },
			want:   []string{"tools/call after none", "tasks/get after tools/call", "tasks/get after tools/call"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				s := tt.server()
				c := overHTTP(t, s, mcpclient.Options{
					Cache: mcpclient.CacheOptions{IgnoreTTL: true},
					Interceptors: []mcpclient.Interceptor{func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
						if call.Method == "tools/call" || call.Method == "tasks/get" {
							first, later := call.Trail.LoadOrStore(insideKey{}, call.Method)
							if !later {
								first = "none"
							}
							j.add("%s after %v", call.Method, first)
						}
						return next(ctx, call)
					}},
				})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				if tt.before != nil {
					tt.before(s, c)
				}
				ask(t, c)
				j.want(t, tt.want...)
				ask(t, c)
				if got := j.lines; len(got) == 0 || got[0] != "tools/call after none" {
					t.Errorf("the next operation begins with %q", got)
				}
			})
		})
	}
}

func TestInterceptorsLearnWhenASubscriptionIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		c := overHTTP(t, features(mcptest.Modern), mcpclient.Options{
			Changes: mcpclient.ChangeOptions{NoTools: true, NoPrompts: true, NoResources: true},
			Interceptors: []mcpclient.Interceptor{func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
				if call.Method != "subscriptions/listen" {
					if call.Acknowledged != nil {
						t.Errorf("%s is said to be acknowledged some time", call.Method)
					}
					return next(ctx, call)
				}
				var watch sync.WaitGroup
				defer watch.Wait()
				watch.Go(func() {
					<-call.Acknowledged
					j.add("acknowledged")
				})
				return next(ctx, call)
			}},
		})
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
		synctest.Wait()
		j.want(t, "acknowledged")
		wantOpen(t, sub)
	})
}

func TestRequestsOfAServerAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := features(mcptest.Legacy)
		ask := func(ctx context.Context, r *mcptest.Request) (any, error) {
			if _, err := r.Ask(ctx, "elicitation/create", map[string]any{"message": "Who?", "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}}, "_meta": map[string]any{"traceparent": "x"}}); err != nil {
				return nil, err
			}
			return mcptest.Text("done"), nil
		}
		s.Tools = append(s.Tools, mcptest.Tool{Name: "ask", Call: ask})
		c := overHTTP(t, s, mcpclient.Options{
			Capabilities: mcpclient.Capabilities{ElicitationForm: true},
			OnRequest: func(ctx context.Context, r mcpclient.InboundRequest) (context.Context, func(error)) {
				j.add("%s of %v, _meta %s, for %v", r.Method, r.ProtocolVersion, r.Meta().GetString("traceparent"), ctx.Value(insideKey{}))
				return context.WithValue(ctx, insideKey{}, "the question"), func(err error) { j.add("%s answered: %v", r.Method, err) }
			},
		})
		caller := context.WithValue(t.Context(), insideKey{}, "a caller")
		answer := func(ctx context.Context, _ string, _ jsontext.Value) (jsontext.Value, error) {
			j.add("asked inside %v", ctx.Value(insideKey{}))
			return jsontext.Value(`{"action":"accept","content":{}}`), nil
		}
		if _, err := c.CallTool(caller, "ask", nil, &mcpclient.CallOptions{Answer: answer}); err != nil {
			t.Fatal(err)
		}
		j.want(t, "elicitation/create of 2025-11-25, _meta x, for a caller", "asked inside the question", "elicitation/create answered: <nil>")

		if _, err := s.Ask(t.Context(), "roots/list", nil); err == nil {
			t.Error("a client without roots told some")
		}
		if _, err := s.Ask(t.Context(), "ping", nil); err != nil {
			t.Error(err)
		}
		j.want(t, "roots/list of 2025-11-25, _meta , for <nil>", "roots/list answered: JSON-RPC error -32601: Roots not supported")
	})
}

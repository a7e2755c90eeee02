package balance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// legacyServer names its sessions after itself.
func legacyServer(i int) *mcptest.Server {
	var mu sync.Mutex
	n := 0
	return &mcptest.Server{
		Era:   mcptest.Legacy,
		Tools: []mcptest.Tool{{Name: "echo", Call: mcptest.Echo()}},
		Session: mcptest.SessionOptions{ID: func() string {
			mu.Lock()
			defer mu.Unlock()
			n++
			return fmt.Sprintf("replica-%d-session-%d", i, n)
		}},
	}
}

// wantOwnSessions checks that each replica only ever saw sessions of its own.
func wantOwnSessions(t *testing.T, servers []*mcptest.Server) {
	t.Helper()
	for i, s := range servers {
		for _, e := range s.Transcript() {
			if e.Session != "" && !strings.HasPrefix(e.Session, fmt.Sprintf("replica-%d-", i)) {
				t.Errorf("replica %d got %s of session %s", i, e.Method, e.Session)
			}
		}
	}
}

func echo(ctx context.Context, c *mcpclient.Client, n int) error {
	_, err := c.CallTool(ctx, "echo", jsontext.Value(fmt.Sprintf(`{"n":%d}`, n)), nil)
	return err
}

func TestASessionStaysOnTheReplicaThatBeganIt(t *testing.T) {
	nodes, servers := mcp(t, 2, legacyServer)
	tg := over(t, urls(nodes), Options{})
	var clients []*mcpclient.Client
	for range 2 {
		c := tg.client(t)
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for n := range 20 {
				if err := echo(t.Context(), c, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range clients {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wantOwnSessions(t, servers)
	for i, s := range servers {
		for method, want := range map[string]int{"initialize": 1, "notifications/initialized": 1, "tools/call": 20, mcptest.MethodGet: 1, mcptest.MethodDelete: 1} {
			if got := s.Count(method); got != want {
				t.Errorf("replica %d got %d × %s, want %d", i, got, method, want)
			}
		}
	}
}

func TestAServerWithoutSessionIDsAlsoKeepsItsConnections(t *testing.T) {
	nodes, servers := mcp(t, 2, func(i int) *mcptest.Server {
		s := legacyServer(i)
		s.Session.None = true
		return s
	})
	c := over(t, urls(nodes), Options{}).client(t)
	for n := range 10 {
		if err := echo(t.Context(), c, n); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range servers {
		if got := s.Count("tools/call"); got != 10*s.Count("initialize") {
			t.Errorf("replica %d got %d calls of 10, and %d × initialize", i, got, s.Count("initialize"))
		}
	}
}

func TestASessionWhoseReplicaDiesBeginsAgainOnAnother(t *testing.T) {
	nodes, servers := mcp(t, 2, legacyServer)
	c := over(t, urls(nodes), Options{}).client(t)
	n := 0
	for ; n < 10; n++ {
		if err := echo(t.Context(), c, n); err != nil {
			t.Fatal(err)
		}
	}
	first := 0
	if servers[1].Count("tools/call") > 0 {
		first = 1
	}
	nodes[first].stop()
	failed := map[int]error{}
	for ; n < 20; n++ {
		err := echo(t.Context(), c, n)
		for begin := time.Now(); err != nil; err = echo(t.Context(), c, n) {
			e, ok := errors.AsType[*mcpclient.Error](err)
			if !ok || time.Since(begin) > 20*time.Second {
				t.Fatalf("the client does not come back: %v", err)
			}
			if !e.SafeToRetry {
				failed[n] = err
				break
			}
		}
	}
	if len(failed) > 1 {
		t.Errorf("more than the call at the moment of death was lost: %v", failed)
	}
	if got := servers[1-first].Count("initialize"); got != 1 {
		t.Errorf("the other replica got %d × initialize, want 1", got)
	}
	wantOwnSessions(t, servers)
	ran := map[string]int{}
	for _, s := range servers {
		for _, e := range s.Entries("tools/call") {
			var p struct{ Arguments jsontext.Value }
			if err := json.Unmarshal(e.Params(), &p, json.MatchCaseInsensitiveNames(true)); err != nil {
				t.Fatal(err)
			}
			ran[string(p.Arguments)]++
		}
	}
	for n := range 20 {
		times := ran[fmt.Sprintf(`{"n":%d}`, n)]
		if failed[n] == nil && times != 1 || times > 1 {
			t.Errorf("call %d ran %d times (error %v)", n, times, failed[n])
		}
	}
}

func TestACallThatRunsWhenItsReplicaDiesRunsNowhereElse(t *testing.T) {
	nodes, servers := mcp(t, 2, func(i int) *mcptest.Server {
		s := legacyServer(i)
		s.Tools = append(s.Tools, mcptest.Tool{Name: "stuck", Call: mcptest.Silence()})
		return s
	})
	c := over(t, urls(nodes), Options{}).client(t)
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := 0
	if servers[1].Count("initialize") > 0 {
		first = 1
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), "stuck", nil, nil)
		done <- err
	}()
	if _, err := servers[first].WaitFor(t.Context(), "tools/call", 1); err != nil {
		t.Fatal(err)
	}
	nodes[first].stop()
	err := <-done
	if e, ok := errors.AsType[*mcpclient.Error](err); !ok || e.Kind != mcpclient.KindLost || e.SafeToRetry {
		t.Errorf("error %v, want a lost call", err)
	}
	if got := servers[1-first].Count("tools/call"); got != 0 {
		t.Errorf("the call ran %d times on the other replica", got)
	}
}

func TestARequestOfASessionIsNotSentToAnotherReplica(t *testing.T) {
	nodes, servers := mcp(t, 2, legacyServer)
	tg := over(t, urls(nodes), Options{})
	tg.NoGetStream = true
	conn := tg.dial(t)
	if _, err := conn.Call(t.Context(), initialize()); err != nil {
		t.Fatal(err)
	}
	first := 0
	if servers[1].Count("initialize") > 0 {
		first = 1
	}
	nodes[first].stop()
	tg.base.CloseIdleConnections()
	for range 2 { // also once the replica is known to be down
		_, err := conn.Call(t.Context(), legacy("ping"))
		e := wantKind(t, err, transport.NotSent)
		if !strings.Contains(e.Message, nodes[first].addr+" refuses connections") {
			t.Errorf("message %q does not name the replica", e.Message)
		}
	}
	if got := servers[1-first].Transcript(); len(got) != 0 {
		t.Errorf("the other replica got %v", got)
	}
}

func initialize() *transport.Request {
	r := legacy("initialize")
	r.Version = ""
	r.Body = []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	return r
}

func TestManySessionsAreSpreadOverTheReplicas(t *testing.T) {
	nodes, servers := mcp(t, 3, legacyServer)
	tg := over(t, urls(nodes), Options{})
	for range 9 {
		if err := tg.client(t).Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range servers {
		if got := s.Count("initialize"); got != 3 {
			t.Errorf("replica %d got %d of 9 sessions, want 3", i, got)
		}
	}
}

func TestAnOldServersMessagesFollowItsStream(t *testing.T) {
	for name, absolute := range map[string]bool{"a relative endpoint": false, "an absolute endpoint": true} {
		t.Run(name, func(t *testing.T) {
			var nodes []*node
			var servers []*mcptest.Server
			nodes, servers = mcp(t, 2, func(i int) *mcptest.Server {
				s := legacyServer(i)
				s.OldSSE.On = true
				if absolute {
					s.OldSSE.Endpoint = func(session string) string {
						return "http://" + nodes[i].addr + "/messages?session=" + session
					}
				}
				return s
			})
			tg := over(t, urls(nodes), Options{})
			tg.SSEFallback = transport.SSEAuto
			for range 2 {
				c := tg.client(t)
				for n := range 10 {
					if err := echo(t.Context(), c, n); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, s := range servers {
				if got := s.Count("tools/call"); got != 10 {
					t.Errorf("replica %d got %d calls, want 10", i, got)
				}
			}
		})
	}
}

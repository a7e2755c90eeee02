package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// counting has a tool that counts its calls within one session, or within the process where there are none.
func counting() *mcptest.Server {
	var mu sync.Mutex
	counts := map[string]int{}
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "count", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		counts[r.SessionID()]++
		return mcptest.Text(strconv.Itoa(counts[r.SessionID()])), nil
	}}}}
}

func TestFault10NoKeySeesTheCounterOfAnother(t *testing.T) {
	server := counting()
	child, childLog := fakeChild(t, "counter")
	s := serve(t, map[string]target{"http": fake(t, server).perKey(8), "stdio": child.perKey(8)}).stubs(t)
	for name, log := range map[string]*mcptest.Log{"http": &server.Log, "stdio": &childLog.Log} {
		t.Run(name, func(t *testing.T) {
			keys := []string{"alice", "bob", "carol"}
			each(len(keys), func(k int) {
				for i := range 100 {
					got, err := s.call(affine(t.Context(), keys[k]), name, "count", "{}")
					if err != nil || got != strconv.Itoa(i+1) {
						t.Errorf("call %d of %s: %q, %s", i+1, keys[k], got, explain(err))
						return
					}
				}
			})
			wantCount(t, log, "tools/call", 300)
			used := map[string]bool{}
			for _, e := range log.Entries("tools/call") {
				used[e.Session] = true
			}
			if name == "http" && len(used) != len(keys) {
				t.Errorf("%d sessions served %d keys", len(used), len(keys))
			}
			_, err := s.call(t.Context(), name, "count", "{}")
			wantReason(t, err, codes.InvalidArgument, "AFFINITY_REQUIRED")
			wantCount(t, log, "tools/call", 300)
		})
	}
}

func TestFault13APageBelongsToOneKey(t *testing.T) {
	var mu sync.Mutex
	pages := map[string]string{}
	server := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{
		{Name: "navigate", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			pages[r.SessionID()] = string(member(r.Param("arguments"), "url"))
			return mcptest.Text("ok"), nil
		}},
		{Name: "page", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			return mcptest.Text("page " + pages[r.SessionID()]), nil
		}},
	}}
	s := serve(t, map[string]target{"browser": fake(t, server).perKey(8)}).stubs(t)
	each(2, func(k int) {
		ctx := affine(t.Context(), fmt.Sprint("agent-", k))
		for i := range 100 {
			url := fmt.Sprintf(`"https://%d.example/%d"`, k, i)
			if _, err := s.call(ctx, "browser", "navigate", `{"url":`+url+`}`); err != nil {
				t.Error(explain(err))
				return
			}
			if got, err := s.call(ctx, "browser", "page", "{}"); err != nil || got != "page "+url {
				t.Errorf("agent %d is on %q, %s, want %s", k, got, explain(err), url)
				return
			}
		}
	})
	if got, err := s.call(affine(t.Context(), "agent-new"), "browser", "page", "{}"); err != nil || got != "page " {
		t.Errorf("a new agent begins on %q, %s", got, explain(err))
	}
	wantCount(t, &server.Log, "initialize", 3)
}

func TestFault16CallsWithAffinityAreAboutAsFastAsWithout(t *testing.T) {
	const callers, calls, rounds = 8, 80, 21 // short rounds, since the machine has other work, too
	config, _ := gosdkHTTP(t)
	keyed := target{"url": config["url"]}.perKey(callers)
	s := serve(t, map[string]target{"shared": config, "keyed": keyed}, quietLog).stubs(t)
	rate := func(name string) float64 {
		began := time.Now()
		each(callers, func(c int) {
			ctx := affine(t.Context(), fmt.Sprint("key-", c))
			for range calls / callers {
				if _, err := s.call(ctx, name, "echo", `{"text":"x"}`); err != nil {
					t.Error(explain(err))
					return
				}
			}
		})
		return calls / time.Since(began).Seconds()
	}
	rate("shared")
	rate("keyed") // makes the connections
	var ratios []float64
	for round := range rounds {
		var shared, keyed float64
		if round%2 == 0 { // neither is always the first
			shared, keyed = rate("shared"), rate("keyed")
		} else {
			keyed, shared = rate("keyed"), rate("shared")
		}
		ratios = append(ratios, keyed/shared)
	}
	got := median(ratios)
	t.Logf("calls with affinity have %.2f of the throughput of calls without; all rounds: %.2f", got, ratios)
	if got < 0.8 {
		t.Error("want at least 0.80")
	}
}

// quietLog keeps the log of the bridge out of what is measured.
func quietLog(config map[string]any, _ *exec.Cmd) { config["log"] = map[string]any{"level": "warn"} }

func TestFault78ThousandsOfKeysAreServedWithinTheLimits(t *testing.T) {
	t.Parallel()
	const keys, connections, callers = 5000, 64, 16
	release := make(chan struct{})
	server := &mcptest.Server{Era: mcptest.Legacy, NoLog: true, Tools: []mcptest.Tool{
		{Name: "echo", Call: mcptest.Echo()},
		{Name: "hold", Call: mcptest.After(release, mcptest.Respond(mcptest.Text("held")))},
	}}
	open := &sessions{live: map[string]bool{}}
	config, _ := fakeBehind(t, server, open.watch)
	config.pin(legacy).perKey(connections)["pool"].(map[string]any)["idle_timeout"] = "50ms"
	b := serve(t, map[string]target{"one": config}, quietLog, environment("GODEBUG=gctrace=1"))
	s := b.stubs(t)

	var early int // MB in use after a fifth of the keys
	each(callers, func(c int) {
		for i := c; i < keys; i += callers {
			arguments := fmt.Sprintf(`{"i":%d}`, i)
			got, err := patient(func() (string, error) {
				return s.call(affine(t.Context(), fmt.Sprint("key-", i)), "one", "echo", arguments)
			})
			if err != nil || got != arguments {
				t.Errorf("key %d: %q, %s", i, got, explain(err))
				return
			}
			if i == keys/5 {
				early = b.inUse(t)
			}
		}
	})
	// a session that is being ended is beside those that are open
	if most := open.most(); most > 2*connections {
		t.Errorf("%d sessions were open at once, with %d connections", most, connections)
	}
	if late := b.inUse(t); late > early+10 {
		t.Errorf("the bridge uses %d MB after %d keys and %d MB after %d; it grows with the keys", early, keys/5, late, keys)
	}
	wantNoSessions(t, s, open)

	busy := func(i int) context.Context { return affine(t.Context(), fmt.Sprint("busy-", i)) }
	held := make(chan error, connections)
	for i := range connections {
		go func() {
			_, err := s.call(busy(i), "one", "hold", "{}")
			held <- err
		}()
	}
	eventually(t, "the connections", func() string {
		if n := open.now(); n < connections {
			return fmt.Sprint(n, " are open")
		}
		return ""
	})
	_, err := s.call(affine(t.Context(), "one-too-many"), "one", "echo", "{}")
	wantReason(t, err, codes.ResourceExhausted, "OVERLOADED")
	if _, err := s.call(busy(0), "one", "echo", "{}"); err != nil {
		t.Errorf("a key that has a connection is not served: %s", explain(err))
	}
	close(release)
	for range connections {
		if err := <-held; err != nil {
			t.Error(explain(err))
		}
	}
	wantNoSessions(t, s, open)
	if _, err := s.call(affine(t.Context(), "one-too-many"), "one", "echo", "{}"); err != nil {
		t.Errorf("a new key is not served after the others went: %s", explain(err))
	}
}

// patient repeats what was refused because of too much load.
func patient(call func() (string, error)) (string, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		text, err := call()
		if err == nil || time.Now().After(deadline) || otherThan(err, codes.ResourceExhausted, "OVERLOADED") != "" {
			return text, err
		}
	}
}

// wantNoSessions waits until idle connections were closed, and their sessions ended.
func wantNoSessions(t *testing.T, s stubs, open *sessions) {
	t.Helper()
	eventually(t, "idle connections", func() string {
		if pool, n := s.target(t, "one").GetPool(), open.now(); pool.GetConnections() > 0 || n > 0 {
			return fmt.Sprintf("%v, and %d sessions of the server were not ended", pool, n)
		}
		return ""
	})
}

// sessions counts the sessions of a legacy server by what passes on HTTP.
type sessions struct {
	mu   sync.Mutex
	live map[string]bool
	peak int
}

func (s *sessions) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Mcp-Session-Id")
		s.mu.Lock()
		if id != "" && r.Method == http.MethodDelete {
			delete(s.live, id)
		} else if id != "" && r.Method == http.MethodPost {
			s.live[id] = true
			s.peak = max(s.peak, len(s.live))
		}
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

func (s *sessions) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

func (s *sessions) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// collected is what the garbage collector of a Go program prints with GODEBUG=gctrace=1.
var collected = regexp.MustCompile(`(?m)^gc [0-9]+ @.* [0-9]+->[0-9]+->([0-9]+) MB, [0-9]+ MB goal, ([0-9]+) MB stacks`)

// inUse is how many MB of heap and stacks were in use at the last collection. What the system says would count the
// race detector's own memory.
func (b *bridge) inUse(t *testing.T) int {
	all := collected.FindAllStringSubmatch(b.out.String(), -1)
	if len(all) == 0 {
		t.Error("the bridge says nothing of its memory")
		return 0
	}
	sum := 0
	for _, text := range all[len(all)-1][1:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Error(err)
		}
		sum += n
	}
	return sum
}

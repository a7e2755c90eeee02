package targets

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// lab is a set whose servers are in memory, for bubbles. The host of a URL
// names the server; one that is not there takes no connection and no time.
type lab struct {
	*Set
	t       *testing.T
	clients map[string]*http.Client
}

func newLab(t *testing.T, servers map[string]*mcptest.Server, first *config.Config) *lab {
	t.Helper()
	l := &lab{t: t, clients: map[string]*http.Client{}}
	for name, server := range servers {
		_, l.clients[name] = mcptest.StartMemoryHTTP(t, server)
	}
	set, err := New(first, Deps{transport: func(_ string, c *config.Target) (transport.Transport, error) {
		host, _, _ := strings.Cut(strings.TrimPrefix(c.URL, "http://"), "/")
		if host == "bad" {
			return nil, errors.New("the url is bad")
		}
		client := l.clients[host]
		if host == "hanging" {
			client = &http.Client{Transport: waiting{}}
		}
		if client == nil {
			client = &http.Client{Transport: refusing{}}
		}
		return &transport.HTTP{URL: "http://mcptest.invalid/mcp", Client: client, SSEFallback: transport.SSENever}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.Set = set
	t.Cleanup(func() {
		if err := set.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

type waiting struct{}

func (waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }

// conf is a configuration of targets, each given as NAME=HOST.
func conf(targets ...string) *config.Config {
	cfg := config.Default()
	for _, target := range targets {
		name, host, _ := strings.Cut(target, "=")
		c := config.NewTarget(config.TransportStreamableHTTP)
		c.URL = "http://" + host + "/mcp"
		c.Health.Enabled = false
		cfg.Targets[name] = c
	}
	return cfg
}

func (l *lab) reload(cfg *config.Config, want Changes) {
	l.t.Helper()
	got, err := l.Reload(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Error(diff)
	}
}

func (l *lab) target(name string) *Target {
	l.t.Helper()
	target, err := l.Get(name)
	if err != nil {
		l.t.Fatal(err)
	}
	return target
}

// host is where a target's calls go now.
func (l *lab) host(name string) string {
	l.t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(l.target(name).config.URL, "http://"), "/")
	return host
}

func (l *lab) call(name string) error {
	l.t.Helper()
	lease, err := l.target(name).Acquire(l.t.Context(), Caller{})
	if err != nil {
		return err
	}
	defer lease.Release()
	_, err = lease.Client().CallTool(l.t.Context(), "hi", nil, nil)
	return err
}

// fake is a server with sessions, so that several clients may use it.
func fake() *mcptest.Server {
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "hi"}}}
}

func TestReloadTouchesOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		same, other := fake(), fake()
		l := newLab(t, map[string]*mcptest.Server{"same": same, "other": other}, conf("a=same", "b=other", "gone=other"))
		l.Start()
		synctest.Wait()
		a, b, gone := l.target("a"), l.target("b"), l.target("gone")
		w := l.Watch("")
		defer w.Close()
		cfg := conf("a=same", "b=same", "c=other")
		l.reload(cfg, Changes{Added: []string{"c"}, Changed: []string{"b"}, Removed: []string{"gone"}})
		if _, err := l.Get("gone"); err == nil {
			t.Error("a removed target is still found")
		}
		l.target("c") // is there at once
		synctest.Wait()
		if l.target("a") != a || a.Status().State != pool.StateReady {
			t.Error("an unchanged target was touched")
		}
		if l.target("b") == b || l.host("b") != "same" || b.Status().State != pool.StateClosed || gone.Status().State != pool.StateClosed {
			t.Errorf("b at %s, old %v, gone %v", l.host("b"), b.Status().State, gone.Status().State)
		}
		if got := same.Count("initialize"); got != 2 { // a and b, each once
			t.Errorf("%d connections to one server", got)
		}
		var seen []string
		for _, text := range drain(w) {
			if strings.HasPrefix(text, "b ") || strings.HasPrefix(text, "gone ") {
				seen = append(seen, text)
			}
		}
		slices.Sort(seen)
		if want := []string{"b ready", "gone closed", "gone draining", "gone removed"}; !slices.Equal(seen, want) {
			t.Errorf("told %q, want %q", seen, want)
		}
		l.reload(cfg, Changes{})
		cfg.ClientInfo.Title = "new"
		l.reload(cfg, Changes{Changed: []string{"a", "b", "c"}})
		synctest.Wait()
		if l.target("a") == a {
			t.Error("another client_info needs other connections")
		}
	})
}

func TestAReloadThatFailsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, map[string]*mcptest.Server{"up": fake()}, conf("a=up"))
		l.Start()
		synctest.Wait()
		before := l.current.Load()
		_, err := l.Reload(conf("a=nowhere", "b=bad", "c=bad", "d=up"))
		if err == nil || !strings.Contains(err.Error(), "target b: the url is bad") || !strings.Contains(err.Error(), "target c: ") {
			t.Errorf("Reload = %v", err)
		}
		synctest.Wait()
		if l.current.Load() != before || len(l.pending) != 0 {
			t.Error("something changed")
		}
		if err := l.call("a"); err != nil {
			t.Error(err)
		}
	})
}

func TestTheOldTargetServesUntilTheNewOneIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		booted := make(chan struct{})
		slow := fake()
		slow.Initialize = mcptest.After(booted, nil)
		l := newLab(t, map[string]*mcptest.Server{"old": fake(), "new": slow}, conf("a=old"))
		l.Start()
		synctest.Wait()
		old := l.target("a")
		w := l.Watch("a")
		defer w.Close()
		l.reload(conf("a=new"), Changes{Changed: []string{"a"}})
		time.Sleep(time.Second)
		if l.target("a") != old || l.call("a") != nil {
			t.Error("the old target does not serve")
		}
		close(booted)
		synctest.Wait()
		if l.host("a") != "new" || l.call("a") != nil {
			t.Error("the new target does not serve")
		}
		if got := drain(w); !slices.Equal(got, []string{"a ready"}) {
			t.Errorf("told %q", got)
		}
		// a caller that found the old one just before goes to the new one
		lease, err := old.Acquire(t.Context(), Caller{})
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release()
		if _, err := lease.Client().CallTool(t.Context(), "hi", nil, nil); err != nil || slow.Count("tools/call") != 2 {
			t.Errorf("%v, %d calls at the new target", err, slow.Count("tools/call"))
		}
	})
}

func TestAReplacementThatCannotConnectTakesOverAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := fake()
		silent.Initialize = mcptest.Silence()
		l := newLab(t, map[string]*mcptest.Server{"old": fake(), "silent": silent}, conf("a=old", "b=old"))
		l.Start()
		synctest.Wait()
		cfg := conf("a=nowhere", "b=silent")
		cfg.Targets["b"].Timeouts.Initialize = 8 * time.Second
		l.reload(cfg, Changes{Changed: []string{"a", "b"}})
		synctest.Wait()
		if l.host("a") != "nowhere" {
			t.Error("the first attempt has failed, but the old target still serves")
		}
		time.Sleep(8*time.Second - 1)
		if l.host("b") != "old" {
			t.Error("replaced before timeouts.initialize")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if l.host("b") != "silent" {
			t.Error("not replaced after timeouts.initialize")
		}
	})
}

func TestTargetsThatConnectAtTheFirstCallAreReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, map[string]*mcptest.Server{"old": fake(), "new": fake()}, conf("lazy=old", "keyed=old"))
		l.Start()
		synctest.Wait()
		cfg := conf("lazy=new", "keyed=new")
		cfg.Targets["lazy"].Lazy = true
		cfg.Targets["keyed"].Pool.Isolation = config.IsolationPerKey
		l.reload(cfg, Changes{Changed: []string{"keyed", "lazy"}})
		if l.host("lazy") != "new" || l.host("keyed") != "new" {
			t.Errorf("lazy at %s, keyed at %s", l.host("lazy"), l.host("keyed"))
		}
		if err := l.call("lazy"); err != nil {
			t.Error(err)
		}
		if err := l.call("keyed"); !errors.Is(err, ErrAffinityRequired) {
			t.Errorf("keyed: %v", err)
		}
	})
}

func TestTheNewestConfigurationWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot := make(chan struct{})
		second, third := fake(), fake()
		second.Initialize, third.Initialize = mcptest.After(boot, nil), mcptest.After(boot, nil)
		l := newLab(t, map[string]*mcptest.Server{"1": fake(), "2": second, "3": third}, conf("a=1", "b=1", "c=1", "d=1"))
		l.Start()
		synctest.Wait()
		d := l.target("d")
		l.reload(conf("a=2", "b=2", "c=2", "d=2"), Changes{Changed: []string{"a", "b", "c", "d"}})
		pending := l.pending["a"].target
		var superseded []*Target
		for _, name := range []string{"b", "c", "d"} {
			superseded = append(superseded, l.pending[name].target)
		}
		time.Sleep(time.Second)
		// the same again, another one, no more, and back
		l.reload(conf("a=2", "b=3", "d=1"), Changes{Changed: []string{"b", "d"}, Removed: []string{"c"}})
		if l.pending["a"].target != pending {
			t.Error("a replacement that is still wanted was made anew")
		}
		time.Sleep(time.Second)
		for _, target := range superseded {
			if got := target.Status().State; got != pool.StateClosed {
				t.Errorf("the superseded replacement of %s is %v", target.name, got)
			}
		}
		close(boot)
		synctest.Wait()
		if l.target("a") != pending || l.host("b") != "3" || l.target("d") != d || d.Status().State != pool.StateReady {
			t.Errorf("a at %s, b at %s, d at %s", l.host("a"), l.host("b"), l.host("d"))
		}
		if _, err := l.Get("c"); err == nil || len(l.pending) != 0 {
			t.Errorf("c is still there; %d pending", len(l.pending))
		}
	})
}

func TestATargetThatIsReplacedFinishesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		old := fake()
		old.Tools[0].Call = mcptest.After(finish, mcptest.Respond(mcptest.Text("done")))
		first := conf("a=old", "b=old")
		first.Shutdown.Timeout = 30 * time.Second
		l := newLab(t, map[string]*mcptest.Server{"old": old, "new": fake()}, first)
		l.Start()
		synctest.Wait()
		var calls sync.WaitGroup
		var errs [2]error
		for i, name := range []string{"a", "b"} {
			calls.Go(func() { errs[i] = l.call(name) })
		}
		synctest.Wait()
		a := l.target("a")
		l.reload(conf("a=new"), Changes{Changed: []string{"a"}, Removed: []string{"b"}})
		synctest.Wait()
		if got := a.Status().State; got != pool.StateDraining {
			t.Errorf("the old target is %v", got)
		}
		if l.call("a") != nil {
			t.Error("calls wait for the old target's end")
		}
		time.Sleep(29 * time.Second)
		close(finish)
		calls.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Errorf("calls under way: %v", err)
		}
	})
}

func TestARemovedTargetThatComesBackIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := fake()
		stuck.Tools[0].Call = mcptest.Silence()
		l := newLab(t, map[string]*mcptest.Server{"stuck": stuck, "new": fake()}, conf("a=stuck"))
		l.Start()
		synctest.Wait()
		var calls sync.WaitGroup
		defer calls.Wait()
		calls.Go(func() { _ = l.call("a") }) // cut off when the time to drain is over
		synctest.Wait()
		w := l.Watch("")
		defer w.Close()
		l.reload(conf(), Changes{Removed: []string{"a"}})
		synctest.Wait()
		during := l.Watch("a") // still there, as far as watchers are concerned
		defer during.Close()
		if got := during.Initial(); len(got) != 1 || got[0].text() != "a draining" {
			t.Errorf("during the drain: %v", got)
		}
		l.reload(conf("a=new"), Changes{Added: []string{"a"}})
		time.Sleep(time.Minute)
		if got := drain(w); !slices.Equal(got, []string{"a draining", "a connecting", "a ready"}) {
			t.Errorf("told %q", got)
		}
	})
}

func TestReloadBeforeStartAndAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := fake()
		l := newLab(t, map[string]*mcptest.Server{"old": old, "new": fake()}, conf("a=old"))
		l.reload(conf("a=new"), Changes{Changed: []string{"a"}})
		if l.host("a") != "new" {
			t.Error("nothing serves, so that there is nothing to wait for")
		}
		l.Start()
		synctest.Wait()
		if old.Count("initialize") != 0 || l.target("a").Status().State != pool.StateReady {
			t.Error("the wrong target was started")
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reload(conf("a=old")); !errors.Is(err, ErrClosed) {
			t.Errorf("Reload after Close = %v", err)
		}
	})
}

func TestCloseEndsPendingReplacementsAndDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, stuck := fake(), fake()
		silent.Initialize = mcptest.Silence()
		stuck.Tools[0].Call = mcptest.Silence()
		l := newLab(t, map[string]*mcptest.Server{"silent": silent, "stuck": stuck, "up": fake()}, conf("a=up", "b=stuck"))
		l.Start()
		synctest.Wait()
		var calls sync.WaitGroup
		defer calls.Wait()
		calls.Go(func() { _ = l.call("b") })
		synctest.Wait()
		l.reload(conf("a=silent"), Changes{Changed: []string{"a"}, Removed: []string{"b"}})
		pending := l.pending["a"].target
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_ = l.Close(ctx) // calls under way are cut off, which is an error
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		if got := pending.Status().State; got != pool.StateClosed {
			t.Errorf("the pending replacement is %v", got)
		}
	})
}

// Names are looked up and called while the configuration goes back and forth.
func TestLookupsNeverMeetAGap(t *testing.T) {
	one, two := fake(), fake()
	urls := []string{mcptest.StartHTTP(t, one), mcptest.StartHTTP(t, two)}
	s := newSet(t, Deps{}, map[string]*config.Target{"a": httpTarget(urls[0])})
	s.Start()
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := call(t, s, "a", "hi"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 30 {
		cfg := config.Default()
		cfg.Targets["a"] = httpTarget(urls[(i+1)%2])
		cfg.Targets["a"].Pool.MaxQueue = 100 + i
		w := s.Watch("a")
		if _, err := s.Reload(cfg); err != nil {
			t.Error(err)
		}
		if i%3 > 0 { // else the next one comes while this one is pending
			for s.current.Load().byName["a"].config != cfg.Targets["a"] {
				if _, err := w.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.Close()
	}
	stop()
	callers.Wait()
	if one.Count("tools/call") == 0 || two.Count("tools/call") == 0 {
		t.Error("one of the servers was never called")
	}
}

func BenchmarkGet(b *testing.B) {
	cfg := conf("a=x", "b=x", "c=x")
	s, err := New(cfg, Deps{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close(b.Context()) }()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Get("b"); err != nil {
				b.Error(err)
			}
		}
	})
}

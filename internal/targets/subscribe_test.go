package targets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// eras are the servers of a test.
var eras = map[string]mcptest.Era{"modern": mcptest.Modern, "legacy": mcptest.Legacy}

// store is a server with everything that can be watched.
func store(era mcptest.Era) *mcptest.Server {
	s := &mcptest.Server{Era: era, ManyClients: true, Tools: []mcptest.Tool{{Name: "hi"}}, Prompts: []mcptest.Prompt{{Name: "p"}}}
	for i := range 10 {
		s.Resources = append(s.Resources, mcptest.Resource{URI: fmt.Sprintf("file:///%d", i)})
	}
	return s
}

func update(s *mcptest.Server, uri string) {
	s.Notify(mcpclient.MethodResourceUpdated, map[string]any{"uri": uri})
}

// inEras runs a test in a bubble for a server of each era, as target "a".
func inEras(t *testing.T, f func(t *testing.T, l *lab, s *mcptest.Server)) {
	t.Helper()
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(era)
				cfg := conf("a=a")
				cfg.Targets["a"].Changes = config.Changes{} // the client's own subscription stays out of it
				cfg.Targets["a"].Health.Enabled = true      // which finds out that a session is lost
				l := newLab(t, map[string]*mcptest.Server{"a": s}, cfg)
				l.Start()
				synctest.Wait()
				f(t, l, s)
			})
		})
	}
}

// watcher is a subscription of a test.
type watcher struct {
	*Subscription
	t *testing.T
}

func (l *lab) watcher(i Interest) watcher { l.t.Helper(); return l.watcherAs(Caller{}, i) }

func (l *lab) watcherAs(who Caller, i Interest) watcher {
	l.t.Helper()
	sub, err := l.target("a").Subscribe(l.t.Context(), who, i)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(sub.Close)
	return watcher{sub, l.t}
}

func uris(list ...string) Interest { return Interest{URIs: list} }

// want compares what has happened since the last time.
func (w watcher) want(want News) {
	w.t.Helper()
	synctest.Wait()
	got, err := w.Take()
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Error(diff)
	}
}

// wantEnd compares why the subscription has ended.
func (w watcher) wantEnd(check func(error) bool) {
	w.t.Helper()
	synctest.Wait()
	for range 2 {
		if news, err := w.Take(); err != nil || news.isEmpty() {
			if !check(err) {
				w.t.Errorf("ended with %v", err)
			}
			return
		}
	}
	w.t.Error("it goes on")
}

func isKind(kind mcpclient.Kind) func(error) bool {
	return func(err error) bool { return errors.Is(err, &mcpclient.Error{Kind: kind}) }
}

// asked counts the subscriptions that a server was asked for.
func asked(s *mcptest.Server) int {
	return s.Count("subscriptions/listen") + s.Count("resources/subscribe")
}

// given counts those that it was told are not needed any more.
func given(s *mcptest.Server) int {
	if s.Era == mcptest.Modern {
		return s.Count("subscriptions/listen") - s.Subscriptions()
	}
	return s.Count("resources/unsubscribe")
}

func TestAThousandWatchersOfOneResourceShareOneSubscription(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		var all []watcher
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				w := l.watcher(uris("file:///1"))
				mu.Lock()
				defer mu.Unlock()
				all = append(all, w)
			})
		}
		wg.Wait()
		if got := asked(s); got != 1 {
			t.Fatalf("%d subscriptions at the server", got)
		}
		update(s, "file:///1")
		for _, w := range all {
			w.want(News{URIs: []string{"file:///1"}})
		}
		for _, w := range all[1:] {
			w.Close()
		}
		time.Sleep(time.Minute)
		if got := given(s); got != 0 {
			t.Errorf("%d subscriptions ended while there is a watcher", got)
		}
		update(s, "file:///1")
		all[0].want(News{URIs: []string{"file:///1"}})
		all[0].Close()
		all[0].Close()
		time.Sleep(time.Second)
		if got := given(s); got != 1 {
			t.Errorf("%d subscriptions ended with the last watcher", got)
		}
		if stat := l.target("a").Stat(); stat.InFlight != 0 {
			t.Errorf("%d leases left", stat.InFlight)
		}
		synctest.Wait()
		if n := len(l.target("a").feeds.byKey); n != 0 {
			t.Errorf("%d feeds left", n)
		}
	})
}

func TestMoreInterestOpensBeforeItCloses(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		first := l.watcher(uris("file:///1"))
		open := make(chan struct{})
		if s.Era == mcptest.Modern {
			s.Listen.AckDelay = 3 * time.Second
		} else {
			s.Handle = map[string]mcptest.Handler{"resources/subscribe": mcptest.Delay(3*time.Second, func(ctx context.Context, r *mcptest.Request) (any, error) { return r.Default(ctx) })}
		}
		var second watcher
		go func() {
			defer close(open)
			second = l.watcher(uris("file:///2", "file:///1"))
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		update(s, "file:///1")
		first.want(News{URIs: []string{"file:///1"}}) // the second one is not acknowledged yet
		<-open
		if got := given(s); got != 0 {
			t.Errorf("%d closed at the acknowledgement: what is under way there would be lost", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.Era == mcptest.Modern && (asked(s) != 2 || given(s) != 1) {
			t.Errorf("asked %d times, gave back %d", asked(s), given(s))
		}
		if s.Era == mcptest.Legacy && (asked(s) != 2 || given(s) != 0) {
			t.Errorf("asked %d times, gave back %d", asked(s), given(s))
		}
		first.want(News{})
		second.want(News{URIs: []string{"file:///1"}}) // it might have been after the acknowledgement
		update(s, "file:///1")
		update(s, "file:///2")
		update(s, "file:///3")
		first.want(News{URIs: []string{"file:///1"}})
		second.want(News{URIs: []string{"file:///1", "file:///2"}})
	})
}

func TestLessInterestLeavesWhatIsOpen(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		l.watcher(Interest{Tools: true})
		w := l.watcher(uris("file:///1"))
		w.Close()
		before := asked(s)
		time.Sleep(time.Minute)
		l.watcher(uris("file:///1"))
		l.watcher(Interest{Tools: true})
		if got := asked(s); got != before {
			t.Errorf("asked again although it was open: %d times, then %d", before, got)
		}
		update(s, "file:///1")
	})
}

func TestListChangesReachWhoWantsThem(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		tools, prompts, resources := l.watcher(Interest{Tools: true}), l.watcher(Interest{Prompts: true}), l.watcher(Interest{Resources: true, URIs: []string{"file:///1"}})
		time.Sleep(2 * linger)
		for range 10 {
			s.Notify(mcpclient.MethodToolsChanged, nil)
		}
		tools.want(News{Tools: true})
		tools.want(News{})
		prompts.want(News{})
		s.Notify(mcpclient.MethodPromptsChanged, nil)
		s.Notify(mcpclient.MethodResourcesChanged, nil)
		update(s, "file:///1")
		tools.want(News{})
		prompts.want(News{Prompts: true})
		resources.want(News{Resources: true, URIs: []string{"file:///1"}})
	})
}

func TestAPartOfAResourceIsToldToWhoWatchesTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		dir, slash, file, other := l.watcher(uris("file:///d")), l.watcher(uris("file:///d/")), l.watcher(uris("file:///d/f#x")), l.watcher(uris("file:///dd"))
		time.Sleep(2 * linger)
		synctest.Wait()
		f := l.target("a").feeds.byKey[feedKey{}]
		tell := func(uri string) {
			f.deliver(f.up, mcpclient.Notification{Method: mcpclient.MethodResourceUpdated, Params: []byte(`{"uri":"` + uri + `"}`)})
		}
		tell("file:///d/f#x")
		for _, w := range []watcher{dir, slash, file} {
			w.want(News{URIs: []string{"file:///d/f#x"}})
		}
		other.want(News{})
		file.Close()
		tell("file:///d/f#x") // nobody asks for it any more, but the server may not know
		dir.want(News{URIs: []string{"file:///d/f#x"}})
		slash.want(News{URIs: []string{"file:///d/f#x"}})
		tell("FILE:///dd") // one of them, under another name
		for _, w := range []watcher{dir, slash, other} {
			w.want(News{URIs: []string{"FILE:///dd"}})
		}
		f.deliver(f.up, mcpclient.Notification{Method: mcpclient.MethodResourceUpdated, Params: []byte(`{}`)})
		f.deliver(f.up, mcpclient.Notification{Method: mcpclient.MethodResourceUpdated})
		dir.want(News{})
	})
}

func TestAfterAGapEverybodyIsToldToLookAgain(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		one, two := l.watcher(uris("file:///1")), l.watcher(Interest{Tools: true})
		time.Sleep(2 * linger)
		lose := map[string]func(){
			"restart": func() { s.SetDown(true); s.ExpireSessions(); time.Sleep(10 * time.Second); s.SetDown(false) },
		}
		if s.Era == mcptest.Modern {
			lose["the stream breaks"] = s.DropSubscriptions
			lose["the server says goodbye"] = s.EndSubscriptions
		} else {
			lose["the session expires"] = func() { s.ExpireSessions(); _ = l.call("a") }
		}
		for _, what := range slices.Sorted(mapKeys(lose)) {
			lose[what]()
			time.Sleep(2 * time.Minute)
			one.want(News{Resync: true})
			two.want(News{Resync: true})
			update(s, "file:///1")
			s.Notify(mcpclient.MethodToolsChanged, nil)
			one.want(News{URIs: []string{"file:///1"}})
			two.want(News{Tools: true})
			if t.Failed() {
				t.Fatalf("after: %s", what)
			}
		}
	})
}

func mapKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestAGapWhileTheInterestGrowsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		w := l.watcher(uris("file:///1"))
		time.Sleep(time.Minute)
		s.DropSubscriptions()
		synctest.Wait() // the client waits a little before it opens it again
		l.watcher(uris("file:///2"))
		w.want(News{Resync: true})
	})
}

// shedding is a log that tells when a text comes up.
type shedding chan struct{}

func (c shedding) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "was shed") {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

func TestShedDeliveriesAreMadeUpForByAResync(t *testing.T) {
	s := store(mcptest.Modern)
	c := httpTarget(mcptest.StartHTTP(t, s))
	c.Dispatch.MaxInFlight = 1
	shed := make(shedding, 1)
	set := newSet(t, Deps{Logger: slog.New(slog.NewTextHandler(shed, nil))}, map[string]*config.Target{"a": c})
	a := set.All()[0]
	sub, err := a.Subscribe(t.Context(), Caller{}, Interest{Prompts: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	a.feeds.mu.Lock() // the delivery of the first one takes long
	for range 3 {
		s.Notify(mcpclient.MethodPromptsChanged, nil)
	}
	<-shed
	a.feeds.mu.Unlock()
	for news := (News{}); !news.Resync; {
		<-sub.Changed()
		if news, err = sub.Take(); err != nil {
			t.Fatal(err)
		}
	}
	s.Notify(mcpclient.MethodPromptsChanged, nil)
	<-sub.Changed()
	if news, err := sub.Take(); err != nil || !news.Prompts || news.Resync {
		t.Error(news, err)
	}
}

func TestKeysDoNotShareSubscriptions(t *testing.T) {
	for isolation, want := range map[config.Isolation]int{
		config.IsolationShared: 1, config.IsolationPerKey: 2, config.IsolationPerCaller: 2, config.IsolationPerCall: 4,
	} {
		t.Run(string(isolation), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(mcptest.Legacy)
				cfg := conf("a=a")
				cfg.Targets["a"].Pool.Isolation, cfg.Targets["a"].Pool.MaxConnections = isolation, 0
				cfg.Targets["a"].Pool.MaxInFlight = 4
				l := newLab(t, map[string]*mcptest.Server{"a": s}, cfg)
				l.Start()
				var all []watcher
				for _, who := range []Caller{{"x", "1"}, {"y", "2"}, {"x", "1"}, {"y", "2"}} {
					all = append(all, l.watcherAs(who, uris("file:///1")))
				}
				sessions := map[string]bool{}
				for _, e := range s.Entries("resources/subscribe") {
					sessions[e.Session] = true
				}
				if len(sessions) != want || asked(s) != want {
					t.Errorf("%d subscriptions in %d sessions, want %d", asked(s), len(sessions), want)
				}
				time.Sleep(time.Hour) // longer than a connection may be idle
				if got := s.Count("initialize"); got > want+1 {
					t.Errorf("%d connections were made; watched ones were taken for idle", got)
				}
				update(s, "file:///1")
				for _, w := range all {
					w.want(News{URIs: []string{"file:///1"}})
					w.Close()
				}
				time.Sleep(time.Hour)
				stat := l.target("a").Stat()
				if keep := map[bool]int{true: 1}[isolation == config.IsolationShared]; stat.Connections != keep || stat.InFlight != 0 {
					t.Errorf("left behind: %+v", stat)
				}
			})
		})
	}
}

func TestWatchersTakeNoPlaceFromCalls(t *testing.T) {
	for _, isolation := range []config.Isolation{config.IsolationShared, config.IsolationPerKey} {
		synctest.Test(t, func(t *testing.T) {
			s := store(mcptest.Legacy)
			cfg := conf("a=a")
			cfg.Targets["a"].Pool.Isolation, cfg.Targets["a"].Pool.MaxInFlight = isolation, 1
			l := newLab(t, map[string]*mcptest.Server{"a": s}, cfg)
			l.Start()
			who := Caller{"x", "1"}
			l.watcherAs(who, uris("file:///1"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			lease, err := l.target("a").Acquire(ctx, who)
			if err != nil {
				t.Fatal(isolation, err)
			}
			lease.Release()
		})
	}
}

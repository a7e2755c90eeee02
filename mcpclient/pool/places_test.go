package pool

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// slowEnd is how long the sessions of a slowly server take to end.
const slowEnd = 4 * time.Second

// slowly returns a server whose sessions take their time to end, and how many
// there are and were at once.
func slowly() (server *mcptest.Server, now, most *atomic.Int64) {
	server, now, most = legacy(), new(atomic.Int64), new(atomic.Int64)
	server.Status = func(method string, _ int) *mcptest.Reply {
		switch method {
		case "initialize":
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
		case "DELETE":
			time.Sleep(slowEnd)
			now.Add(-1)
		}
		return nil
	}
	return server, now, most
}

// profile is an exclusive request that shares no connections with others.
func profile(name string) Request { return Request{Key: Key{Profile: name}, Exclusive: true} }

func TestAnExclusiveConnectionHasItsPlaceUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, most := slowly()
		p := newFake(t, server).pool(t, Options{MaxExclusive: 2})
		began := time.Now()
		for range 5 { // each of them is left, two at a time
			var pair [2]*Lease
			for i := range pair {
				pair[i] = connected(t, p, profile("all"))
			}
			for _, l := range pair {
				l.Discard()
				l.Release()
			}
			if got := p.Stat(); got.Closing != 2 || got.Connections != 0 || got.Interactive != 0 {
				t.Errorf("while they end: %+v", got)
			}
		}
		if took := time.Since(began); took != 4*slowEnd {
			t.Errorf("ten calls took %v", took)
		}
		if got := most.Load(); got != 2 {
			t.Errorf("%d sessions at once, want 2", got)
		}
		if got := p.Stat(); got.Rejected != 0 || got.Waits < 4 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAWaitForAPlaceIsBoundedLikeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, _ := slowly()
		p := newFake(t, server).pool(t, Options{MaxExclusive: 1, MaxQueue: 1})
		first := connected(t, p, profile("all"))
		_, err := p.Acquire(t.Context(), profile("all")) // nothing is about to end
		_ = wantKind(t, err, mcpclient.KindOverloaded)
		first.Discard()
		first.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waited := make(chan error, 1)
		go func() {
			_, err := p.Acquire(ctx, profile("all"))
			waited <- err
		}()
		synctest.Wait()
		_, err = p.Acquire(t.Context(), profile("other"))
		if e := wantKind(t, err, mcpclient.KindOverloaded); !strings.Contains(e.Message, "pool.max_interactive or pool.max_queue") {
			t.Errorf("past the queue: %v", e)
		}
		if e := wantKind(t, <-waited, mcpclient.KindTimeout); !strings.Contains(e.Message, "pool.max_interactive") {
			t.Errorf("at the deadline: %v", e)
		}
		connected(t, p, profile("all")).Release() // who waits longer is served
		if got := p.Stat(); got.Queued != 0 || got.Closing != 0 || got.Rejected != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhoWaitsForAPlaceGetsTheNextIdleOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, most := slowly()
		f := newFake(t, server)
		p := f.pool(t, Options{MaxExclusive: 2})
		a, b := connected(t, p, profile("a")), connected(t, p, profile("b"))
		a.Discard()
		a.Release()
		order := make(chan string, 3)
		var waiting sync.WaitGroup
		for _, name := range []string{"c", "b", "d"} {
			waiting.Go(func() {
				l, err := p.Acquire(t.Context(), profile(name))
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Client().Connect(t.Context()); err != nil {
					t.Error(err)
				}
				order <- name
				time.Sleep(time.Minute)
				l.Release()
			})
			synctest.Wait()
		}
		kept := b.Client()
		b.Release() // the place of a is for c; this one is b's already
		synctest.Wait()
		if got := <-order; got != "b" || len(order) != 0 || f.count() != 3 { // and the first of a shared pool
			t.Errorf("%q was served first, of %d clients", got, f.count())
		}
		if kept.Status().State != mcpclient.StateReady {
			t.Error("the idle connection ended, although somebody waited for it")
		}
		time.Sleep(slowEnd)
		synctest.Wait()
		if got := <-order; got != "c" || len(order) != 0 {
			t.Errorf("%q was served second", got)
		}
		waiting.Wait()
		if got := <-order; got != "d" { // in the place of whatever was idle first
			t.Errorf("%q was served last", got)
		}
		if got := p.Stat(); most.Load() != 2 || got.Evicted != 1 || got.Waits != 3 {
			t.Errorf("%d sessions at once, %+v", most.Load(), got)
		}
	})
}

func TestClosingRefusesWhoWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, _ := slowly()
		p := newFake(t, server).pool(t, Options{MaxExclusive: 1})
		connected(t, p, profile("a")).Release()
		waited := make(chan error, 1)
		go func() {
			_, err := p.Acquire(t.Context(), profile("b"))
			waited <- err
		}()
		synctest.Wait()
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = wantKind(t, <-waited, mcpclient.KindClosed)
		if got := p.Stat(); got.Closing != 0 || got.Queued != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestNoModeHasMoreConnectionsThanItsBoundsWhileSomeEnd(t *testing.T) {
	for name, c := range map[string]struct {
		options   Options
		exclusive bool
		most      int64
	}{
		"exclusive":          {Options{MaxExclusive: 3, IdleTimeout: 10 * time.Second}, true, 3},
		"exclusive, per key": {Options{Mode: ModePerKey, MaxConnections: 1, MaxExclusive: 3, MaxLifetime: 5 * time.Second}, true, 3},
		"per key":            {Options{Mode: ModePerKey, MaxConnections: 3, MaxLifetime: 2 * time.Second, IdleTimeout: time.Second}, false, 3},
		"per call":           {Options{Mode: ModePerCall, MaxConnections: 3}, false, 3},
		"in flight":          {Options{MaxExclusive: 3, MaxInFlight: 2}, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, now, most := slowly()
				p := newFake(t, server).pool(t, c.options)
				var served atomic.Int64
				var callers sync.WaitGroup
				for range 12 {
					callers.Go(func() {
						for range 40 {
							ctx, cancel := context.WithTimeout(t.Context(), rand.N(10*time.Second))
							r := key(string(rune('a' + rand.IntN(4))))
							r.Exclusive = c.exclusive
							if l, err := p.Acquire(ctx, r); err == nil {
								_ = l.Client().Connect(ctx) // which the caller may leave
								time.Sleep(rand.N(3 * time.Second))
								if rand.IntN(2) == 0 {
									l.Discard()
								}
								l.Release()
								served.Add(1)
							} else {
								time.Sleep(time.Second)
							}
							cancel()
						}
					})
				}
				callers.Wait()
				if got := most.Load(); got > c.most {
					t.Errorf("%d sessions at once, want %d at most", got, c.most)
				}
				if served.Load() < 50 {
					t.Errorf("%d calls were served", served.Load())
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := p.Stat(); got.Queued != 0 || got.InFlight != 0 || got.Closing != 0 || int64(got.Connections) != now.Load() {
					t.Errorf("afterwards %+v, %d sessions", got, now.Load())
				}
			})
		})
	}
}

func TestConnectionsThatAreReplacedByAgeDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, most := slowly()
		p := newFake(t, server).pool(t, Options{MaxLifetime: time.Second})
		p.Start()
		time.Sleep(time.Minute)
		if got := most.Load(); got != 2 {
			t.Errorf("%d sessions at once, want one and the one it takes the place of", got)
		}
		if n := server.Count("initialize"); n < 10 {
			t.Errorf("%d sessions in a minute", n)
		}
	})
}

func TestExclusiveConnectionsOfOneTargetLearnFromEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := legacy()
		var well atomic.Bool
		server.Status = func(method string, n int) *mcptest.Reply {
			if method == "initialize" && n > 1 && !well.Load() {
				return &mcptest.Reply{Status: 503} // one session at a time
			}
			return nil
		}
		f := newFake(t, server)
		p := f.pool(t, Options{Reconnect: mcpclient.ReconnectOptions{Interval: 5 * time.Second}})
		p.Start()
		usual := connected(t, p, Request{})
		defer usual.Release()
		attempt := func() error {
			l, err := p.Acquire(t.Context(), profile("all"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			defer l.Discard()
			return l.Client().Connect(t.Context())
		}
		for range 60 {
			_ = wantKind(t, attempt(), mcpclient.KindUnavailable)
			time.Sleep(time.Second)
		}
		// three that find out, then after 5, 10, 20, 40 s and so on
		if n := server.Count("initialize") - 1; n > breakAfter+4 {
			t.Errorf("%d attempts in a minute", n)
		}
		if e := wantKind(t, attempt(), mcpclient.KindUnavailable); e.RetryAfter <= 0 || p.Stat().Breaker != BreakerOpen {
			t.Errorf("refused with %+v, the breaker is %v", e, p.Stat().Breaker)
		}
		if got := p.Status().State; got != StateReady {
			t.Errorf("state %v, although other calls are served", got)
		}
		if err := usual.Client().Connect(t.Context()); err != nil {
			t.Error(err)
		}
		well.Store(true)
		time.Sleep(time.Minute)
		if err := attempt(); err != nil || p.Stat().Breaker != BreakerClosed {
			t.Errorf("once the server is well: %v, the breaker is %v", err, p.Stat().Breaker)
		}
	})
}

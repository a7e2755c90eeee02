package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

func TestWhatConnectionsCountedOutlivesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{Mode: ModePerKey, IdleTimeout: time.Minute})
		p.Start()
		for _, name := range []string{"a", "b"} {
			l := connected(t, p, key(name))
			for range 3 {
				if _, err := l.Client().ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if name == "a" {
				f.server.Disconnect()
				f.server.ExpireSessions()
				if _, err := l.Client().ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
				l.Client().EvictTools()
				if _, err := l.Client().ListTools(t.Context()); err != nil { // meets the forgotten session
					t.Fatal(err)
				}
			}
			l.Release()
		}
		want := p.Stat().Clients
		if want.Connects != 3 || want.Reconnects != 1 || want.CacheHits+want.CacheMisses != 8 || want.CacheMisses < 3 {
			t.Fatalf("counted %+v", want)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		got := p.Stat()
		if got.Connections != 0 || got.Evicted != 2 {
			t.Fatalf("%+v, want both connections to be gone", got)
		}
		if diff := cmp.Diff(want, got.Clients); diff != "" {
			t.Errorf("after their end (-want +got):\n%s", diff)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, p.Stat().Clients); diff != "" {
			t.Errorf("after Close (-want +got):\n%s", diff)
		}
	})
}

func TestTheBreakerIsShownAlsoWhereTheOnlyConnectionIsItsOwn(t *testing.T) {
	for name, o := range map[string]Options{"shared": {}, "per key": {Mode: ModePerKey}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, legacy())
				f.server.SetDown(true)
				o.Reconnect = mcpclient.ReconnectOptions{Interval: 10 * time.Second}
				p := f.pool(t, o)
				if got := p.Stat().Breaker; got != BreakerClosed {
					t.Errorf("at first it is %v", got)
				}
				p.Start()
				for i := range breakAfter {
					r := Request{}
					if o.Mode == ModePerKey {
						r = key(string(rune('a' + i)))
					}
					l, err := p.Acquire(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					if err := l.Client().Connect(t.Context()); err == nil {
						t.Fatal("a server that is down was reached")
					}
					l.Release()
				}
				synctest.Wait()
				if got := p.Stat().Breaker; got != BreakerOpen {
					t.Errorf("after failures it is %v", got)
				}
				f.server.SetDown(false)
				time.Sleep(12 * time.Second)
				if o.Mode == ModePerKey {
					if got := p.Stat().Breaker; got != BreakerHalfOpen {
						t.Errorf("when the next attempt is due it is %v", got)
					}
				}
				connected(t, p, key("z")).Release()
				synctest.Wait()
				if got := p.Stat().Breaker; got != BreakerClosed {
					t.Errorf("with a connection it is %v", got)
				}
			})
		})
	}
}

package targets

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// attended is what Attend returned.
type attended struct {
	next *Target
	err  error
}

func attend(ctx context.Context, t *Target, who Caller) <-chan attended {
	done := make(chan attended, 1)
	go func() {
		next, err := t.Attend(ctx, who)
		done <- attended{next, err}
	}()
	return done
}

func TestAttendKeepsTheConnectionOfAKeyFromBeingIdle(t *testing.T) {
	for isolation, want := range map[Isolation]int{PerKey: 1, PerCall: 0} {
		t.Run(string(isolation), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := conf("a=a")
				pool := &cfg.Targets["a"].Pool
				pool.Isolation, pool.MaxConnections, pool.IdleTimeout = isolation, 2, time.Minute
				l := newLab(t, map[string]*mcptest.Server{"a": fake()}, cfg)
				for _, key := range []string{"watched", "left alone"} {
					lease, err := l.target("a").Acquire(t.Context(), Caller{Affinity: key})
					if err != nil {
						t.Fatal(err)
					}
					if err := lease.Client().Connect(t.Context()); err != nil {
						t.Fatal(err)
					}
					lease.Release()
				}
				ctx, leave := context.WithCancel(t.Context())
				done := attend(ctx, l.target("a"), Caller{Affinity: "watched"})
				time.Sleep(10 * time.Minute)
				if got := l.target("a").Stat().Connections; got != want {
					t.Errorf("%d connections while the target is attended", got)
				}
				leave()
				if got := <-done; got != (attended{}) {
					t.Errorf("returned %v", got)
				}
				time.Sleep(10 * time.Minute)
				if got := l.target("a").Stat().Connections; got != 0 {
					t.Errorf("%d connections afterwards", got)
				}
			})
		})
	}
}

func TestAttendTellsHowATargetEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, map[string]*mcptest.Server{"a": fake(), "b": fake()}, conf("a=a"))
		l.Start()
		synctest.Wait()
		first := l.target("a")
		done := attend(t.Context(), first, Caller{})
		l.reload(conf("a=b"), Changes{Changed: []string{"a"}})
		if got := <-done; got.next == nil || got.next != l.target("a") || got.err != nil {
			t.Fatalf("replaced: %v", got)
		}
		second := l.target("a")
		done = attend(t.Context(), second, Caller{})
		l.reload(conf("b=b"), Changes{Added: []string{"b"}, Removed: []string{"a"}})
		unknown, ok := errors.AsType[*NotFoundError]((<-done).err)
		if !ok || unknown.Name != "a" {
			t.Errorf("removed: %v", unknown)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel() // what is known is told all the same
		if next, err := first.Attend(over, Caller{}); next != second || err != nil {
			t.Errorf("replaced before: %v, %v", next, err)
		}
		if next, err := second.Attend(over, Caller{}); next != nil || !errors.As(err, new(*NotFoundError)) {
			t.Errorf("removed before: %v, %v", next, err)
		}
		done = attend(t.Context(), l.target("b"), Caller{})
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.next != nil || !errors.Is(got.err, ErrClosed) {
			t.Errorf("closed: %v", got)
		}
	})
}

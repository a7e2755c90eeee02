package targets

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestWatchersSeeATargetBecomeReadyAndClose(t *testing.T) {
	srv := &mcptest.Server{}
	s := newSet(t, Deps{}, map[string]*config.Target{"web": httpTarget(mcptest.StartHTTP(t, srv))})
	states := make(chan mcpclient.State, 16)
	defer s.Watch(func(tg *Target) { states <- tg.Status().State })()
	s.Start()
	for state := range states {
		if state == mcpclient.StateReady {
			break
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(states) // nothing is told after Close
	var last mcpclient.State
	for last = range states {
	}
	if last != mcpclient.StateClosed {
		t.Errorf("last state = %v, want closed", last)
	}
}

func TestChangesAreCoalescedPerTargetAndNeverBlockTheTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watchers
		a, b := &Target{name: "a"}, &Target{name: "b"}
		w.changed(a) // nobody watches
		var told []string
		hold := make(chan struct{})
		stop := w.add(func(tg *Target) {
			told = append(told, tg.Name())
			<-hold
		})
		w.changed(a)
		synctest.Wait() // the watcher holds a
		for range 3 {
			w.changed(a)
			w.changed(b)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.close(ctx); err == nil || !strings.Contains(err.Error(), "watcher") {
			t.Errorf("close with a stuck watcher = %v", err)
		}
		close(hold)
		if err := w.close(t.Context()); err != nil {
			t.Error(err)
		}
		if !slices.Equal(told, []string{"a", "a", "b"}) {
			t.Errorf("told = %v", told)
		}
		stop()
		stop()
		w.changed(a)
		synctest.Wait()
		if len(told) != 3 {
			t.Errorf("a stopped watcher was called: %v", told)
		}
		if err := w.close(ctx); err != nil {
			t.Errorf("close with nothing to tell = %v", err)
		}
	})
}

func TestAWatcherMayStopItselfAndOthers(t *testing.T) {
	var w watchers
	calls := 0
	var stops []func()
	for range 2 {
		stops = append(stops, w.add(func(*Target) {
			calls++
			for _, stop := range stops {
				stop()
			}
		}))
	}
	w.changed(&Target{})
	if err := w.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if calls != 1 {
		t.Errorf("calls = %d, want 1", calls)
	}
}

package targets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// text is an event in short.
func (e Event) text() string {
	if e.Removed {
		return e.Target.name + " removed"
	}
	return e.Target.name + " " + e.Status.State.String()
}

// drain takes what waits for a watcher.
func drain(w *Watcher) (out []string) {
	for {
		e, ok, _ := w.take()
		if !ok {
			return out
		}
		out = append(out, e.text())
	}
}

// bare is a target that only a hub knows.
func bare(name string) *Target {
	return &Target{name: name, config: &config.Target{Lazy: true}, settled: make(chan struct{})}
}

func state(s pool.State) pool.Status { return pool.Status{State: s} }

func TestAWatcherSeesEveryStateOfATarget(t *testing.T) {
	srv := &mcptest.Server{}
	s := newSet(t, Deps{}, map[string]*config.Target{"web": httpTarget(mcptest.StartHTTP(t, srv))})
	w := s.Watch("")
	defer w.Close()
	if got := w.Initial(); len(got) != 1 || got[0].text() != "web connecting" {
		t.Errorf("initial = %v", got)
	}
	s.Start()
	var seen []string
	for {
		e, err := w.Next(t.Context())
		if errors.Is(err, ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.text())
		if e.Status.State == pool.StateReady {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"web ready", "web draining", "web closed"}; !slices.Equal(seen, want) {
		t.Errorf("seen = %q, want %q", seen, want)
	}
	late := s.Watch("")
	if got := late.Initial(); len(got) != 1 || got[0].text() != "web closed" {
		t.Errorf("after Close the targets are %v", got)
	}
	if _, err := late.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestEventsCarryTheStatusOfTheirMoment(t *testing.T) {
	h := newHub()
	a, b := bare("a"), bare("b")
	h.changed(a, state(pool.StateConnecting)) // nobody knows it yet
	all, one := h.watch(""), h.watch("b")
	h.show(a)
	h.show(b)
	for _, s := range []pool.State{pool.StateReady, pool.StateReconnecting, pool.StateReady} {
		h.changed(a, state(s))
		h.changed(b, state(s))
	}
	h.hide(a)
	h.changed(a, state(pool.StateClosed))
	want := []string{"a connecting", "b idle", "a ready", "b ready", "a reconnecting", "b reconnecting", "a ready", "b ready", "a removed"}
	if got := drain(all); !slices.Equal(got, want) {
		t.Errorf("all: %q", got)
	}
	if got := drain(one); !slices.Equal(got, []string{"b idle", "b ready", "b reconnecting", "b ready"}) {
		t.Errorf("b: %q", got)
	}
	one.Close()
	one.Close()
	h.changed(b, state(pool.StateSuspect))
	if got := drain(one); got != nil {
		t.Errorf("a closed watcher was told %q", got)
	}
	if _, err := one.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed watcher: %v", err)
	}
	all.Close()
	if len(h.watchers) != 0 {
		t.Errorf("%d names are still watched", len(h.watchers))
	}
}

func TestAReplacedTargetHasNothingMoreToTell(t *testing.T) {
	h := newHub()
	old, next := bare("a"), bare("a")
	h.show(old)
	w := h.watch("a")
	h.changed(next, state(pool.StateReady))
	h.show(next)
	h.changed(old, state(pool.StateClosed))
	h.hide(old)
	if got := drain(w); !slices.Equal(got, []string{"a ready"}) {
		t.Errorf("told %q", got)
	}
}

func TestASlowWatcherLosesOnlyWhatIsOutdated(t *testing.T) {
	h := newHub()
	targets := []*Target{bare("quiet"), bare("flapping")}
	for _, target := range targets {
		h.show(target)
	}
	slow, quick := h.watch(""), h.watch("")
	h.changed(targets[0], state(pool.StateConnecting))
	h.changed(targets[0], state(pool.StateReady))
	took := 0
	for range 10 * minQueue {
		h.changed(targets[1], state(pool.StateReady))
		h.changed(targets[1], state(pool.StateReconnecting))
		took += len(drain(quick))
	}
	if want := 2 + 20*minQueue; took != want {
		t.Errorf("a quick watcher got %d events, want %d", took, want)
	}
	if n := len(slow.queue); n != minQueue {
		t.Errorf("%d events wait", n)
	}
	got := drain(slow)
	if got[0] != "quiet ready" || got[len(got)-1] != "flapping reconnecting" {
		t.Errorf("kept %q … %q", got[0], got[len(got)-1])
	}
	if slow.queue != nil || len(slow.counts) != 0 {
		t.Errorf("an idle watcher holds %d, %d", len(slow.queue), len(slow.counts))
	}
}

func TestTargetsThatComeAndGoDoNotFillTheQueueOfASlowWatcher(t *testing.T) {
	h := newHub()
	var known []*Target
	for i := range 400 {
		known = append(known, bare(fmt.Sprint("known", i)))
		h.show(known[i])
	}
	w := h.watch("")
	for i := range 2000 {
		passing := bare(fmt.Sprint("passing", i))
		h.show(passing)
		h.changed(passing, state(pool.StateReady))
		h.hide(passing)
	}
	for _, target := range known {
		h.hide(target)
	}
	if n := len(w.queue); n > 401 {
		t.Errorf("%d events wait", n)
	}
	gone := map[string]bool{}
	for _, text := range drain(w) {
		gone[text] = true
	}
	for _, target := range known {
		if !gone[target.name+" removed"] {
			t.Fatalf("the end of %s was lost", target.name)
		}
	}
}

func TestNextWaitsAndLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		a := bare("a")
		h.show(a)
		w := h.watch("a")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, 2)
		go func() {
			defer close(got)
			for {
				e, err := w.Next(ctx)
				if err != nil {
					got <- err.Error()
					return
				}
				got <- e.text()
			}
		}()
		synctest.Wait()
		h.changed(a, state(pool.StateReady))
		if text := <-got; text != "a ready" {
			t.Error(text)
		}
		synctest.Wait()
		cancel()
		if text := <-got; text != context.Canceled.Error() {
			t.Error(text)
		}
	})
}

package targets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// Event is one change of a target: it came into another state, was added, was
// replaced by one with another configuration, or was removed.
type Event struct {
	Target  *Target
	Status  pool.Status // at that moment, not the newest
	Removed bool        // the target is no longer configured and has ended
}

// ErrClosed says that the set was closed.
var ErrClosed = errors.New("the targets are closed")

// minQueue is how many events wait for a watcher before older ones of a target
// make room for newer ones.
const minQueue = 256

// hub tells watchers of changes, in order. It never waits for one of them, so
// that it may be told by whoever holds a lock.
type hub struct {
	mu       sync.Mutex // protects the fields below and Target.told; taken after the locks of pools
	seq      uint64     // of the newest event
	live     map[string]*Target
	watchers map[string]map[*Watcher]struct{} // by the name watched, "" = all
	closed   bool
}

// told is what the hub knows of a target.
type told struct {
	status pool.Status
	born   uint64 // the event that made its name known
}

func newHub() *hub {
	return &hub{live: map[string]*Target{}, watchers: map[string]map[*Watcher]struct{}{}}
}

// changed is told by pools. Targets that are not shown yet, or no longer, have
// nothing to tell.
func (h *hub) changed(t *Target, s pool.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s = t.view(s)
	news := !same(s, t.told.status)
	t.told.status = s
	t.settle(s)
	if news && h.live[t.name] == t {
		h.tellLocked(Event{Target: t, Status: s})
	}
}

// same reports whether two statuses in a row say the same.
func same(a, b pool.Status) bool {
	return a.State == b.State && a.Server == b.Server && a.NextAttempt.Equal(b.NextAttempt) && (a.LastError == nil) == (b.LastError == nil)
}

// show makes t the target of its name.
func (h *hub) show(t *Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.told.born = h.seq + 1
	if old := h.live[t.name]; old != nil {
		t.told.born = old.told.born
	}
	h.live[t.name] = t
	h.tellLocked(Event{Target: t, Status: t.told.status})
}

// hide ends what show began, unless another target has the name by now.
func (h *hub) hide(t *Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[t.name] == t {
		delete(h.live, t.name)
		h.tellLocked(Event{Target: t, Status: t.told.status, Removed: true})
	}
}

func (h *hub) tellLocked(e Event) {
	h.seq++
	limit := max(minQueue, len(h.live))
	for _, name := range [...]string{e.Target.name, ""} {
		for w := range h.watchers[name] {
			w.push(queued{Event: e, seq: h.seq, born: e.Target.told.born}, limit)
		}
	}
}

func (h *hub) watch(name string) *Watcher {
	w := &Watcher{hub: h, name: name, wake: make(chan struct{}, 1), counts: map[string]int{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	w.seen, w.ended = h.seq, h.closed
	for _, known := range slices.Sorted(maps.Keys(h.live)) {
		if name == "" || name == known {
			t := h.live[known]
			w.initial = append(w.initial, Event{Target: t, Status: t.told.status})
		}
	}
	if !h.closed {
		if h.watchers[name] == nil {
			h.watchers[name] = map[*Watcher]struct{}{}
		}
		h.watchers[name][w] = struct{}{}
	}
	return w
}

func (h *hub) forget(w *Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers[w.name], w)
	if len(h.watchers[w.name]) == 0 {
		delete(h.watchers, w.name)
	}
}

// close ends all watchers once they have taken what they were told.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, of := range h.watchers {
		for w := range of {
			w.end()
		}
	}
	clear(h.watchers)
}

// Watcher is one reader of events. A slow one delays nobody: past a limit, 256
// events or the number of targets if that is larger, the older events of a
// target make room for its newer ones.
type Watcher struct {
	hub     *hub
	name    string
	initial []Event
	wake    chan struct{} // holds a token when there may be something to take

	mu     sync.Mutex // protects the fields below; taken after the hub's
	queue  []queued
	counts map[string]int // of queue, by target
	seen   uint64         // the newest event taken
	ended  bool
}

type queued struct {
	Event

	seq, born uint64
}

// Initial returns how the watched targets were when the watch began, sorted by
// name. The events of Next follow on it without a gap.
func (w *Watcher) Initial() []Event { return w.initial }

// Next waits for an event and returns it. Errors are ctx's, and ErrClosed after
// the last event of a set that was closed. It may be called from one goroutine
// at a time.
func (w *Watcher) Next(ctx context.Context) (Event, error) {
	for {
		if e, ok, ended := w.take(); ok {
			return e, nil
		} else if ended {
			return Event{}, ErrClosed
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the watch. Calling it again does nothing.
func (w *Watcher) Close() {
	w.hub.forget(w)
	w.end()
}

func (w *Watcher) take() (e Event, ok, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Event{}, false, w.ended
	}
	first := w.queue[0]
	w.seen = first.seq
	w.dropLocked(0)
	return first.Event, true, false
}

func (w *Watcher) push(q queued, limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, q)
	w.counts[q.Target.name]++
	for len(w.queue) > limit && w.collapseLocked() {
	}
	w.wakeUp()
}

// collapseLocked leaves out the oldest event that nobody will miss: a newer one
// of the same target follows, or the target came and went meanwhile.
func (w *Watcher) collapseLocked() bool {
	for i, q := range w.queue {
		if w.counts[q.Target.name] > 1 || q.Removed && q.born > w.seen {
			w.dropLocked(i)
			return true
		}
	}
	return false
}

func (w *Watcher) dropLocked(i int) {
	name := w.queue[i].Target.name
	if w.counts[name]--; w.counts[name] == 0 {
		delete(w.counts, name)
	}
	if i == 0 {
		w.queue[0] = queued{}
		w.queue = w.queue[1:]
	} else {
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	if len(w.queue) == 0 {
		w.queue = nil // a watcher holds nothing while it is idle
	}
}

func (w *Watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.wakeUp()
}

func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

package targets

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// watchers tells those who watch of changed targets, on a goroutine of its own
// that lives while there is something to tell, so that no client waits for a
// watcher.
type watchers struct {
	work sync.WaitGroup

	mu      sync.Mutex // protects the fields below; not held while a watcher runs
	list    []*watcher
	dirty   []*Target // changed and not told yet, each once
	telling bool
}

type watcher struct{ f func(*Target) }

func (w *watchers) add(f func(*Target)) (stop func()) {
	entry := &watcher{f}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, entry)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = slices.DeleteFunc(w.list, func(o *watcher) bool { return o == entry })
	}
}

// changed is called by the targets' clients and does not block.
func (w *watchers) changed(t *Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) == 0 || slices.Contains(w.dirty, t) {
		return
	}
	w.dirty = append(w.dirty, t)
	if !w.telling {
		w.telling = true
		w.work.Go(w.tell)
	}
}

func (w *watchers) tell() {
	for {
		w.mu.Lock()
		if len(w.dirty) == 0 {
			w.telling = false
			w.mu.Unlock()
			return
		}
		t := w.dirty[0]
		w.dirty = w.dirty[1:]
		list := slices.Clone(w.list)
		w.mu.Unlock()
		for _, entry := range list {
			if w.watching(entry) {
				entry.f(t)
			}
		}
	}
}

func (w *watchers) watching(entry *watcher) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.list, entry)
}

// close waits until everything is told. It must come after the clients' end.
func (w *watchers) close(ctx context.Context) error {
	w.mu.Lock()
	telling := w.telling
	w.mu.Unlock()
	if !telling {
		w.work.Wait() // at most the last steps of a goroutine that is ending
		return nil
	}
	done := make(chan struct{})
	go func() { // ends with the last watcher's call
		w.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a watcher of target states does not return: %w", ctx.Err())
	}
}

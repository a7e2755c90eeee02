package targets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

// Changes are the names of the targets that a reload concerned, sorted.
type Changes struct {
	Added, Changed, Removed []string
}

// replacement is a target that gets ready to take the place of another one.
type replacement struct {
	target *Target
	ctx    context.Context //nolint:containedctx // of the goroutine that waits for the target
	cancel context.CancelFunc
}

// Reload goes over to the targets of another valid configuration. It does no
// I/O. If any target cannot be built nothing changes, and the error names them
// all. Targets with the same settings stay as they are, with their connections.
// Added ones are there at once, removed ones are not, and finish their calls in
// the background. A changed one goes on serving until its replacement is
// connected or has tried to, or its timeouts.initialize has passed; one that
// connects at the first call is replaced at once. The error is ErrClosed after
// Close.
func (s *Set) Reload(cfg *config.Config) (Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Changes{}, ErrClosed
	}
	p, err := s.planLocked(cfg)
	if err != nil {
		for _, t := range p.built {
			_ = t.close(s.lifetime) // it was never used
		}
		return Changes{}, err
	}
	s.applyLocked(p)
	return p.changes, nil
}

// plan is what a reload does once everything is known to work.
type plan struct {
	changes Changes
	built   map[string]*Target
	kept    []string // what serves now is right, what was to replace it is not
}

func (s *Set) planLocked(cfg *config.Config) (plan, error) {
	live := s.current.Load().byName
	b := &builder{deps: s.deps, info: cfg.ClientInfo, gate: s.eager, changed: s.hub.changed}
	p := plan{built: map[string]*Target{}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Targets)) {
		c, now, wanted := cfg.Targets[name], live[name], live[name]
		if r := s.pending[name]; r != nil {
			wanted = r.target
		}
		if wanted.same(c, cfg.ClientInfo) {
			continue
		}
		switch {
		case now == nil:
			p.changes.Added = append(p.changes.Added, name)
		default:
			p.changes.Changed = append(p.changes.Changed, name)
		}
		if now.same(c, cfg.ClientInfo) {
			p.kept = append(p.kept, name)
			continue
		}
		t, err := b.build(name, c)
		if err != nil {
			errs = append(errs, fmt.Errorf("target %s: %w", name, err))
			continue
		}
		p.built[name] = t
	}
	for _, name := range s.current.Load().names {
		if cfg.Targets[name] == nil {
			p.changes.Removed = append(p.changes.Removed, name)
		}
	}
	return p, errors.Join(errs...)
}

func (s *Set) applyLocked(p plan) {
	live := s.current.Load().byName
	next := maps.Clone(live)
	if next == nil {
		next = map[string]*Target{}
	}
	for _, name := range slices.Concat(p.changes.Removed, p.changes.Changed) {
		s.supersedeLocked(name)
	}
	for _, name := range p.changes.Removed {
		delete(next, name)
	}
	var later, now []*Target
	for _, name := range slices.Sorted(maps.Keys(p.built)) {
		t := p.built[name]
		if live[name] != nil && s.started && t.connectsAtStart() {
			later = append(later, t)
			continue
		}
		now = append(now, t)
		next[name] = t
	}
	s.current.Store(newSnapshot(next))
	for _, t := range now {
		s.tookOverLocked(t, live[t.name])
		if s.started {
			t.pool.Start()
		}
	}
	for _, t := range later {
		s.replaceLaterLocked(t)
	}
	for _, name := range p.changes.Removed {
		live[name].feeds.end(&NotFoundError{Name: name, Known: s.current.Load().names}, nil)
		s.retireLocked(live[name])
	}
}

// tookOverLocked tells of a target that is in the snapshot by now, and sends
// the callers of the one before it there.
func (s *Set) tookOverLocked(t, old *Target) {
	s.hub.show(t)
	if old != nil {
		old.next.Store(t)
		old.feeds.end(nil, t)
		s.retireLocked(old)
	}
}

// replaceLaterLocked starts a target and lets it take over when it is settled.
func (s *Set) replaceLaterLocked(t *Target) {
	r := &replacement{target: t}
	r.ctx, r.cancel = context.WithCancel(s.lifetime)
	s.pending[t.name] = r
	t.want() // behind the eager starts of others its callers would be kept from it
	t.pool.Start()
	s.work.Go(func() {
		defer r.cancel()
		r.wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pending[t.name] != r { // a newer configuration, or the end
			s.retireLocked(t)
			return
		}
		delete(s.pending, t.name)
		live := s.current.Load().byName
		next := maps.Clone(live)
		next[t.name] = t
		s.current.Store(newSnapshot(next))
		s.tookOverLocked(t, live[t.name])
	})
}

// maxSettle is for how long a target may try to connect before it takes over all
// the same, where timeouts.initialize sets no limit.
const maxSettle = time.Minute

// wait returns when the target has tried to connect, when it has taken as long
// for that as it may, or when it is no longer wanted.
func (r *replacement) wait() {
	limit := r.target.config.Timeouts.Initialize
	if limit == 0 {
		limit = maxSettle
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-r.target.settled:
	case <-late.C:
	case <-r.ctx.Done():
	}
}

// supersedeLocked gives up a replacement that has not taken over yet.
func (s *Set) supersedeLocked(name string) {
	if r := s.pending[name]; r != nil {
		delete(s.pending, name)
		r.cancel()
	}
}

// retireLocked ends a target that is not in the snapshot any more, in the
// background.
func (s *Set) retireLocked(t *Target) {
	s.work.Go(func() {
		if err := t.close(s.lifetime); err != nil { // its calls have limits of their own
			s.deps.Logger.WarnContext(s.lifetime, "a target that is no longer configured did not end properly", "target", t.name, "error", err)
		}
		s.hub.hide(t)
	})
}

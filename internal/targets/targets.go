// Package targets is the set of MCP servers behind the bridge, by name.
//
// New turns the configuration into one pool per target, without I/O; Start
// connects the eager ones in the background; Close ends all of them at once.
//
// File map: targets.go the set; target.go one target; build.go and options.go
// configuration to transport and client; environ.go what a child process is
// given; serverlog.go what servers log; watch.go state changes.
package targets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// maxEagerConnects is how many targets connect at the same time at start: a
// hundred package runners starting together would starve each other.
const maxEagerConnects = 8

// Deps is what every target shares. The zero value works.
type Deps struct {
	// Logger receives what happens to targets; nil discards.
	Logger *slog.Logger
	// Interceptors, Meta and Headers are handed to every client.
	Interceptors []mcpclient.Interceptor
	Meta         mcpclient.MetaSupplier
	Headers      mcpclient.HeaderSupplier
	// Version is told to servers when the configuration names none; "" = that
	// of the module.
	Version string
	// Environ is what child processes inherit from, as NAME=VALUE; nil = the
	// environment of this process.
	Environ []string
	// Supervisor is the start of the command line of transport.Supervise in
	// this program; empty = child processes are not supervised.
	Supervisor []string
}

// ErrRequired says that a target must be named because several are configured.
var ErrRequired = errors.New("the request names no target and several are configured")

// NotFoundError says that no target of that name is configured.
type NotFoundError struct {
	Name  string
	Known []string // the configured names, sorted
}

// Error names the target and some of those that exist.
func (e *NotFoundError) Error() string {
	switch {
	case len(e.Known) == 0:
		return "no target is configured; add one to the targets of the configuration"
	case len(e.Name) > 64: // no configured name is longer
		return fmt.Sprintf("target %q… is not configured; use %s", e.Name[:64], choices(e.Known))
	}
	return fmt.Sprintf("target %q is not configured; use %s", e.Name, choices(e.Known))
}

// choices lists names for an error, not too many of them.
func choices(names []string) string {
	const most = 10
	if len(names) == 1 {
		return names[0]
	}
	if len(names) > most {
		return fmt.Sprintf("one of %s and %d more (ListTargets has all)", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "one of " + strings.Join(names, ", ")
}

// Set is all configured targets. All methods may be called from many
// goroutines at once.
type Set struct {
	byName map[string]*Target
	sorted []*Target
	names  []string
	watch  watchers
}

// New builds the targets of a valid configuration. It does no I/O. The error
// names every target that cannot be built.
func New(cfg *config.Config, d Deps) (*Set, error) {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{byName: make(map[string]*Target, len(cfg.Targets)), names: slices.Sorted(maps.Keys(cfg.Targets))}
	b := &builder{deps: d, info: cfg.ClientInfo, gate: make(chan struct{}, maxEagerConnects), changed: s.watch.changed}
	var errs []error
	for _, name := range s.names {
		t, err := b.build(name, cfg.Targets[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("target %s: %w", name, err))
			continue
		}
		s.byName[name] = t
		s.sorted = append(s.sorted, t)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Start begins connecting all targets that are not lazy, in the background.
func (s *Set) Start() {
	for _, t := range s.sorted {
		t.pool.Start()
	}
}

// Get returns a target by name; "" is the only one configured. Errors are
// ErrRequired, wrapped, and *NotFoundError.
func (s *Set) Get(name string) (*Target, error) {
	if t := s.byName[name]; t != nil {
		return t, nil
	}
	switch {
	case name != "" || len(s.sorted) == 0:
		return nil, &NotFoundError{Name: name, Known: s.names}
	case len(s.sorted) > 1:
		return nil, fmt.Errorf("%w; name %s", ErrRequired, choices(s.names))
	}
	return s.sorted[0], nil
}

// All returns the targets sorted by name. The caller may keep and change the
// slice.
func (s *Set) All() []*Target { return slices.Clone(s.sorted) }

// Watch calls f after each change of a target's state, from one goroutine at a
// time. Changes of one target that happen while f runs are told once; f reads
// [Target.Status] for the newest. After stop no new call begins. f may block,
// but holds up the other watchers.
func (s *Set) Watch(f func(*Target)) (stop func()) { return s.watch.add(f) }

// Close ends all targets at the same time: it waits for calls in flight until
// ctx ends, then ends them too. Watchers are told of the last changes before
// it returns.
func (s *Set) Close(ctx context.Context) error {
	errs := make([]error, len(s.sorted))
	var wg sync.WaitGroup
	for i, t := range s.sorted {
		wg.Go(func() {
			if err := t.pool.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("close target %s: %w", t.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, s.watch.close(ctx))...)
}

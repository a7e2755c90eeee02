// Package targets is the set of MCP servers behind the bridge, by name.
//
// New turns the configuration into one pool per target, without I/O; Start
// connects the eager ones in the background; Reload goes over to another
// configuration while calls go on; Close ends all of them at once.
//
// File map: targets.go the set; reload.go another configuration; target.go one
// target; isolation.go who shares connections; build.go and options.go
// configuration to transport and clients; gate.go when a connection may be
// attempted; environ.go what a child process is given; serverlog.go what servers
// log; watch.go changes of targets; attend.go a target under a watch;
// subscribe.go what a watcher of a server's changes gets, subscribe_feed.go what
// watchers share, subscribe_update.go who is told that a resource changed,
// subscribe_run.go what is kept open for them.
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
	"sync/atomic"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// maxEagerConnects is how many targets connect at the same time at start: a
// hundred package runners starting together would starve each other.
const maxEagerConnects = 8

// Deps is what every target shares. The zero value works.
type Deps struct {
	// Logger receives what happens to targets; nil discards.
	Logger *slog.Logger
	// Instruments makes what watches one target; nil = nothing does. It is called
	// when a target is built, which may be while another one of its name serves.
	Instruments func(name string, c *config.Target) Instruments
	// Version is told to servers when the configuration names none; "" = that
	// of the module.
	Version string
	// Environ is what child processes inherit from, as NAME=VALUE; nil = the
	// environment of this process.
	Environ []string
	// Supervisor is the start of the command line of transport.Supervise in
	// this program; empty = child processes are not supervised.
	Supervisor []string

	// transport replaces how servers are reached, for tests; nil = as configured.
	transport func(name string, c *config.Target) (transport.Transport, error)
}

// Instruments watch a target, and add to what its clients send. The zero value
// does nothing.
type Instruments struct {
	// All but OnQueue are handed to every client; see [mcpclient.Options].
	Interceptors []mcpclient.Interceptor
	Meta         mcpclient.MetaSupplier
	Headers      mcpclient.HeaderSupplier
	OnConnect    func(context.Context, mcpclient.ConnectAttempt) (context.Context, func(*mcpclient.Server, error))
	OnWait       func(context.Context) func(attempt context.Context, err error)
	OnRequest    func(context.Context, mcpclient.InboundRequest) (context.Context, func(error))
	OnList       func(method string, list *mcpclient.List)
	OnSessionEnd func(mcpclient.SessionEnd)
	// OnQueue is handed to the pool; see [pool.Options].OnWait.
	OnQueue func(context.Context) func(error)
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
	deps    Deps
	eager   chan struct{}
	hub     *hub
	current atomic.Pointer[snapshot]

	lifetime context.Context //nolint:containedctx // ends when Close gives up waiting
	end      context.CancelFunc
	work     sync.WaitGroup // replacements that wait, targets that drain

	mu      sync.Mutex // protects the fields below, and changes of current
	pending map[string]*replacement
	started bool
	closed  bool
}

// snapshot is the targets at one moment. It is not changed.
type snapshot struct {
	byName map[string]*Target
	sorted []*Target
	names  []string
}

func newSnapshot(byName map[string]*Target) *snapshot {
	s := &snapshot{byName: byName, names: slices.Sorted(maps.Keys(byName))}
	for _, name := range s.names {
		s.sorted = append(s.sorted, byName[name])
	}
	return s
}

// New builds the targets of a valid configuration. It does no I/O. The error
// names every target that cannot be built. The set must be closed.
func New(cfg *config.Config, d Deps) (*Set, error) {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{
		deps: d, eager: make(chan struct{}, maxEagerConnects),
		hub: newHub(), pending: map[string]*replacement{},
	}
	s.lifetime, s.end = context.WithCancel(context.Background())
	s.current.Store(newSnapshot(nil))
	if _, err := s.Reload(cfg); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// Start begins connecting all targets that are not lazy, in the background.
func (s *Set) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	for _, t := range s.current.Load().sorted {
		t.pool.Start()
	}
}

// Get returns a target by name; "" is the only one configured. Errors are
// ErrRequired, wrapped, and *NotFoundError.
func (s *Set) Get(name string) (*Target, error) {
	now := s.current.Load()
	if t := now.byName[name]; t != nil {
		return t, nil
	}
	switch {
	case name != "" || len(now.sorted) == 0:
		return nil, &NotFoundError{Name: name, Known: now.names}
	case len(now.sorted) > 1:
		return nil, fmt.Errorf("%w; name %s", ErrRequired, choices(now.names))
	}
	return now.sorted[0], nil
}

// All returns the targets sorted by name. The caller may keep and change the
// slice.
func (s *Set) All() []*Target { return slices.Clone(s.current.Load().sorted) }

// Watch begins to watch the target of a name, which need not exist, or all
// targets for "". The watcher must be closed.
func (s *Set) Watch(name string) *Watcher { return s.hub.watch(name) }

// Close ends all targets at the same time: it waits for calls in flight until
// ctx ends, then ends them too. What watchers were told of it they can still
// take afterwards.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for name := range s.pending {
		s.supersedeLocked(name)
	}
	all := s.current.Load().sorted
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, t := range all {
		closing.Go(func() {
			if err := t.close(ctx); err != nil {
				errs[i] = fmt.Errorf("close target %s: %w", t.name, err)
			}
		})
	}
	closing.Wait()
	s.work.Wait()
	s.end()
	s.hub.close()
	return errors.Join(errs...)
}

package targets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mcpbridge/mcpbridge/internal/balance"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// Target is one configured MCP server. A change of its configuration makes a
// new one. All methods may be called from many goroutines at once.
type Target struct {
	name      string
	config    *config.Target // not changed
	info      config.ClientInfo
	transport string
	pool      *pool.Pool
	replicas  *balance.Balancer // nil = one server
	redact    func(string) string
	children  children
	next      atomic.Pointer[Target] // what it was replaced by
	feeds     feeds

	told     told          // belongs to the hub
	settled  chan struct{} // closed once the first attempt to connect is over
	settling sync.Once
	wanted   chan struct{} // closed once a call needs the target
	wanting  sync.Once
}

// Name returns the configured name.
func (t *Target) Name() string { return t.name }

// close ends the target; see [pool.Pool.Close].
func (t *Target) close(ctx context.Context) error {
	t.feeds.end(ErrClosed, nil)
	err := t.pool.Close(ctx)
	t.feeds.work.Wait()
	if t.replicas != nil {
		err = errors.Join(err, t.replicas.Close(ctx))
	}
	return err
}

// Isolation says which callers share connections.
func (t *Target) Isolation() Isolation { return t.config.Pool.Isolation }

// Acquire leases a client for one call of a caller; see [pool.Pool.Acquire]. A
// call that meets a target at the moment of its replacement gets the new one.
// Further errors are ErrAffinityRequired and ErrCallerRequired.
func (t *Target) Acquire(ctx context.Context, who Caller) (*pool.Lease, error) {
	return t.acquire(ctx, who, func(key pool.Key) pool.Request { return pool.Request{Key: key} })
}

// Status returns the state of the connections.
func (t *Target) Status() pool.Status { return t.view(t.pool.Status()) }

// view shows a target that connects by itself as connecting from the start:
// idle is one that waits for a call.
func (t *Target) view(s pool.Status) pool.Status {
	if s.State == pool.StateIdle && t.connectsAtStart() {
		s.State = pool.StateConnecting
	}
	return s
}

// Stat returns the figures of the pool.
func (t *Target) Stat() pool.Stat { return t.pool.Stat() }

// TransportName is how the target is reached: "streamable_http", which may have
// fallen back to HTTP+SSE, "sse", "stdio", or for a socket "unix" or "tcp".
func (t *Target) TransportName() string { return t.transport }

// want has the target connect without waiting for its turn.
func (t *Target) want() { t.wanting.Do(func() { close(t.wanted) }) }

// StderrTail returns the last stderr lines of the newest child process that has
// written any, also after its end, without the target's secrets; nil for
// targets without one, and for those that keep callers apart: what a process
// writes may be about the caller whose it is.
func (t *Target) StderrTail() []string {
	if t.Isolation() != Shared {
		return nil
	}
	lines := t.children.tail()
	if len(lines) == 0 {
		return nil
	}
	return strings.Split(t.redact(strings.Join(lines, "\n")), "\n") // a secret may have several lines
}

// Redact replaces the target's configured header and environment values in
// text that came from its server.
func (t *Target) Redact(text string) string { return t.redact(text) }

// same reports whether the target is what a configuration asks for.
func (t *Target) same(c *config.Target, info config.ClientInfo) bool {
	return t != nil && t.info == info && t.config.Equal(c)
}

// connectsAtStart says that it is known before the first call whether the
// target can be reached.
func (t *Target) connectsAtStart() bool { return connectsAtStart(t.config) }

func connectsAtStart(c *config.Target) bool {
	return !c.Lazy && c.Pool.Isolation == Shared
}

// settle notes the end of the first attempt to connect.
func (t *Target) settle(s pool.Status) {
	switch s.State {
	case pool.StateIdle, pool.StateConnecting:
		if s.LastError == nil {
			return
		}
	case pool.StateReady, pool.StateSuspect, pool.StateReconnecting, pool.StateDraining, pool.StateClosed:
	}
	t.settling.Do(func() { close(t.settled) })
}

// keptChildren is how many child processes are asked for their stderr.
const keptChildren = 4

// children are the newest child processes of a target.
type children struct {
	mu   sync.Mutex
	list []*transport.Command // newest last, at most keptChildren
}

func (c *children) add(tr transport.Transport) {
	child, ok := tr.(*transport.Command)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == keptChildren {
		c.list = append(c.list[:0], c.list[1:]...)
	}
	c.list = append(c.list, child)
}

func (c *children) tail() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, child := range slices.Backward(c.list) {
		if lines := child.StderrTail(); len(lines) > 0 {
			return lines
		}
	}
	return nil
}

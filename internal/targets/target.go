package targets

import (
	"context"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// Target is one configured MCP server. All methods may be called from many
// goroutines at once.
type Target struct {
	name      string
	transport transport.Transport
	pool      *pool.Pool
}

// Name returns the configured name.
func (t *Target) Name() string { return t.name }

// Acquire leases the target's client for one call; see [pool.Pool.Acquire].
func (t *Target) Acquire(ctx context.Context) (*pool.Lease, error) { return t.pool.Acquire(ctx) }

// Status returns the state of the connection.
func (t *Target) Status() mcpclient.Status { return t.pool.Status() }

// Stat returns the figures of the pool.
func (t *Target) Stat() pool.Stat { return t.pool.Stat() }

// TransportName is "stdio" or "streamable_http".
func (t *Target) TransportName() string { return t.transport.Name() }

// StderrTail returns the last stderr lines of the newest child process, also
// after its end; nil for targets without one.
func (t *Target) StderrTail() []string {
	if c, ok := t.transport.(*transport.Command); ok {
		return c.StderrTail()
	}
	return nil
}

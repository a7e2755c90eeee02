package targets

import (
	"context"
	"strings"

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
	redact    func(string) string
}

// Name returns the configured name.
func (t *Target) Name() string { return t.name }

// Acquire leases the target's client for one call; see [pool.Pool.Acquire].
func (t *Target) Acquire(ctx context.Context) (*pool.Lease, error) { return t.pool.Acquire(ctx) }

// Status returns the state of the connection.
func (t *Target) Status() mcpclient.Status { return t.pool.Status() }

// Stat returns the figures of the pool.
func (t *Target) Stat() pool.Stat { return t.pool.Stat() }

// TransportName is how the target is reached: "streamable_http", which may have
// fallen back to HTTP+SSE, "sse", "stdio", or for a socket "unix" or "tcp".
func (t *Target) TransportName() string { return t.transport.Name() }

// StderrTail returns the last stderr lines of the newest child process, also
// after its end, without the target's secrets; nil for targets without one.
func (t *Target) StderrTail() []string {
	c, ok := t.transport.(*transport.Command)
	if !ok {
		return nil
	}
	lines := c.StderrTail()
	if len(lines) == 0 {
		return nil
	}
	return strings.Split(t.redact(strings.Join(lines, "\n")), "\n") // a secret may have several lines
}

// Redact replaces the target's configured header and environment values in
// text that came from its server.
func (t *Target) Redact(text string) string { return t.redact(text) }

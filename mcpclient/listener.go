package mcpclient

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Listener watches a client. Nil functions are not called. All are called on
// the goroutine of what they watch, so a slow one slows that down; a panic is
// logged and has no other effect, and the remaining listeners still run.
type Listener struct {
	// Before is called once per operation (not per page or attempt), before
	// `_meta` is built. The operations are named by their MCP method:
	// initialize, server/discover, ping, tools/call, the lists,
	// resources/read, resources/subscribe, resources/unsubscribe,
	// subscriptions/listen, prompts/get, completion/complete, tasks/*.
	Before func(ctx context.Context, op Operation)
	// After is called when an operation was answered, also when the answer is a
	// tool's own failure. Exactly one of After and Error follows each Before.
	// result is nil for lists and subscriptions.
	After func(ctx context.Context, op Operation, result *Result)
	// Error is called when an operation failed.
	Error func(ctx context.Context, op Operation, err error)
	// Notification is called for every notification of the server.
	Notification func(ctx context.Context, n Notification)
	// Request is called for every request of a legacy server, such as ping and
	// roots/list.
	Request func(ctx context.Context, method string, params jsontext.Value)
	// RootsChanged is called by [Client.SetRoots].
	RootsChanged func(roots []Root)
	// Reconnected is called when a connection replaced an earlier one.
	Reconnected func(s Status)
}

// Operation names what a [Listener] watches.
type Operation struct {
	// Method is the MCP method; Name the tool or prompt name, or the URI.
	Method, Name string
	// Probe is true for the server/discover that finds out the era.
	Probe bool
}

// listeners is the part of a client that calls them.
func (c *Client) before(ctx context.Context, op Operation) {
	for i := range c.opts.Listeners {
		if f := c.opts.Listeners[i].Before; f != nil {
			c.guard("listener", func() { f(ctx, op) })
		}
	}
}

// over tells listeners how an operation ended.
func (c *Client) over(ctx context.Context, op Operation, result *Result, err error) {
	for i := range c.opts.Listeners {
		l := &c.opts.Listeners[i]
		switch {
		case err != nil && l.Error != nil:
			c.guard("listener", func() { l.Error(ctx, op, err) })
		case err == nil && l.After != nil:
			c.guard("listener", func() { l.After(ctx, op, result) })
		}
	}
}

// watched runs one operation under the listeners.
func watched[T any](ctx context.Context, c *Client, op Operation, result func(T) *Result, run func() (T, error)) (T, error) {
	if len(c.opts.Listeners) == 0 {
		return run()
	}
	c.before(ctx, op)
	out, err := run()
	var r *Result
	if err == nil && result != nil {
		r = result(out)
	}
	c.over(ctx, op, r, err)
	return out, err
}

// itself is what listeners see of an operation whose outcome is a result.
func itself(r *Result) *Result { return r }

// guard runs foreign code; its panic is logged and goes no further.
func (c *Client) guard(what string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			ok = false
			c.log.Error("foreign code panicked", "what", what, "panic", r)
		}
	}()
	f()
	return true
}

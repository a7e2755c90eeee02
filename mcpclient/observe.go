package mcpclient

import (
	"context"
	"errors"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// ConnectAttempt is one attempt to connect, see [Options].OnConnect.
type ConnectAttempt struct {
	// Number counts the attempts since the last connection, from 1.
	Number int
	// Again is true when there was a connection before.
	Again bool
}

// InboundRequest is a request of a legacy server, see [Options].OnRequest.
type InboundRequest struct {
	Method string
	ID     jsonrpc.ID
	Params jsontext.Value // nil = none
	// ProtocolVersion is what the connection speaks.
	ProtocolVersion string
}

// Meta returns the members of params._meta, without those that are null.
func (r *InboundRequest) Meta() *Meta {
	var meta Meta
	if object := lookup(r.Params, []string{"_meta"}); object.Kind() == '{' {
		_ = meta.setObject(object) // what was read before an error stays
	}
	return &meta
}

// Trail ties together the requests of one operation: its attempts, the rounds
// of its questions, the polls of its task. Interceptors keep in it what one of
// them wants to know of an earlier one. The zero value is empty. It may be used
// from many goroutines at once.
type Trail struct {
	mu    sync.Mutex // guards notes
	notes []note
}

type note struct{ key, value any }

// LoadOrStore returns what is kept under key, and keeps value if there is
// nothing. Keys are types of the interceptor's own, as those of a
// [context.Context].
func (t *Trail) LoadOrStore(key, value any) (kept any, loaded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.notes {
		if n.key == key {
			return n.value, true
		}
	}
	t.notes = append(t.notes, note{key, value})
	return value, false
}

// newTrail returns the trail of a new operation, nil when nobody would use it.
func (c *Client) newTrail() *Trail {
	if len(c.opts.Interceptors) == 0 {
		return nil
	}
	return new(Trail)
}

// observeConnect tells OnConnect of an attempt that begins now; its context is
// what those who wait for it are told.
func (c *Client) observeConnect(ctx context.Context, a *attempt) (inside context.Context, done func(*session, error)) {
	observe := c.opts.OnConnect
	if observe == nil {
		return ctx, func(*session, error) {}
	}
	c.mu.Lock()
	about := ConnectAttempt{Number: c.failures + 1, Again: c.status.Connects > 0}
	c.mu.Unlock()
	inside, tell := observe(ctx, about)
	c.mu.Lock()
	a.ctx = inside
	c.mu.Unlock()
	return inside, func(s *session, err error) {
		if s == nil {
			tell(nil, err)
			return
		}
		tell(s.server, nil)
	}
}

// observeRequest tells OnRequest of a question that is about to be answered, and
// gives it its context.
func (c *Client) observeRequest(q *question) (done func(error)) {
	observe := c.opts.OnRequest
	if observe == nil {
		return func(error) {}
	}
	r := InboundRequest{Method: q.method, ID: q.id, Params: q.params, ProtocolVersion: q.version}
	var tell func(error)
	q.ctx, tell = observe(q.ctx, r)
	return func(err error) {
		if errors.Is(err, errCallEnds) {
			err = context.Canceled
		}
		tell(err)
	}
}

// await waits for the end of a connection attempt, and tells OnWait.
func (c *Client) await(ctx context.Context, a *attempt) (err error) {
	if observe := c.opts.OnWait; observe != nil {
		done := observe(ctx)
		defer func() {
			c.mu.Lock()
			attempt := a.ctx
			c.mu.Unlock()
			done(attempt, err)
		}()
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return contextError(ctx, "the connection was not ready before")
	}
}

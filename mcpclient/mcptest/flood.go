package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// Flood sends n notifications on the request's own stream before h answers
// (nil = the built-in handler).
func Flood(method string, n int, params any, h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		for range n {
			r.Notify(method, params)
		}
		return run(ctx, h, r)
	}
}

// FloodProgress reports n increasing steps before h answers.
func FloodProgress(n int, h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		for i := range n {
			r.Progress(float64(i+1), float64(n), "")
		}
		return run(ctx, h, r)
	}
}

// LateProgress reports progress right behind the answer of h.
func LateProgress(h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		if token := r.Meta("progressToken"); token != nil {
			r.After(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(token) + `,"progress":1e6}}`)
		}
		return run(ctx, h, r)
	}
}

// ForeignProgress reports progress under tokens that nobody gave: an unknown
// one, the request's own as another JSON type, null and none.
func ForeignProgress(h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		tokens := []string{`"nobody's"`, `null`, `{}`}
		if own := r.Meta("progressToken"); own != nil {
			other := quote(string(own)) // a number as a string
			if s, isString := unquote(own); isString {
				other = fmt.Sprint(len(s)) // a string as some number
			}
			tokens = append(tokens, other)
		}
		for _, token := range tokens {
			r.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`)
		}
		r.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`)
		return run(ctx, h, r)
	}
}

// Twice sends the answer of h, and the same once more.
func Twice(h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		result, err := run(ctx, h, r)
		if err == nil {
			r.After(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + string(r.conn.complete(r, result)) + `}`)
		}
		return result, err
	}
}

// Cursors are a NextCursor that gives these cursors in turn, for ever: one that
// repeats is a loop. Each is any JSON value; nil ends the list.
func Cursors(cursors ...any) func(method string, page int, next string) any {
	var n atomic.Int64
	return func(string, int, string) any { return cursors[int(n.Add(1)-1)%len(cursors)] }
}

// EndlessCursors are a NextCursor that never ends and never repeats.
func EndlessCursors() func(method string, page int, next string) any {
	var n atomic.Int64
	return func(string, int, string) any { return fmt.Sprint("cursor ", n.Add(1)) }
}

// AlwaysID is a ReplyID that gives every response the same id, any JSON; "" =
// none.
func AlwaysID(id string) func(json.RawMessage) json.RawMessage {
	return func(json.RawMessage) json.RawMessage {
		if id == "" {
			return nil
		}
		return json.RawMessage(id)
	}
}

// IDAsString is a ReplyID that turns numbers into strings.
func IDAsString(id json.RawMessage) json.RawMessage {
	if len(id) > 0 && id[0] != '"' {
		return json.RawMessage(quote(string(id)))
	}
	return id
}

// pingOften pings a legacy connection until it ends.
func (c *conn) pingOften() {
	ticker := time.NewTicker(c.s.PingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
		if _, err := c.ask(c.ctx, c.stream(), "ping", nil); err != nil && c.ctx.Err() == nil {
			c.s.violate("ping was answered with an error: %v", err)
		}
	}
}

package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// Handler answers one request. ctx ends when the client cancels the request,
// its connection ends or the server closes. The result is marshalled to JSON
// (a [Raw] is used verbatim; a [*Reply] is a whole HTTP answer); resultType and
// serverInfo are added to objects on modern connections when absent. An [*Error]
// becomes a JSON-RPC error, [ErrSilent] no answer at all, [ErrHangup] a broken
// connection, any other error -32603.
type Handler func(ctx context.Context, r *Request) (any, error)

// Raw is JSON, or anything else, to be sent verbatim.
type Raw string

// Reply is a whole HTTP answer. Over stdio its Body is one raw line.
type Reply struct {
	Status      int    // 0 = 200
	ContentType string // "" = none
	Header      http.Header
	Body        string
	Stall       bool // headers and body are sent, but the exchange never ends
}

// Error is a JSON-RPC error answer.
type Error struct {
	Code    int
	Message string
	Data    any
	// Status is the HTTP status; 0 = what the era's specification says.
	Status int
	// ID replaces the id: raw JSON; "" = the request's own, "-" = none.
	ID string
}

// Error writes code and message.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

type sentinel string

func (e sentinel) Error() string { return string(e) }

// Ways for a handler not to answer.
const (
	// ErrSilent leaves the request open for ever.
	ErrSilent = sentinel("no answer")
	// ErrHangup breaks the connection that carried the request.
	ErrHangup = sentinel("hang up")
)

// Request is one request or notification of the client.
type Request struct {
	Method string
	ID     json.RawMessage // nil for a notification
	Params json.RawMessage
	Raw    json.RawMessage
	Header http.Header // nil on stdio
	N      int         // nth message of this method, from 1
	Era    Era         // the rules it is served by
	// Version is the protocol version it is served by, "" before initialize.
	Version string

	server  *Server
	conn    *conn
	out     *events // where answers and notifications of this request go
	builtin Handler
	task    *legacyTask // what it goes on as; nil = nothing

	mu      sync.Mutex // protects the fields below
	cancel  context.CancelCauseFunc
	dropped bool // cancelled by the client: no answer
	after   [][]byte
}

// Default runs the handler that would have answered without the override.
func (r *Request) Default(ctx context.Context) (any, error) { return r.builtin(ctx, r) }

// Param returns one member of params; nil when it is absent.
func (r *Request) Param(name string) json.RawMessage { return member(r.Params, name) }

// Text returns one string member of params.
func (r *Request) Text(name string) string {
	s, _ := unquote(r.Param(name))
	return s
}

// Meta returns one member of params._meta; nil when it is absent.
func (r *Request) Meta(key string) json.RawMessage { return member(r.Param("_meta"), key) }

// SessionID is the legacy HTTP session the request belongs to, or "".
func (r *Request) SessionID() string { return r.conn.id }

// Notify sends a notification on the request's own stream (stdio: the only one).
func (r *Request) Notify(method string, params any) {
	r.out.send(notification(method, marshal(params)))
}

// Progress sends notifications/progress with the request's token; without a
// token it does nothing.
func (r *Request) Progress(progress, total float64, message string) {
	token := r.Meta("progressToken")
	if token == nil {
		return
	}
	params := map[string]any{"progressToken": token, "progress": progress}
	if total != 0 {
		params["total"] = total
	}
	if message != "" {
		params["message"] = message
	}
	r.Notify("notifications/progress", params)
}

// Send writes one raw message on the request's own stream.
func (r *Request) Send(raw string) { r.out.send([]byte(raw)) }

// After writes one raw message on the request's own stream right behind its
// answer.
func (r *Request) After(raw string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = append(r.after, []byte(raw))
}

func (r *Request) trailers() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.after
}

// Ask sends a legacy request to the client on the request's own stream and
// waits for the result; a JSON-RPC error comes back as [*Error]. In a task it
// waits for tasks/result, on whose stream it asks.
func (r *Request) Ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	if r.task != nil {
		return r.task.ask(ctx, method, params)
	}
	return r.conn.ask(ctx, r.out, method, params)
}

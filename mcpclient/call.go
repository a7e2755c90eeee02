package mcpclient

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Call is one attempt to send one request or notification, as interceptors,
// the [MetaSupplier] and the [HeaderSupplier] see it. They must not keep it
// after they return and must not change it.
type Call struct {
	// Method is the MCP method, such as "tools/call".
	Method string
	// Name is the tool or prompt name, or the resource URI, verbatim; "" when
	// the method has none.
	Name string
	// ID is the request id of this attempt; zero for a notification.
	ID jsonrpc.ID
	// Attempt counts from 1; a retry is a new request with a new ID.
	Attempt int
	// Era and ProtocolVersion are what the connection speaks, or what is being
	// probed while it is negotiated.
	Era             Era
	ProtocolVersion string
	// Transport is the transport's name: "streamable_http", "stdio", "memory".
	Transport string
	// Endpoint is the URL's host and port on HTTP, "" elsewhere.
	Endpoint string

	params  []byte      // members of params without braces and without _meta
	header  http.Header // Mcp-Param-* headers, encoded; nil = none
	options *CallOptions
	session *session
	token   jsonrpc.ID // its progress token; zero = none
	// assigned, when set, is told the request id before anything is sent, so
	// that what answers to it can be registered.
	assigned func(id jsonrpc.ID)
	// answered, when set, is called when the answer arrives, before anything
	// that follows it on the same stream.
	answered func()
}

// IsNotification reports whether the call expects no answer.
func (c *Call) IsNotification() bool { return c.ID.IsZero() }

// Next continues with the rest of the chain.
type Next func(ctx context.Context, call *Call) (*Result, error)

// Interceptor wraps every attempt of every request and notification, before
// `_meta` and headers are built, so that what it puts into ctx reaches the
// [MetaSupplier]. For notifications the result is nil. It must call next at
// most once and return its error unchanged or wrapped.
type Interceptor func(ctx context.Context, call *Call, next Next) (*Result, error)

// CallOptions is what a caller may add to one request. The zero value, and a
// nil pointer, add nothing.
type CallOptions struct {
	// Meta is a JSON object of `_meta` members of the caller. The MetaSupplier
	// and the protocol's own keys replace members of the same name.
	Meta jsontext.Value
	// Capabilities is the ClientCapabilities object told to a modern server
	// with this request; nil = the client's own. Legacy servers learn
	// capabilities at initialize only, so it is ignored there.
	Capabilities jsontext.Value
	// InputResponses is the JSON object of answers that continue an
	// input_required result (2026-07-28 patterns/mrtr); nil = none.
	InputResponses jsontext.Value
	// RequestState is the opaque state that came with it; nil = none, which is
	// not the same as empty.
	RequestState *string
	// Progress receives the progress of this request, in order and before the
	// request returns. Setting it asks the server for progress.
	Progress func(ctx context.Context, p Progress)
	// Log receives the log messages that belong to this request, in order and
	// before it returns; LogLevel asks a modern server for them.
	Log      func(ctx context.Context, m LogMessage)
	LogLevel LogLevel
	// ReturnInput hands an input_required result to the caller when the
	// client's handlers cannot answer all of it, instead of failing.
	ReturnInput bool
	// ReturnTask hands a task to the caller instead of waiting for its end.
	ReturnTask bool
}

// Result is the answer to one request, as the server sent it.
type Result struct {
	// Raw is the result object, byte for byte.
	Raw jsontext.Value
	// Type is its resultType; "complete" when the server sent none.
	Type string
	// IsError is a tool result's isError.
	IsError bool
	// TimedOut marks the result that stands in for a tool call that exceeded
	// its timeout, see [Timeouts].ToolResult.
	TimedOut bool
	// Task is the id of the task whose end brought the result; "" = none.
	Task string
	// Era and ProtocolVersion are those of the connection that answered.
	Era             Era
	ProtocolVersion string
}

// Result types (2026-07-28 basic/index, ResultType; tasks extension).
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task"
)

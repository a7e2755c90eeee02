package mcpclient

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
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

	// Trail is that of the operation the call belongs to; nil for what the client
	// sends on its own account, and for notifications.
	Trail *Trail
	// Acknowledged is closed when the server has acknowledged a
	// subscriptions/listen, whose answer comes only at its end; nil for all others.
	Acknowledged <-chan struct{}

	params    []byte         // members of params without braces and without _meta
	arguments jsontext.Value // one more member, of tools/call; nil = none
	header    http.Header    // Mcp-Param-* headers, encoded; nil = none
	options   *CallOptions
	client    *Client
	session   *session
	dialog    *dialog    // its caller answers the server's questions; nil = it does not
	asTask    bool       // it creates a task of 2025-11-25
	token     jsonrpc.ID // its progress token; zero = none
	rare      bool       // nothing else is expected for some time
	// assigned, when set, is told the request id before anything is sent, so
	// that what answers to it can be registered.
	assigned func(id jsonrpc.ID)
	// answered, when set, is called when the answer arrives, before anything
	// that follows it on the same stream.
	answered func()
}

// IsNotification reports whether the call expects no answer.
func (c *Call) IsNotification() bool { return c.ID.IsZero() }

// RequestState is the state with which the caller continues an earlier
// input_required result; nil = it does not.
func (c *Call) RequestState() *string {
	if c.options == nil {
		return nil
	}
	return c.options.RequestState
}

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
	// Checked says that the arguments and InputResponses are known to be JSON
	// objects on one line, without duplicate names, so that they are not checked
	// again.
	Checked bool
	// Meta is a JSON object of `_meta` members of the caller. The MetaSupplier
	// and the protocol's own keys replace members of the same name.
	Meta jsontext.Value
	// Capabilities is the ClientCapabilities object told to a modern server
	// with this request; nil = the client's own. Legacy servers learn
	// capabilities at initialize only, so it is ignored there.
	Capabilities jsontext.Value
	// InputResponses is the JSON object of answers that continue an
	// input_required result (2026-07-28 patterns/mrtr); nil = none. Neither it nor
	// RequestState is ever sent to a legacy server, which does not know them.
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
	// Answer answers what the server asks while this request runs, in place of the
	// client's handlers: elicitation/create, sampling/createMessage and roots/list,
	// whatever was declared, and on modern servers any other question. params and
	// result are those of the method; params is nil if the server sent none. It may be
	// called by several goroutines at once: eight on a modern server. ctx has the
	// values of the caller's; it ends when the server withdraws the question, when
	// the call ends and when the caller leaves.
	//
	// Modern servers are asked again with the answers as often as they ask, without
	// the limit of [RoundOptions]. On a legacy connection what arrives while the
	// request is under way is taken for its question, so that one such call at a
	// time may use the connection; another is refused with KindInvalid.
	//
	// A [*jsonrpc.Error] refuses the question. A legacy server gets the error
	// itself; a modern one an elicitation that was cancelled, and nothing else can be
	// refused there: the call ends with ErrInputRefused. An answer that is none for
	// its method ends the call with KindInvalid. After any other error, or a panic,
	// a legacy server is told of an internal error and a modern call ends with
	// KindInternal. Questions still open when the call ends are refused.
	//
	// The client's own times stand still while a question waits for its answer:
	// Timeouts.Max, and on a legacy connection that of the request. The deadline of
	// the caller's ctx always holds.
	Answer func(ctx context.Context, method string, params jsontext.Value) (result jsontext.Value, err error)
	// ReturnInput hands an input_required result to the caller when the
	// client's handlers cannot answer all of it, instead of failing.
	ReturnInput bool
	// ReturnTask hands a task to the caller instead of waiting for its end. A
	// task of 2025-11-25 is never handed over but always waited for: neither its
	// form nor its methods are those of the extension, so the caller could do
	// nothing with it.
	ReturnTask bool
}

// Result is the answer to one request, as the server sent it.
type Result struct {
	// Raw is the result object, byte for byte.
	Raw jsontext.Value
	// Known is what was seen of Raw when it was received, for who walks it by
	// package rawjson; the zero value = nothing.
	Known rawjson.Index
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

	created *legacyTask // the task that the call became, still to be waited for
}

// Text returns the member name of the result object if it is a string, such as
// the requestState of an input_required result or the taskId of a task.
func (r *Result) Text(name string) (text string, ok bool) {
	value := lookup(r.Raw, []string{name})
	if value.Kind() != '"' {
		return "", false
	}
	return unquote(value)
}

// Result types (2026-07-28 basic/index, ResultType; tasks extension).
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task"
)

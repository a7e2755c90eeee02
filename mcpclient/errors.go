package mcpclient

import (
	"fmt"
	"strings"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Kind says what went wrong, in the terms a caller branches on.
type Kind int

const (
	// KindInternal is a failure of this client itself; it should not happen.
	KindInternal Kind = iota
	// KindInvalid: the request was refused here before anything was sent; or, if
	// Sent is true, the caller's answer to a question of the server was not usable,
	// see CallOptions.Answer.
	KindInvalid
	// KindRPC: the server answered with a JSON-RPC error; see Error.RPC.
	KindRPC
	// KindTimeout: the caller's deadline or a configured timeout passed.
	KindTimeout
	// KindCanceled: the caller went away, or ended the call; Message has the cause
	// of its context where that says why (context.WithCancelCause).
	KindCanceled
	// KindUnavailable: there is no connection; the request surely did not start.
	KindUnavailable
	// KindLost: the connection ended after the request was written; whether the
	// server did it is unknown.
	KindLost
	// KindProtocol: the reply is not what the protocol allows.
	KindProtocol
	// KindTooLarge: the reply exceeds Error.Limit bytes.
	KindTooLarge
	// KindHTTP: an HTTP status without a JSON-RPC error; see Error.Status.
	KindHTTP
	// KindUnauthorized: HTTP 401 or 403; see Error.Status.
	KindUnauthorized
	// KindRateLimited: HTTP 429; see Error.RetryAfter.
	KindRateLimited
	// KindOverloaded: too many calls in flight and queued on our side.
	KindOverloaded
	// KindUnsupported: the server does not offer the capability; nothing was sent.
	KindUnsupported
	// KindVersion: no protocol version is spoken by both sides, or a pinned one
	// is not offered.
	KindVersion
	// KindClosed: the client was closed.
	KindClosed
	// KindTask: a task ended without a result at the server's side.
	KindTask
	// KindInput: the caller refused to answer what the server asked, and the call
	// could not go on without; see ErrInputRefused.
	KindInput
)

var kindNames = [...]string{
	KindInternal: "internal", KindInvalid: "invalid", KindRPC: "rpc", KindTimeout: "timeout",
	KindCanceled: "canceled", KindUnavailable: "unavailable", KindLost: "lost", KindProtocol: "protocol",
	KindTooLarge: "too_large", KindHTTP: "http", KindUnauthorized: "unauthorized", KindRateLimited: "rate_limited",
	KindOverloaded: "overloaded", KindUnsupported: "unsupported", KindVersion: "version", KindClosed: "closed", KindTask: "task",
	KindInput: "input",
}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", int(k))
	}
	return kindNames[k]
}

// Error is the one error type of this package. Match it with
// errors.AsType[*Error] and branch on Kind.
type Error struct {
	Kind   Kind
	Method string // the MCP method, "" when none was under way
	Name   string // tool, prompt or URI, "" when the method has none
	// Message says what happened and what to do. It is authored here and safe
	// to show to callers; it never holds secrets or foreign error text.
	Message string
	// RPC is the server's error, for KindRPC, and for KindUnauthorized and
	// KindRateLimited when the reply carried one.
	RPC *jsonrpc.Error
	// Status is the HTTP status where one decided the outcome, else 0.
	Status int
	// Limit is the exceeded size in bytes, for KindTooLarge.
	Limit int64
	// RetryAfter is when another attempt makes sense; 0 = not known, NeverAgain =
	// it never will by itself.
	RetryAfter time.Duration
	// SafeToRetry is true only if the request surely did not start.
	SafeToRetry bool
	// Sent is true once any byte of the request may have reached the server.
	Sent bool
	// Task is the id of the task that the failure is about; "" = none.
	Task string
	// Err is the private cause, for logs; it may be nil.
	Err error

	sessionGone bool // the server has forgotten our session
	gated       bool // Options.ConnectGate refused the attempt
}

// NeverAgain, as Error.RetryAfter, says that no attempt will be made by itself.
const NeverAgain time.Duration = -1

// Error describes the failure for logs; callers' texts come from Message.
func (e *Error) Error() string {
	s := e.Message
	if e.RPC != nil && s == "" {
		s = fmt.Sprintf("server error %d: %s", e.RPC.Code, e.RPC.Message)
	}
	if e.Method != "" {
		s = e.Method + ": " + s
	}
	if cause := e.Err; cause != nil {
		text := cause.Error()
		if !strings.Contains(s, text) { // a cause that says the same says nothing
			s += ": " + strings.TrimPrefix(strings.TrimPrefix(text, e.Message), ": ")
		}
	}
	return s
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches another *Error by Kind alone, so that
// errors.Is(err, &Error{Kind: KindTimeout}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// Codes of JSON-RPC and MCP errors (2026-07-28 basic/index, Error Codes).
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // 2025-11-25 and older
	CodeURLElicitation     = -32042 // 2025-11-25 only
	CodeHeaderMismatch     = -32020
	CodeCapabilityRequired = -32021
	CodeUnsupportedVersion = -32022
)

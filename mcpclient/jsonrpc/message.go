// Package jsonrpc reads and writes JSON-RPC 2.0 messages, one at a time. It
// knows nothing of MCP, of transports, or of which request is pending.
//
// Writing never emits a line break, so a message is always one line. Reading
// is strict about ids, whose type and value decide which call an answer
// belongs to, and tolerant about everything else that servers are seen to
// send: a missing or wrong "jsonrpc" member, members that are null instead of
// absent, unknown members, duplicate members (the last one wins), invalid
// UTF-8, and error objects with odd codes.
package jsonrpc

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// Kind is the kind of a message.
type Kind int

const (
	// Invalid: the message is none of the others; see [Decode].
	Invalid Kind = iota
	// Request has a method and an ID.
	Request
	// Notification has a method and no ID.
	Notification
	// Response has a result or an error. Its ID is zero when the peer sent
	// none or null.
	Response
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Invalid:
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	}
	return "invalid"
}

// Message is one decoded message. Params, Result and Error.Data alias the
// bytes it was decoded from.
type Message struct {
	Kind   Kind
	ID     ID
	Method string
	// Params of a request or notification; nil when absent or null.
	Params jsontext.Value
	// Result of a response without Error; the JSON null when the peer sent a
	// null result.
	Result jsontext.Value
	// Known is what Decode has seen of Result.
	Known rawjson.Index
	Error *Error
}

// Error is the error object of a response.
type Error struct {
	// Code is 0 when the peer sent none or one that is no integer; Data then
	// holds the whole error object, unless the peer sent data.
	Code    int64
	Message string
	// Data is nil when absent or null.
	Data jsontext.Value
}

// Error returns the code and the message.
func (e *Error) Error() string {
	return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message)
}

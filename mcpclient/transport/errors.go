package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// ErrUnsent is wrapped into a context's error by Call, Notify and Reply when
// surely nothing of the message has reached the server. Without it something
// may have.
var ErrUnsent = errors.New("nothing of it was sent")

// ErrorKind says what became of a message.
type ErrorKind int

const (
	// NotSent: the server surely did not read the message.
	NotSent ErrorKind = iota + 1
	// Lost: the connection or stream ended without a response; the server may
	// have acted.
	Lost
	// Status: an HTTP status other than success; see Error.Status, Error.RPC.
	Status
	// SessionGone: HTTP 404 on a request that carried a session id.
	SessionGone
	// Malformed: the reply is not what the protocol allows.
	Malformed
	// TooLarge: the reply exceeds Error.Limit bytes.
	TooLarge
	// Closed: Close was called on the connection.
	Closed
	// Invalid: the message cannot be sent as it is. The server saw nothing of
	// it, and the connection is fine.
	Invalid
)

var kindNames = [...]string{
	NotSent: "not sent", Lost: "lost", Status: "status", SessionGone: "session gone",
	Malformed: "malformed", TooLarge: "too large", Closed: "closed", Invalid: "invalid",
}

// String returns the kind's name in lower case.
func (k ErrorKind) String() string {
	if k <= 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", int(k))
	}
	return kindNames[k]
}

// Error is the one error type of this package; a context's error is wrapped
// without it.
type Error struct {
	Kind ErrorKind
	// Status is the HTTP status of Status and SessionGone, else 0.
	Status int
	// RPC is the JSON-RPC error found in the body of such a reply.
	RPC *jsonrpc.Error
	// RetryAfter is how long the server asks to wait; 0 = it did not say.
	RetryAfter time.Duration
	// WWWAuthenticate is that header of a 401 or 403. It is a challenge, not
	// safe to show.
	WWWAuthenticate string
	// ContentType is the reply's, for Malformed.
	ContentType string
	// Limit is the exceeded size in bytes, for TooLarge.
	Limit int64
	// Message says what happened and what to do. It is safe to show: it never
	// holds header values or secrets, and at most 200 bytes of a reply.
	Message string
	// Err is the private cause, for logs; it may be nil.
	Err error
}

// Error returns the message and the private cause, for logs.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches another *Error by Kind alone, so that
// errors.Is(err, &Error{Kind: SessionGone}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// unsent is a context's error for a message of which nothing was sent.
func unsent(r *Request, cause error) error {
	return fmt.Errorf("%s was not sent: %w (%w)", subject(r), cause, ErrUnsent)
}

// tooDeepText is for replies beyond the depth to which JSON is read.
const tooDeepText = "the response is nested more than 10,000 levels deep, which is not read; let the server return flatter data"

func tooDeep(err error) bool { return errors.Is(err, rawjson.ErrTooDeep) }

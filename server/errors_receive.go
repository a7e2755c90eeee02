package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
)

// expectation is what a request message should be like.
type expectation struct {
	message string        // its name
	limit   int           // in bytes
	timeout time.Duration // for it to arrive; 0 = the caller's deadline comes first, or there is no limit
}

// received maps a failure to read the request message off the wire. EOF is no
// failure but the end of a stream.
func received(ctx context.Context, err error, want expectation) error {
	rpc, ok := errors.AsType[*connect.Error](err)
	if !ok || errors.Is(err, io.EOF) {
		return err
	}
	var f *failure
	switch bad, isJSON := errors.AsType[*jsonError](err); {
	case isJSON:
		f = refuseField(reasonJSONInvalid, bad.field, bad.description)
		if bad.field == "" {
			f = refuse(reasonJSONInvalid, bad.description)
		}
	case rpc.Code() == connect.CodeResourceExhausted:
		f = refuse(reasonTooLarge, overLimit(rpc.Message(), want.limit))
	case rpc.Code() == connect.CodeDeadlineExceeded && want.timeout > 0:
		f = refuse(reasonTimeout, fmt.Sprintf("the request message did not arrive within %v of its headers; send it without pauses", want.timeout))
	case rpc.Code() == connect.CodeDeadlineExceeded:
		f = refuse(reasonTimeout, "the caller's deadline passed before the whole request had arrived")
	case rpc.Code() == connect.CodeCanceled, ctx.Err() != nil:
		f = scope{}.canceled(ctx, err, false)
	case rpc.Code() == connect.CodeInvalidArgument:
		f = refuse(reasonInvalidParams, fmt.Sprintf("the request could not be decoded as %s; check its encoding, its compression and that the caller's schema is the bridge's", want.message))
	case rpc.Code() == connect.CodeUnimplemented:
		f = refuse(reasonInvalidParams, "this call takes exactly one request message, and the request held none or more than one; send one")
		f.code = connect.CodeUnimplemented // as gRPC requires
	case errors.Is(err, io.ErrUnexpectedEOF):
		f = refuse(reasonInvalidParams, "the request ended before its message was complete; in streams each message has five bytes before it, flags and length, which the body may lack")
	default:
		f = refuse(reasonInvalidParams, framingMistake(rpc.Message()))
	}
	f.cause = err
	if f.reason == reasonJSONInvalid {
		f.cause = nil // which says the same
	}
	return scope{}.build(f)
}

// overLimit says that a message is over the limit. Where the four bytes of its
// length are text it may be JSON without the envelope that streams need, as
// people send it by hand.
func overLimit(text string, limit int) string {
	var size uint32
	if _, err := fmt.Sscanf(text, "message size %d is", &size); err == nil && isText(size) {
		return fmt.Sprintf("the body lacks Connect's envelope, the five bytes with flags and length before each message of a stream, or the request message is larger than %d bytes, the bridge's listen.max_request_bytes; send the envelope, or send less, or raise the limit", limit)
	}
	return fmt.Sprintf("the request message is larger than %d bytes, the bridge's listen.max_request_bytes; send less or raise it", limit)
}

// isText reports whether the four bytes of a length are ASCII text.
func isText(size uint32) bool {
	for ; size > 0; size >>= 8 {
		if c := byte(size); c > '~' || c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// framingMistake says what is wrong with the bytes around the message, which
// the transport tells by its text alone.
func framingMistake(text string) string {
	switch {
	case strings.Contains(text, "without compression support"):
		return "a message is marked as compressed, but the header that names the compression is not set; set grpc-encoding, in the streams of Connect connect-content-encoding, or do not compress"
	case strings.Contains(text, "envelope flags"):
		return "a message begins with flags that the protocol does not have; the first byte of the five before a message is 0, or 1 when it is compressed"
	case strings.Contains(text, "trailers invalid"), strings.Contains(text, "end of stream"), strings.Contains(text, "end stream"):
		return "the request's last frame, with its trailers, is malformed; leave it out"
	}
	return "the request's body could not be read; check its framing and its transfer-encoding"
}

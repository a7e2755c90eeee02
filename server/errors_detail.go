package server

import (
	"encoding/base64"
	"strconv"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// errorDomain is the domain of every google.rpc.ErrorInfo.
const errorDomain = "mcpbridge"

const (
	// maxErrorBytes bounds message and details of one error as gRPC encodes
	// them into trailers; grpc-java refuses header lists above 8 KiB.
	maxErrorBytes = 4 << 10
	// maxMessageBytes bounds the message alone: it travels twice, once
	// percent-encoded at up to three bytes a byte.
	maxMessageBytes  = 512
	maxRPCMessage    = 512
	maxViolations    = 4
	maxFieldBytes    = 128
	maxViolationText = 256
)

// build makes the RPC's error of a failure, with its details, and keeps the
// whole below 4 KiB: single texts have their own limits, then the message
// gives way where percent-encoding swells it, and last the server's data gets
// the room that is left.
func (s scope) build(f *failure) *connect.Error {
	code := f.code
	if code == 0 {
		code = f.reason.code()
	}
	message := cut(f.message, maxMessageBytes)
	info := &errdetails.ErrorInfo{Reason: string(f.reason), Domain: errorDomain, Metadata: map[string]string{}}
	if s.target != "" {
		info.Metadata["target"] = cut(s.target, maxFieldBytes)
	}
	if s.method != "" {
		info.Metadata["method"] = cut(s.method, maxFieldBytes)
	}
	if s.era != mcpclient.EraUnknown {
		info.Metadata["era"] = s.era.String()
	}
	details := []proto.Message{info}
	if f.retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.retry)})
	}
	if len(f.fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range f.fields[:min(len(f.fields), maxViolations)] {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: cut(v.field, maxFieldBytes), Description: cut(v.description, maxViolationText), Reason: v.reason,
			})
		}
		details = append(details, bad)
	}
	if f.rpc != nil {
		info.Metadata["jsonrpc_code"] = strconv.FormatInt(f.rpc.Code, 10)
		detail := &pb.JsonRpcError{Code: f.rpc.Code, Message: cut(f.rpc.Message, maxRPCMessage)}
		detail.DataTruncated = detail.Message != f.rpc.Message
		details = append(details, detail)
		message = fitMessage(code, message, details)
		if f.rpc.Data != nil {
			fitData(detail, string(f.rpc.Data), code, message, details)
		}
	}
	message = fitMessage(code, message, details)
	return encode(code, message, details).WithCause(f.cause)
}

// fitMessage shortens the message until the error fits. The details alone
// always do, because each of their texts is limited.
func fitMessage(code connect.Code, message string, details []proto.Message) string {
	for len(message) > 0 && encodedSize(code, message, details) >= maxErrorBytes {
		message = cut(message, max(len(message)*3/4, len("..."))-1)
	}
	return message
}

// fitData sets as much of the server's data as the room left allows.
func fitData(detail *pb.JsonRpcError, data string, code connect.Code, message string, details []proto.Message) {
	// The longest length prefix is counted before, so the loop only corrects
	// the rounding of Base64 and nested lengths.
	detail.DataJson = new("")
	room := (maxErrorBytes - encodedSize(code, message, details)) * 3 / 4
	for room > 0 {
		text := cutExact(data, room)
		detail.DataJson = &text
		truncated := detail.DataTruncated
		detail.DataTruncated = truncated || text != data
		over := encodedSize(code, message, details) - maxErrorBytes
		if over < 0 {
			return
		}
		detail.DataTruncated = truncated
		room = min(room, len(text)) - over*3/4 - 1
	}
	detail.DataJson = new("")
	detail.DataTruncated = true
}

// encode packs the details. Packing cannot fail: every string is valid UTF-8.
func encode(code connect.Code, message string, details []proto.Message) *connect.Error {
	err := connect.NewError(code, message)
	for _, message := range details {
		if detail, packErr := connectproto.NewErrorDetail(message); packErr == nil {
			err = err.WithDetail(detail)
		}
	}
	return err
}

// encodedSize is what an error costs in gRPC trailers: grpc-message, percent-
// encoded, and grpc-status-details-bin, Base64 of a google.rpc.Status, with
// their names.
func encodedSize(code connect.Code, message string, details []proto.Message) int {
	packed := &status.Status{Code: int32(code), Message: message}
	for _, detail := range encode(code, message, details).Details() {
		packed.Details = append(packed.Details, connectproto.ErrorDetailToAny(detail))
	}
	size := len("grpc-status16grpc-messagegrpc-status-details-bin")
	for i := range len(message) {
		if c := message[i]; c < ' ' || c > '~' || c == '%' {
			size += 2
		}
		size++
	}
	return size + base64.RawStdEncoding.EncodedLen(proto.Size(packed))
}

// targetError is the failure of one target within an answer for several.
func (s scope) targetError(f *failure) *pb.TargetError {
	code := f.code
	if code == 0 {
		code = f.reason.code()
	}
	return &pb.TargetError{Target: s.target, Code: int32(code), Reason: string(f.reason), Message: cut(f.message, maxMessageBytes)}
}

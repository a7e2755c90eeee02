package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// binaryCodec is the usual codec, but does not copy what was written in binary
// form as a whole, see [convert.ToolResponse].
type binaryCodec struct{ connectproto.BinaryCodec }

var _ connect.StableCodec = (*binaryCodec)(nil)

// MarshalWrite encodes one message.
func (c *binaryCodec) MarshalWrite(ctx context.Context, dst io.Writer, msg any) error {
	if response, ok := msg.(*pb.CallToolResponse); ok && len(response.ProtoReflect().GetUnknown()) > 0 {
		wire := response.ProtoReflect().GetUnknown()
		switch dst := dst.(type) {
		case *encoded:
			if len(*dst) == 0 {
				*dst = encoded(wire)
				return nil
			}
		case *bytes.Buffer:
			if dst.Len() == 0 { // from here on the wire belongs to the buffer
				response.ProtoReflect().SetUnknown(nil)
				*dst = *bytes.NewBuffer(wire)
				return nil
			}
		}
	}
	return c.BinaryCodec.MarshalWrite(ctx, dst, msg)
}

// jsonCodec is the JSON codec of the Connect protocol. Unlike the usual one it
// refuses what it would have to change: unknown fields, and numbers in a
// Struct or Value that a double cannot hold. Its errors are a [*jsonError].
//
// Responses are standard protobuf JSON: lowerCamelCase names, fields at their
// zero value left out unless the schema tracks their presence.
type jsonCodec struct{ connectproto.JSONCodec }

var _ connect.StableCodec = (*jsonCodec)(nil)

// jsonError says what is wrong with a JSON request. Both texts may be shown.
type jsonError struct {
	field       string // path such as "arguments.items[2].id"; "" = the whole message
	description string
}

func (e *jsonError) Error() string {
	if e.field == "" {
		return e.description
	}
	return e.field + ": " + e.description
}

// MarshalWrite encodes one message.
func (c *jsonCodec) MarshalWrite(ctx context.Context, dst io.Writer, msg any) error {
	return c.marshal(ctx, dst, msg, c.JSONCodec.MarshalWrite)
}

// MarshalWriteStable encodes one message, always in the same way.
func (c *jsonCodec) MarshalWriteStable(ctx context.Context, dst io.Writer, msg any) error {
	return c.marshal(ctx, dst, msg, c.JSONCodec.MarshalWriteStable)
}

func (c *jsonCodec) marshal(ctx context.Context, dst io.Writer, msg any, write func(context.Context, io.Writer, any) error) error {
	message, ok := msg.(proto.Message)
	if !ok {
		return write(ctx, dst, msg)
	}
	message, err := convert.Decoded(message)
	if err != nil {
		return fmt.Errorf("server: encode %T: %w", msg, err)
	}
	return write(ctx, dst, message)
}

// UnmarshalRead decodes one message.
func (c *jsonCodec) UnmarshalRead(_ context.Context, src io.Reader, msg any) error {
	message, ok := msg.(proto.Message)
	if !ok {
		return fmt.Errorf("server: decode JSON into %T: not a protobuf message", msg)
	}
	data, err := readAll(src)
	if err != nil {
		return err
	}
	descriptor := message.ProtoReflect().Descriptor()
	if len(bytes.TrimSpace(data)) == 0 {
		return &jsonError{description: fmt.Sprintf("the request body is empty; send a JSON object, {} for a %s without fields", descriptor.FullName())}
	}
	if err := checkJSON(data, descriptor); err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(data, message); err != nil {
		return &jsonError{description: "the JSON does not fit " + string(descriptor.FullName()) + ": " + protojsonText(err)}
	}
	return nil
}

// readAll reads src without a copy when it is a buffer already, as
// connecthttp's is.
func readAll(src io.Reader) ([]byte, error) {
	if buffer, ok := src.(*bytes.Buffer); ok {
		return buffer.Next(buffer.Len()), nil
	}
	return io.ReadAll(src)
}

// protojsonText is protojson's own text about the caller's JSON, without its
// prefix and with plain spaces; it quotes nothing but that JSON.
func protojsonText(err error) string {
	text := err.Error()
	text = strings.ReplaceAll(text, "\u00a0", " ")
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}

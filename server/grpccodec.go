package server

import (
	"errors"
	"fmt"
	"math"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc/mem"
)

// encoded is a message as its codec writes it: into one piece of memory, which
// the transport sends from. grpc-go's pools would hold 1 MiB for one of 40 KiB
// that waits for its caller.
type encoded []byte

// Grow makes room for n bytes.
func (e *encoded) Grow(n int) {
	if cap(*e)-len(*e) < n {
		*e = append(make([]byte, 0, len(*e)+n), *e...)
	}
}

// AvailableBuffer is the room behind what was written, for Write.
func (e *encoded) AvailableBuffer() []byte { return (*e)[len(*e):] }

func (e *encoded) Write(p []byte) (int, error) {
	*e = append(*e, p...)
	return len(p), nil
}

// encodedCodec is for grpc-go, to which messages are given encoded.
type encodedCodec struct{}

func (encodedCodec) Name() string { return connect.CodecNameProto }

func (encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, ok := v.(encoded)
	if !ok || len(data) > math.MaxInt32 {
		return nil, fmt.Errorf("server: send a %T of %d bytes: not an encoded message of at most 2 GiB", v, len(data))
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (encodedCodec) Unmarshal(mem.BufferSlice, any) error {
	return errors.New("server: messages are not received through grpc-go's codec")
}

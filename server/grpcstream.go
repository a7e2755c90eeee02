package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // grpc-go refuses what is compressed otherwise
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// grpcReader is the receiving side of a stream of grpc-go's transport. Messages
// are read there, since RecvMsg would end the stream with a status of grpc-go's
// own, and they are counted before they are read.
type grpcReader interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// Causes of the end of a wait for the caller.
var (
	errReadExpired = fmt.Errorf("the time for the request passed: %w", os.ErrDeadlineExceeded)
	errUntaken     = fmt.Errorf("the caller did not take the answer in time: %w", os.ErrDeadlineExceeded)
	errReadStopped = errors.New("reading the request was given up")
)

// grpcStream is one call of grpcFront.
type grpcStream struct {
	ctx        context.Context //nolint:containedctx // of the call
	in         grpcReader
	out        grpc.ServerStream
	spec       connect.Spec
	info       *connect.CallInfo
	codec      connect.Codec
	limits     limits
	maxRequest int                     // bytes of a message
	interrupt  context.CancelCauseFunc // ends reads and writes that wait for the caller

	// of the receiving side
	prefix   [5]byte
	complete bool // the request of a call with one message was read

	// of the sending side
	gzip   bool // the caller takes it
	opened bool // the header was sent, or goes out with the next message

	clock clock // its lock guards limits, too
}

// negotiate decides on compression as connecthttp does: the answer may be
// compressed as the request is, or in a way that the caller names.
func (s *grpcStream) negotiate(accepted []string) {
	s.info.RequestEncoding, s.info.ResponseEncoding = connect.CompressionNameIdentity, connect.CompressionNameIdentity
	if s.in.RecvCompress() == gzipName {
		s.info.RequestEncoding, s.gzip = gzipName, true
	}
	for _, list := range accepted {
		for name := range strings.SplitSeq(list, ",") {
			s.gzip = s.gzip || strings.TrimSpace(name) == gzipName
		}
	}
	if s.gzip {
		s.info.ResponseEncoding = gzipName
	}
}

// Receive reads the next message of the request. A request that has just one is
// read to its end, within limits.body.
func (s *grpcStream) Receive(msg any) error {
	if s.spec.StreamType&connect.StreamTypeClient != 0 {
		return s.receive(msg)
	}
	if s.complete {
		return io.EOF
	}
	s.complete = true
	s.clock.mu.Lock()
	s.clock.limitRead(earlier(s.clock.readBy, time.Now().Add(s.limits.body))) // the peer may have set one
	s.clock.mu.Unlock()
	err := s.receiveOnly(msg)
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if s.clock.readBy.IsZero() { // it has passed
		return s.readFailed(errReadExpired)
	}
	s.clock.limitRead(time.Time{})
	return err
}

func (s *grpcStream) receiveOnly(msg any) error {
	err := s.receive(msg)
	if errors.Is(err, io.EOF) {
		return connect.NewError(connect.CodeUnimplemented, "the request has no message")
	}
	if err != nil {
		return err
	}
	err = s.in.ReadMessageHeader(s.prefix[:])
	if err == nil {
		return connect.NewError(connect.CodeUnimplemented, "the request has several messages")
	}
	if !errors.Is(err, io.EOF) {
		return s.readFailed(err)
	}
	return nil
}

func (s *grpcStream) receive(msg any) error {
	if err := s.in.ReadMessageHeader(s.prefix[:]); errors.Is(err, io.EOF) {
		return io.EOF
	} else if err != nil {
		return s.readFailed(err)
	}
	size := int64(binary.BigEndian.Uint32(s.prefix[1:]))
	if size > int64(s.maxRequest) {
		return tooLarge()
	}
	data, err := s.in.Read(int(size))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return s.readFailed(err)
	}
	defer data.Free()
	s.info.ReceiveStats = connect.MessageStats{Size: int(size)}
	switch {
	case s.prefix[0] > 1:
		return connect.Errorf(connect.CodeInternal, "invalid envelope flags %d", s.prefix[0])
	case s.prefix[0] == 1 && s.info.RequestEncoding != gzipName:
		return connect.NewError(connect.CodeInternal, "a compressed message without compression support")
	case size == 0:
		return nil
	case s.prefix[0] == 1:
		plain, err := s.unpack(data)
		if err != nil {
			return err
		}
		s.info.ReceiveStats = connect.MessageStats{Size: len(plain), CompressedSize: int(size)}
		return s.decode(mem.BufferSlice{mem.SliceBuffer(plain)}, msg)
	}
	return s.decode(data, msg)
}

func tooLarge() error {
	return connect.NewError(connect.CodeResourceExhausted, "the message is larger than the limit")
}

// unpack decompresses a message.
func (s *grpcStream) unpack(data mem.BufferSlice) ([]byte, error) {
	packed := data.Reader()
	defer func() { _ = packed.Close() }() // frees its buffers, without fail
	var plain bytes.Buffer
	unpacked, err := encoding.GetCompressor(gzipName).Decompress(packed)
	if err == nil {
		_, err = plain.ReadFrom(io.LimitReader(unpacked, int64(s.maxRequest)+1))
	}
	switch {
	case err != nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, "the message cannot be decompressed").WithCause(err)
	case plain.Len() > s.maxRequest:
		return nil, tooLarge()
	}
	return plain.Bytes(), nil
}

// decode decodes a message, in place where it is in one piece.
func (s *grpcStream) decode(data mem.BufferSlice, msg any) error {
	var err error
	message, isMessage := msg.(proto.Message)
	if codec, ok := s.codec.(*binaryCodec); ok && isMessage && len(data) == 1 {
		err = codec.UnmarshalOptions.Unmarshal(data[0].ReadOnlyData(), message)
	} else {
		pieces := data.Reader()
		defer func() { _ = pieces.Close() }() // as above
		err = s.codec.UnmarshalRead(s.ctx, pieces, msg)
	}
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, "the message cannot be decoded").WithCause(err)
	}
	return nil
}

// readFailed gives an error of the transport the code that it has on the other
// listener.
func (s *grpcStream) readFailed(err error) error {
	code := connect.CodeCanceled
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		code = connect.CodeInternal
	case errors.Is(context.Cause(s.ctx), os.ErrDeadlineExceeded), errors.Is(s.ctx.Err(), context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, "the request could not be read").WithCause(err)
}

// SendHeaders sends the header of a stream. That of a unary call waits for the
// answer, as it says whether that is compressed.
func (s *grpcStream) SendHeaders() error {
	if s.opened || s.spec.StreamType == connect.StreamTypeUnary {
		return nil
	}
	if err := s.open(s.gzip); err != nil {
		return err
	}
	return s.sent(s.out.SendHeader(nil))
}

// open prepares the header, which grpc-go sends with the first message.
func (s *grpcStream) open(compress bool) error {
	s.opened = true
	compression := connect.CompressionNameIdentity
	if compress {
		compression = gzipName
	}
	if compression != s.info.RequestEncoding { // what grpc-go answers with by itself
		if err := grpc.SetSendCompressor(s.ctx, compression); err != nil {
			return s.sent(err)
		}
	}
	return s.sent(s.out.SetHeader(metadataOf(s.info.ResponseHeader())))
}

// Send encodes a message and hands it to grpc-go, which returns as long as
// 64 KiB of the stream, or one message, are not under way; a caller that lets it
// wait for too long loses the stream.
func (s *grpcStream) Send(msg any) error {
	var data encoded
	if err := s.codec.MarshalWrite(s.ctx, &data, msg); err != nil {
		return connect.NewError(connect.CodeInternal, "the message cannot be encoded").WithCause(err)
	}
	large := len(data) >= compressMinBytes
	unary := s.spec.StreamType == connect.StreamTypeUnary
	if !s.opened {
		if err := s.open(s.gzip && (large || !unary)); err != nil {
			return err
		}
	}
	var message any = data
	if !unary && s.gzip && !large && s.info.RequestEncoding != gzipName {
		// Prepared where the request is not compressed, a message is not, either.
		prepared := &grpc.PreparedMsg{}
		if err := prepared.Encode(s.out, data); err != nil {
			return s.sent(err)
		}
		message = prepared
	}
	s.startWrite()
	err := s.out.SendMsg(message)
	s.clock.wrote()
	if err != nil {
		return s.sent(err)
	}
	s.info.SendStats = connect.MessageStats{Size: len(data)}
	return nil
}

// sent cuts the text of grpc-go off an error: all that makes sending fail is
// the end of the call.
func (s *grpcStream) sent(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(s.ctx), errUntaken):
		return errUntaken
	case s.ctx.Err() != nil:
		return fmt.Errorf("send: %w", s.ctx.Err())
	}
	return fmt.Errorf("send: %w", context.Canceled)
}

// finish adds what goes out with the status.
func (s *grpcStream) finish() {
	if !s.opened {
		_ = s.out.SetHeader(metadataOf(s.info.ResponseHeader())) // an error means that the stream has ended
	}
	s.out.SetTrailer(metadataOf(s.info.ResponseTrailer()))
}

// setReadDeadline is for the peer: it ends a read that waits for the caller.
func (s *grpcStream) setReadDeadline(t time.Time) error {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if s.clock.over {
		return errRequestOver
	}
	s.clock.limitRead(t)
	return nil
}

func (s *grpcStream) readExpired() { s.interrupt(errReadExpired) }

// stopReading is for the peer, once all that matters was sent.
func (s *grpcStream) stopReading() { s.interrupt(errReadStopped) }

// writeLimit is when a write that begins now has to be done.
func (s *grpcStream) writeLimit() time.Time { return time.Now().Add(s.limits.stream) }

func (s *grpcStream) startWrite() {
	if s.spec.StreamType&connect.StreamTypeServer == 0 {
		return // the first message of a stream never waits
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.limitWrite(s.writeLimit())
}

// hurry gives a stream that has to end less time for what its caller leaves
// untaken.
func (s *grpcStream) hurry() {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.limits.stream = min(s.limits.stream, s.limits.grace)
	s.clock.hurryWrite(s.writeLimit())
}

// writeExpired ends a write that the caller does not take, and the call with it.
func (s *grpcStream) writeExpired() { s.interrupt(errUntaken) }

// end is called when the handler has returned.
func (s *grpcStream) end() {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.end()
}

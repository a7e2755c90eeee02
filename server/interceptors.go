package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Response headers of every call.
const (
	// HeaderTarget names the target that answered; absent when several did.
	HeaderTarget = "mcp-bridge-target"
	// HeaderTraceID is the trace the call belongs to; absent without tracing.
	HeaderTraceID = "mcp-bridge-trace-id"
)

// targetKey is the form in which HeaderTarget is kept: another one is converted
// each time.
const targetKey = "Mcp-Bridge-Target"

// Peer is what a listener knows of the caller. It is the only thing a listener
// puts into the context.
type Peer struct {
	Protocol string // of the connection, such as "HTTP/2.0"
	Addr     string // address and port of the other side, as the listener saw it
	TLS      *tls.ConnectionState
	// ReadDeadline bounds reading the rest of the request, to end a read that
	// waits for the caller; nil when the listener cannot.
	ReadDeadline func(time.Time) error
	// StopReading ends reading the request for good, also a read that waits for
	// the caller; what still comes is dropped, and the answer is not disturbed. nil
	// when the listener cannot.
	StopReading func()

	hurry func() // a stream that ends waits less for a slow reader; nil when the listener cannot
}

type peerKey struct{}

// WithPeer returns a context that carries the peer, for listeners.
func WithPeer(ctx context.Context, peer *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, peer)
}

// PeerFrom returns the peer that a listener put into the context; its zero
// value when there was none, as in calls within the process.
func PeerFrom(ctx context.Context) Peer {
	if peer, ok := ctx.Value(peerKey{}).(*Peer); ok {
		return *peer
	}
	return Peer{}
}

// readDeadline sets the peer's read deadline where there is one. Its error is
// of no use: the worst that follows is a read without the limit.
func (p Peer) readDeadline(t time.Time) {
	if p.ReadDeadline != nil {
		_ = p.ReadDeadline(t)
	}
}

// report sets the trace header and tells of the call. It is the outermost of our
// own interceptors, so that it sees what the caller will see.
func (s *Server) report(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		start := time.Now()
		info, ok := connect.CallInfoForServerContext(ctx)
		if !ok {
			return next(ctx, spec, stream)
		}
		if s.opts.TraceID != nil {
			if id := s.opts.TraceID(ctx); id != "" {
				info.ResponseHeader().Set(HeaderTraceID, id)
			}
		}
		left := &note{}
		err := next(context.WithValue(ctx, noteKey{}, left), spec, stream)
		if err != nil && isGet(ctx) {
			info.ResponseHeader().Set("Cache-Control", "no-store")
		}
		s.ended(ctx, spec, info, left, err, time.Since(start))
		return err
	}
}

// recoverPanics turns a panic into an error that says nothing of it. It is
// inside telemetry and log, so that they see the error.
func (s *Server) recoverPanics(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		defer func() {
			if value := recover(); value != nil {
				s.log.LogAttrs(ctx, slog.LevelError, "panic in a call",
					slog.String("procedure", spec.Procedure), slog.Any("panic", value), slog.String("stack", string(debug.Stack())))
				err = scope{}.build(faulty())
			}
		}()
		return next(ctx, spec, stream)
	}
}

// author makes every error of a call one of errors.go.
func (s *Server) author(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		wrapped := &authoredStream{ServerStream: stream, ctx: ctx, expect: expectation{limit: s.opts.MaxRequestBytes}}
		if method, ok := spec.Schema.(protoreflect.MethodDescriptor); ok {
			wrapped.expect.message = string(method.Input().FullName())
		}
		if deadline, ok := ctx.Deadline(); spec.StreamType&connect.StreamTypeClient == 0 && (!ok || time.Until(deadline) > s.opts.limits.body) {
			wrapped.expect.timeout = s.opts.limits.body
		}
		if err := next(ctx, spec, wrapped); err != nil {
			return scope{}.fail(ctx, err)
		}
		return nil
	}
}

// authoredStream rewrites the transport's errors, which hold text of the Go
// runtime, addresses, and limits without the name of their setting.
type authoredStream struct {
	connect.ServerStream

	ctx    context.Context //nolint:containedctx // of the call the stream belongs to
	expect expectation
}

func (a *authoredStream) Receive(msg any) error {
	if err := a.ServerStream.Receive(msg); err != nil {
		return received(a.ctx, err, a.expect)
	}
	return nil
}

func (a *authoredStream) Send(msg any) error {
	err := a.ServerStream.Send(msg)
	if err != nil && connect.CodeOf(err) == connect.CodeInternal {
		return fmt.Errorf("encode the response: %v", err) //nolint:errorlint // cut loose: its text must not reach the caller
	}
	return err
}

// setTarget tells the caller which target answers.
func setTarget(ctx context.Context, name string) {
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		info.ResponseHeader().Set(targetKey, name)
	}
}

// isGet reports whether the call is a Connect GET, whose answer HTTP caches
// may keep.
func isGet(ctx context.Context) bool {
	info, _ := connecthttp.ServerInfoForContext(ctx)
	return info.HTTPMethod() == http.MethodGet
}

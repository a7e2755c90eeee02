package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// grpcFront serves gRPC, and nothing else, through grpc-go's transport: a
// fraction of what net/http's HTTP/2 costs. Behind it are the handlers and
// interceptors of the other listener.
//
// grpc-go answers some requests before a handler sees them, in words of its own:
// those with a compression other than gzip, with a malformed grpc-timeout or
// binary header, or with a content type that is not gRPC. And it resets the
// stream as soon as the caller's deadline passes, so that no answer follows then.
type grpcFront struct {
	server     func() *grpc.Server // its goroutines start when it is asked for first
	rpc        *connect.Server
	procedures map[string]connect.Spec
	codecs     map[string]connect.Codec // by content type
	limits     limits
	maxRequest int             // bytes of a message
	forced     context.Context //nolint:containedctx // its end cancels the calls
	log        *slog.Logger
	access     *access
	observe    func(context.Context, Outcome) // nil = nobody does
	refusals   *refusals

	running atomic.Int64  // calls
	idle    chan struct{} // holds a token once the last call has ended

	stopping sync.Once
	stopped  chan struct{} // closed when nothing is left

	mu      sync.Mutex
	silent  map[net.Conn]struct{} // connections whose caller has sent nothing yet
	drained bool                  // no more of them
}

func newGRPCFront(forced context.Context, rpc *connect.Server, codecs []connect.Codec, o *Options, a *access, refused *refusals) *grpcFront {
	f := &grpcFront{
		rpc: rpc, procedures: map[string]connect.Spec{}, codecs: map[string]connect.Codec{},
		limits: o.limits, maxRequest: o.MaxRequestBytes, forced: forced, log: o.Logger, access: a, observe: o.Observe, refusals: refused,
		idle: make(chan struct{}, 1), stopped: make(chan struct{}), silent: map[net.Conn]struct{}{},
	}
	for spec := range rpc.Specs() {
		f.procedures[spec.Procedure] = spec
	}
	for _, codec := range codecs {
		f.codecs[grpcContentType+"+"+codec.Name()] = codec
		if codec.Name() == connect.CodecNameProto {
			f.codecs[grpcContentType] = codec
		}
	}
	f.server = sync.OnceValue(f.build)
	return f
}

// build makes the server, which is stopped by shutdown.
func (f *grpcFront) build() *grpc.Server {
	return grpc.NewServer(
		grpc.UnknownServiceHandler(f.serve),
		grpc.InTapHandle(interruptible),
		grpc.ForceServerCodecV2(encodedCodec{}),
		grpc.Creds(handshake{front: f}),
		grpc.ConnectionTimeout(readHeaderTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(requestWindow), // as net/http has it; without it grpc-go pings all the time to find a better one
		grpc.InitialConnWindowSize(requestWindow),
		grpc.NumStreamWorkers(streamWorkers), // whose stacks have grown; beyond them each call has a goroutine
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingAfter, Timeout: pingTimeout}),
		// The other listener takes pings at any time; grpc-go's default ends the connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond, PermitWithoutStream: true}),
	)
}

// arrival is what is known of a call before it has a handler.
type arrival struct {
	header    metadata.MD             // for the one handler; nobody else reads it later
	interrupt context.CancelCauseFunc // see interruptible
}

type arrivalKey struct{}

// interruptible lets the handler end what waits for the caller, reads and
// writes, without ending the stream: its status can still be sent. It keeps the
// header, which grpc-go would copy.
func interruptible(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, interrupt := context.WithCancelCause(ctx)
	return context.WithValue(ctx, arrivalKey{}, &arrival{info.Header, interrupt}), nil
}

// arrivalOf is the arrival of a call.
func arrivalOf(ctx context.Context) *arrival {
	a, _ := ctx.Value(arrivalKey{}).(*arrival)
	return a
}

// serve is the handler of every call.
func (f *grpcFront) serve(_ any, wire grpc.ServerStream) (err error) {
	growStack(false)
	start := time.Now()
	f.running.Add(1)
	defer f.ended()
	procedure, _ := grpc.MethodFromServerStream(wire)
	defer func() { // the interceptor that does this sees nothing of those around it
		if value := recover(); value != nil {
			f.log.LogAttrs(wire.Context(), slog.LevelError, "panic in a call",
				slog.String("procedure", cut(procedure, 128)), slog.Any("panic", value), slog.String("stack", string(debug.Stack())))
			err = grpcStatus(scope{}.build(faulty()))
		}
	}()
	s, refused := f.open(wire, procedure)
	if refused != nil {
		return f.refuse(wire, procedure, start, refused)
	}
	stop := context.AfterFunc(f.forced, func() { s.interrupt(context.Cause(f.forced)) })
	defer stop()
	defer s.end()
	if err := f.rpc.Call(s.ctx, procedure, s.info, s); err != nil {
		s.finish()
		return grpcStatus(scope{}.fail(s.ctx, err))
	}
	s.finish()
	return nil
}

// open prepares a call.
func (f *grpcFront) open(wire grpc.ServerStream, procedure string) (*grpcStream, *failure) {
	ctx := wire.Context()
	spec, known := f.procedures[procedure]
	if !known {
		return nil, notServed(procedure)
	}
	arrived := arrivalOf(ctx)
	codec := f.codecs[first(arrived.header["content-type"])]
	if codec == nil {
		return nil, refuse(reasonInvalidParams, "the content-type is not one that this method takes; use application/grpc, application/grpc+proto or application/grpc+json")
	}
	in, canRead := grpc.ServerTransportStreamFromContext(ctx).(grpcReader)
	if !canRead {
		f.log.LogAttrs(ctx, slog.LevelError, "this version of grpc-go does not let the fast listener read its streams")
		return nil, faulty()
	}
	s := &grpcStream{
		in: in, out: wire, spec: spec, codec: codec, limits: f.limits, maxRequest: f.maxRequest, interrupt: arrived.interrupt,
		info: &connect.CallInfo{Spec: spec, Protocol: connect.ProtocolNameGRPC, Codec: codec.Name()},
	}
	s.clock.owner = s
	s.info.PeerAddr = callerOfStream(ctx)
	caller := &Peer{Protocol: "HTTP/2.0", Addr: s.info.PeerAddr, ReadDeadline: s.setReadDeadline, StopReading: s.stopReading, hurry: s.hurry}
	setHeaders(s.info.RequestHeader(), arrived.header)
	s.negotiate(arrived.header["grpc-accept-encoding"])
	s.ctx = WithPeer(ctx, caller)
	return s, nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// refuse answers a request that does not become a call.
func (f *grpcFront) refuse(wire grpc.ServerStream, procedure string, start time.Time, refused *failure) error {
	known := procedure
	if _, served := f.procedures[procedure]; !served {
		known = ""
	}
	rpc := scope{}.build(refused)
	info := &connect.CallInfo{Protocol: connect.ProtocolNameGRPC, PeerAddr: callerOfStream(wire.Context())}
	setHeaders(info.RequestHeader(), arrivalOf(wire.Context()).header)
	f.refusals.pass(wire.Context(), info, known, rpc, func(ctx context.Context, trace string) {
		if trace != "" {
			_ = wire.SetHeader(metadata.Pairs(HeaderTraceID, trace)) // an error means that the caller has gone
		}
		if f.observe != nil {
			f.observe(ctx, Outcome{Procedure: known, Reason: string(refused.reason)})
		}
		f.access.write(ctx, f.access.level(procedure, true), []slog.Attr{
			slog.String("procedure", cut(procedure, 128)), slog.String("protocol", info.Protocol), slog.String("peer", info.PeerAddr), tookAttr(time.Since(start)),
			slog.String("reason", string(refused.reason)), slog.String("error", refused.message), slog.String("code", rpc.Code().String()),
		})
	})
	return grpcStatus(rpc)
}

// callerOfStream is the address of the other side.
func callerOfStream(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// ended counts a call that is over.
func (f *grpcFront) ended() {
	if f.running.Add(-1) == 0 {
		notify(f.idle)
	}
}

// ServeGRPC is [Server.Serve] for callers that speak gRPC over cleartext HTTP/2
// and nothing else. It takes a fraction of the CPU, and differs in little; see
// docs/configuration.md. It returns after the last connection has ended.
func (s *Server) ServeGRPC(l net.Listener) error {
	if err := s.grpc.server().Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC at %v: %w", l.Addr(), err)
	}
	return nil
}

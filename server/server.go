package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/targets"
)

// Options configures a [Server].
type Options struct {
	// Targets are the MCP servers behind the bridge. Required. The server
	// neither starts nor closes them.
	Targets *targets.Set
	// Logger receives a line for each call and faults; nil discards.
	Logger *slog.Logger
	// Access says which calls have their line at level Info; the zero value is
	// AccessOff.
	Access AccessLog
	// Observe, when set, is told of every call that is over, with its context. It
	// must not block.
	Observe func(ctx context.Context, o Outcome)
	// MaxRequestBytes bounds one request message, decompressed; 0 = 16 MiB.
	MaxRequestBytes int
	// Interceptors wrap every call, outermost first, outside the server's own:
	// the place for telemetry.
	Interceptors []connect.ServerInterceptor
	// TraceID returns the trace of a call for the response header, "" for
	// none; nil = no header.
	TraceID func(ctx context.Context) string
	// ListBudget bounds how long a list over all targets waits for one of
	// them; 0 = 5 s.
	ListBudget time.Duration

	// limits replaces those of a caller that sends or takes too slowly, for
	// tests; 0 = the usual one.
	limits limits
}

const (
	defaultMaxRequestBytes = 16 << 20
	defaultListBudget      = 5 * time.Second
	// defaultBodyTimeout bounds how long a caller may take to send the message
	// of a call that has just one, after its headers.
	defaultBodyTimeout = 30 * time.Second
	// defaultWriteTimeout bounds how long a caller may leave an answer untaken
	// that is ready for it.
	defaultWriteTimeout = 30 * time.Second
	// defaultStreamTimeout is the same for the events of a stream: its caller may
	// be busy for a while with those it has, and what waits meanwhile is bounded.
	defaultStreamTimeout = 5 * time.Minute
	// defaultKeepAlive is how long a stream may be silent: proxies commonly close
	// streams after a minute.
	defaultKeepAlive = 30 * time.Second
	// defaultAnswerGrace lets the news of a passed deadline reach the caller.
	defaultAnswerGrace = 5 * time.Second
	// defaultDrainTimeout bounds the wait for the rest of a request body that
	// was refused; a caller that goes on sending loses its connection.
	defaultDrainTimeout = time.Second
	// compressMinBytes: smaller answers go out as they are, since most clients
	// advertise gzip whether or not it helps.
	compressMinBytes = 1024

	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 3 * time.Minute
	maxHeaderBytes    = 64 << 10
	// pingAfter and pingTimeout find callers that vanished without closing.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// maxStreams is the number of calls at once on one HTTP/2 connection.
	maxStreams = 1024
	// streamWorkers is the number of goroutines of the fast listener that serve
	// one call after the other.
	streamWorkers = 32
	// requestWindow is how many bytes of a request, and of all on a connection, may
	// come before they are read.
	requestWindow = 1 << 20
	// forcedGrace is what calls get to end by themselves after the time for a
	// shutdown ran out and they were cancelled.
	forcedGrace = 250 * time.Millisecond
)

// Server serves the API. Create it with [New]; all methods may be called from
// many goroutines.
type Server struct {
	opts    Options
	log     *slog.Logger
	access  *access
	rpc     *connect.Server
	handler http.Handler
	http    *http.Server
	grpc    *grpcFront

	// draining ends when a shutdown begins, forced when its time ran out.
	draining, forced context.Context //nolint:containedctx // lifetimes of the server
	beginDrain       context.CancelFunc
	force            context.CancelCauseFunc
}

// New checks the options and builds the server. It does no I/O and starts
// nothing.
func New(opts Options) (*Server, error) {
	if opts.Targets == nil {
		return nil, errors.New("server: Options.Targets is nil; it must hold the configured targets")
	}
	if opts.MaxRequestBytes < 0 {
		return nil, fmt.Errorf("server: Options.MaxRequestBytes is %d; use a positive number, or 0 for 16 MiB", opts.MaxRequestBytes)
	}
	if opts.ListBudget < 0 {
		return nil, fmt.Errorf("server: Options.ListBudget is %v; use a positive duration, or 0 for 5 s", opts.ListBudget)
	}
	if opts.MaxRequestBytes == 0 {
		opts.MaxRequestBytes = defaultMaxRequestBytes
	}
	if opts.ListBudget == 0 {
		opts.ListBudget = defaultListBudget
	}
	opts.limits = limits{
		body:      cmp.Or(opts.limits.body, defaultBodyTimeout),
		write:     cmp.Or(opts.limits.write, defaultWriteTimeout),
		stream:    cmp.Or(opts.limits.stream, defaultStreamTimeout),
		grace:     cmp.Or(opts.limits.grace, defaultAnswerGrace),
		drain:     cmp.Or(opts.limits.drain, defaultDrainTimeout),
		keepAlive: cmp.Or(opts.limits.keepAlive, defaultKeepAlive),
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: opts, log: opts.Logger}
	s.draining, s.beginDrain = context.WithCancel(context.Background())
	s.forced, s.force = context.WithCancelCause(context.Background())

	interceptors := slices.Concat(opts.Interceptors, []connect.ServerInterceptor{s.report, s.drain, s.recoverPanics, s.author})
	s.rpc = connect.NewServer(interceptors...)
	services := []string{
		mcpbridgev1connect.ToolsServiceName, mcpbridgev1connect.ResourcesServiceName, mcpbridgev1connect.PromptsServiceName,
		mcpbridgev1connect.CompletionServiceName, mcpbridgev1connect.TasksServiceName, mcpbridgev1connect.HealthServiceName,
	}
	calls := &caller{targets: opts.Targets, log: opts.Logger, budget: opts.ListBudget, keepAlive: opts.limits.keepAlive}
	mcpbridgev1connect.RegisterToolsServiceHandler(s.rpc, toolsService{calls})
	mcpbridgev1connect.RegisterResourcesServiceHandler(s.rpc, resourcesService{calls})
	mcpbridgev1connect.RegisterPromptsServiceHandler(s.rpc, promptsService{calls})
	mcpbridgev1connect.RegisterCompletionServiceHandler(s.rpc, completionService{calls})
	mcpbridgev1connect.RegisterTasksServiceHandler(s.rpc, tasksService{calls, new(taskFeeds)})
	mcpbridgev1connect.RegisterHealthServiceHandler(s.rpc, healthService{calls})
	if err := registerHealth(s.draining, s.rpc, opts.Targets, services); err != nil {
		return nil, err
	}
	if err := registerReflection(s.rpc); err != nil {
		return nil, err
	}

	s.access = newAccess(opts.Access, opts.Logger, housekeeping(s.rpc))
	codecs := []connect.Codec{&binaryCodec{}, &jsonCodec{}}
	refused := newRefusals(&s.opts)
	routes := newRouter(&s.opts, s.access, refused)
	connecthttp.Mount(routes, s.rpc,
		connecthttp.WithCodecs(codecs...),
		connecthttp.WithReadMaxBytes(opts.MaxRequestBytes),
		connecthttp.WithCompressMinBytes(compressMinBytes),
	)
	routes.complete(s.rpc)
	s.handler = routes
	s.http = s.newHTTPServer()
	s.grpc = newGRPCFront(s.forced, s.rpc, codecs, &s.opts, s.access, refused)
	return s, nil
}

func (s *Server) newHTTPServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.handler,
		Protocols:         protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// No ReadTimeout and no WriteTimeout: they would cut long streams; see exchange.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: s.opts.limits.write,
		},
		BaseContext: func(net.Listener) context.Context { return s.forced },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// Handler returns the API as an HTTP handler, for a server of the caller's
// own. That server needs HTTP/2 for gRPC and for streams in both directions.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve accepts connections on l until [Server.Shutdown], and returns nil
// then. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(batchingListener{l}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %v: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown ends the server: health turns to NOT_SERVING, listeners close,
// callers are told to go elsewhere, watches end with UNAVAILABLE and calls in
// flight finish, those with a stream as well. When ctx ends first, the rest is
// cancelled and the connections are closed, at most half a second later; the
// error is then ctx's.
// Calling it again has no further effect.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginDrain()
	defer s.access.close(ctx)
	err := s.finish(ctx)
	if err == nil {
		s.force(errForced)
		return nil
	}
	s.force(errForced)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), forcedGrace)
	defer cancel()
	if s.finish(grace) != nil {
		_ = s.http.Close() // closes what is left; its error is about connections nobody needs
		s.grpc.close()
	}
	return fmt.Errorf("shut down: %w", err)
}

// finish lets both listeners finish until ctx ends.
func (s *Server) finish(ctx context.Context) error {
	fast := make(chan error, 1)
	go func() { fast <- s.grpc.shutdown(ctx) }()
	return cmp.Or(s.http.Shutdown(ctx), <-fast)
}

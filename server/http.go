package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
)

// router serves each procedure at its exact path, and everything else by
// telling what is served here. What connecthttp would refuse in words of its
// own, before any interceptor runs, is refused here.
type router struct {
	procedures map[string]*route
	errors     *connecthttp.ErrorWriter
	limits     limits
	access     *access
	observe    func(context.Context, Outcome) // nil = nobody does
	refusals   *refusals
	help       string
}

// route is one procedure.
type route struct {
	handler http.Handler
	stream  connect.StreamType
}

func newRouter(o *Options, a *access, refused *refusals) *router {
	return &router{procedures: map[string]*route{}, errors: connecthttp.NewErrorWriter(), limits: o.limits, access: a, observe: o.Observe, refusals: refused}
}

// Handle is called by connecthttp.Mount. Its subtree patterns, for unknown
// methods of known services, are left to the router's own answer.
func (r *router) Handle(pattern string, handler http.Handler) {
	if !strings.HasSuffix(pattern, "/") {
		r.procedures[pattern] = &route{handler: handler}
	}
}

// complete adds what is known of the procedures once all are mounted, and
// prepares the text for callers that speak no RPC.
func (r *router) complete(server *connect.Server) {
	for spec := range server.Specs() {
		if route, ok := r.procedures[spec.Procedure]; ok {
			route.stream = spec.StreamType
		}
	}
	services := map[string]bool{}
	for procedure := range r.procedures {
		service, _, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
		services[service] = true
	}
	names := make([]string, 0, len(services))
	for name := range services {
		names = append(names, name)
	}
	slices.Sort(names)
	r.help = "There is nothing at this path. This port serves gRPC, gRPC-Web and Connect, over HTTP/1.1 and cleartext HTTP/2:\n\n  " +
		strings.Join(names, "\n  ") +
		"\n\nTry: curl -H 'Content-Type: application/json' -d '{}' http://HOST/mcpbridge.v1.HealthService/ListTargets\n"
}

// ServeHTTP puts the peer into the context and finds the procedure.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	start := time.Now()
	route, known := r.procedures[req.URL.Path]
	if known && route.stream == connect.StreamTypeUnary {
		growStack(false)
	}
	timeout, refused := preflight(req, known && route.stream == connect.StreamTypeUnary)
	var deadline time.Time
	if timeout != nil {
		deadline = start.Add(*timeout)
	}
	limits := r.limits
	if known && route.stream&connect.StreamTypeServer != 0 {
		limits.write = limits.stream
	}
	x := newExchange(w, req, limits, deadline, known && route.stream&connect.StreamTypeClient != 0)
	defer x.end()

	switch {
	case !known:
		r.unknown(x, req, start)
	case refused != nil:
		if refused.header != "" {
			x.Header().Set(refused.header, gzipName)
		}
		r.refuse(x, req, start, refused.failure)
	case route.stream == connect.StreamTypeBidi && req.ProtoMajor < 2:
		x.Header().Set("Connection", "close") // the caller may go on sending for as long as it likes
		r.refuse(x, req, start, refuse(reasonMethodNotSupported, "this method streams in both directions, which HTTP/1.1 cannot; use HTTP/2"))
	default:
		body := x.body(req.Body)
		peer := &Peer{Protocol: req.Proto, Addr: req.RemoteAddr, TLS: req.TLS, ReadDeadline: x.setReadDeadline, StopReading: func() { _ = body.Close() }, hurry: x.hurry}
		inner := req.WithContext(WithPeer(req.Context(), peer))
		inner.Body = body
		route.handler.ServeHTTP(x, inner)
		if x.bare != 0 {
			r.explain(x, req, start)
		}
	}
}

// unknown answers requests to a path that has no procedure.
func (r *router) unknown(x *exchange, req *http.Request, start time.Time) {
	service, method, isProcedure := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	if isProcedure && service != "" && method != "" && !strings.Contains(method, "/") && req.Method == http.MethodPost && r.errors.IsSupported(plain(req)) {
		r.refuse(x, req, start, notServed(req.URL.Path))
		return
	}
	x.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.Header().Set("X-Content-Type-Options", "nosniff")
	x.WriteHeader(http.StatusNotFound)
	if req.Method != http.MethodHead {
		_, _ = x.Write([]byte(r.help)) // an error here means that the caller has gone
	}
	r.write(req.Context(), slog.LevelDebug, req, start, connect.CodeNotFound, reasonMethodNotSupported, "nothing is served at this path") // no RPC
}

// notServed is the failure of a call to a procedure that there is not.
func notServed(procedure string) *failure {
	return refuse(reasonMethodNotSupported, fmt.Sprintf("this bridge does not serve %s; gRPC reflection lists what it serves", quote(strings.TrimPrefix(procedure, "/"))))
}

// refuse answers in the caller's protocol.
func (r *router) refuse(x *exchange, req *http.Request, start time.Time, f *failure) {
	rpc := scope{}.build(f)
	if req.Method == http.MethodGet {
		x.Header().Set("Cache-Control", "no-store")
	}
	r.refusals.run(x, req, r.procedure(req), rpc, func(ctx context.Context) {
		_ = r.errors.Write(x, plain(req), rpc) // an error here means that the caller has gone
		r.record(ctx, req, start, rpc.Code(), f.reason, f.message)
	})
}

// procedure is the one that a request names, "" if it is not served.
func (r *router) procedure(req *http.Request) string {
	if r.procedures[req.URL.Path] == nil {
		return ""
	}
	return req.URL.Path
}

// plain is the request without a protocol version: the error writer does not
// recognize a caller by its content type when it does not like the version.
func plain(req *http.Request) *http.Request {
	if req.Header.Get(headerConnectVersion) == "" {
		return req
	}
	out := req.WithContext(req.Context())
	out.Header = req.Header.Clone()
	out.Header.Del(headerConnectVersion)
	return out
}

// explain adds the text to an answer that connecthttp gave as a bare status.
// The protocols require the status, so the error is in the JSON form of
// Connect, which people can read as well.
func (r *router) explain(x *exchange, req *http.Request, start time.Time) {
	status := x.bare
	x.bare = 0
	f := refuse(reasonInvalidParams, "the content-type is not one that this method takes; "+mediaTypes(r.procedures[req.URL.Path]))
	switch {
	case status == http.StatusMethodNotAllowed:
		f = refuse(reasonMethodNotSupported, "this HTTP method is not possible here; use "+x.Header().Get("Allow"))
	case status == http.StatusHTTPVersionNotSupported:
		f = refuse(reasonMethodNotSupported, "this method needs HTTP/2")
	case req.Method == http.MethodGet:
		f = refuseField(reasonInvalidParams, "encoding", "is missing in the query, or not one that this method takes, or the request has a body; use encoding=json or encoding=proto, and no body")
	}
	rpc := scope{}.build(f)
	x.Header().Set("Cache-Control", "no-store")
	untyped := req.WithContext(req.Context())
	untyped.Header = http.Header{}
	r.refusals.run(x, req, r.procedure(req), rpc, func(ctx context.Context) {
		_ = r.errors.Write(statusWriter{x, status}, untyped, rpc) // an error here means that the caller has gone
		r.record(ctx, req, start, rpc.Code(), f.reason, f.message)
	})
}

// mediaTypes names the content types of a procedure.
func mediaTypes(route *route) string {
	if route != nil && route.stream != connect.StreamTypeUnary {
		return "it streams: use application/connect+json or application/connect+proto for Connect, with Connect's five bytes before each message, or application/grpc or application/grpc-web"
	}
	return "use application/json or application/proto for Connect, application/grpc or application/grpc-web"
}

// statusWriter answers with a status of its own.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w statusWriter) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }

// record tells of a request that did not become a call.
func (r *router) record(ctx context.Context, req *http.Request, start time.Time, code connect.Code, why reason, text string) {
	ctx = context.WithoutCancel(ctx)
	if r.observe != nil {
		r.observe(ctx, Outcome{Procedure: r.procedure(req), Reason: string(why)})
	}
	r.write(ctx, r.access.level(req.URL.Path, true), req, start, code, why, text)
}

// write writes the line of a request that did not become a call.
func (r *router) write(ctx context.Context, level slog.Level, req *http.Request, start time.Time, code connect.Code, why reason, text string) {
	r.access.write(ctx, level, []slog.Attr{
		slog.String("procedure", cut(req.URL.Path, 128)), slog.String("http_method", cut(req.Method, 16)),
		slog.String("protocol", protocolOf(req, true).name()), slog.String("peer", req.RemoteAddr), tookAttr(time.Since(start)),
		slog.String("reason", string(why)), slog.String("error", text), slog.String("code", code.String()),
	})
}

// growStack makes room for a whole call at once, while there is little to move:
// HTTP/2 runs each call on a new goroutine, whose small stack would be copied
// several times on the way down. A stream that waits would keep the room.
//
//go:noinline
func growStack(used bool) {
	if used { // never: the room is made on entry, and using it would cost as much again
		var room [10 << 10]byte
		touch(&room)
	}
}

//go:noinline
func touch(*[10 << 10]byte) {}

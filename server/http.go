package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2/connecthttp"
)

// router serves each procedure at its exact path, and everything else by
// telling what is served here.
type router struct {
	procedures map[string]http.Handler
	errors     *connecthttp.ErrorWriter
	help       string
}

func newRouter() *router {
	return &router{procedures: map[string]http.Handler{}, errors: connecthttp.NewErrorWriter()}
}

// Handle is called by connecthttp.Mount. Its subtree patterns, for unknown
// methods of known services, are left to the router's own answer.
func (r *router) Handle(pattern string, handler http.Handler) {
	if !strings.HasSuffix(pattern, "/") {
		r.procedures[pattern] = handler
	}
}

// describe prepares the text for callers that speak no RPC.
func (r *router) describe() {
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
	if handler, ok := r.procedures[req.URL.Path]; ok {
		peer := &Peer{Protocol: req.Proto, Addr: req.RemoteAddr, TLS: req.TLS}
		peer.ReadDeadline = func(t time.Time) error { return http.NewResponseController(w).SetReadDeadline(t) }
		handler.ServeHTTP(w, req.WithContext(WithPeer(req.Context(), peer)))
		return
	}
	service, method, isProcedure := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	if isProcedure && service != "" && method != "" && !strings.Contains(method, "/") && req.Method == http.MethodPost && r.errors.IsSupported(req) {
		f := refuse(reasonMethodNotSupported, fmt.Sprintf("this bridge does not serve %s; gRPC reflection lists what it serves", quote(service+"/"+method)))
		// An error here means that the caller has gone.
		_ = r.errors.Write(w, req, scope{}.build(f))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	if req.Method != http.MethodHead {
		_, _ = w.Write([]byte(r.help)) // an error here means that the caller has gone
	}
}

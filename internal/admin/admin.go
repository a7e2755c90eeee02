// Package admin is the listener for operators: whether the process is alive and
// ready, metrics, and profiles. It is apart from the callers' listener, so that
// it answers while that one drains.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"
)

const (
	readTimeout = 10 * time.Second
	// writeTimeout leaves room for a profile over its usual 30 s.
	writeTimeout = 90 * time.Second
	// scrapeTimeout is the usual scrape_timeout of Prometheus. Only a few scrapes
	// are answered at once, so that none may keep the others out for long.
	scrapeTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// State is where the bridge is in its life.
type State int32

const (
	// StateStarting: it does not take calls yet.
	StateStarting State = iota
	// StateServing: it takes calls.
	StateServing
	// StateDraining: it takes no new calls; those under way finish.
	StateDraining
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case StateStarting:
		return "starting"
	case StateServing:
		return "serving"
	case StateDraining:
		return "draining"
	}
	return "unknown"
}

// Options configures a [Server]. The zero value works.
type Options struct {
	// Metrics answers /metrics; nil = there is nothing at that path.
	Metrics http.Handler
	// Targets are the states of the targets by name, as /readyz shows them. They
	// do not decide on readiness: a bridge whose server is down still says so
	// better than nobody does. nil = they are not shown.
	Targets func() map[string]string
	// Pprof serves profiles under /debug/pprof/.
	Pprof bool
	// Logger receives what goes wrong with connections (Debug); nil discards.
	Logger *slog.Logger
}

// Server answers at
//
//	/healthz       200 as long as the process answers at all
//	/readyz        200 while the bridge takes calls, else 503
//	/metrics       Options.Metrics
//	/debug/pprof/  with Options.Pprof
//
// All methods may be called from many goroutines at once.
type Server struct {
	opts  Options
	state atomic.Int32
	http  *http.Server
}

// New returns a server in StateStarting. It does no I/O.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o}
	s.http = &http.Server{
		Handler:        s.routes(),
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	help := "/healthz\n/readyz\n"
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, readiness{Status: "alive"}) })
	mux.HandleFunc("GET /readyz", s.ready)
	if s.opts.Metrics != nil {
		help += "/metrics\n"
		mux.HandleFunc("GET /metrics", s.metrics)
	}
	if s.opts.Pprof {
		help += "/debug/pprof/\n"
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", withheld)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "There is nothing at this path; calls go to the other listener. Here are:\n\n"+help, http.StatusNotFound)
	})
	return mux
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	// An error here means that there is no connection to hold up.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
	s.opts.Metrics.ServeHTTP(w, r)
}

// withheld answers in place of pprof's command line, which may hold secrets.
func withheld(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the command line is not shown", http.StatusNotFound)
}

// readiness is the body of /healthz and /readyz.
type readiness struct {
	Status  string            `json:"status"`
	Targets map[string]string `json:"targets,omitempty"`
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	state := State(s.state.Load())
	code, body := http.StatusServiceUnavailable, readiness{Status: state.String()}
	if state == StateServing {
		code = http.StatusOK
	}
	if s.opts.Targets != nil {
		body.Targets = s.opts.Targets()
	}
	reply(w, code, body)
}

func reply(w http.ResponseWriter, code int, body readiness) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error here means that the other side has gone
}

// SetState says what /readyz answers from now on.
func (s *Server) SetState(state State) { s.state.Store(int32(state)) }

// Serve accepts connections on l until [Server.Shutdown], and returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %v: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown closes the listener and waits for requests under way; when ctx ends
// first they are cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // its error is about connections nobody needs
		return fmt.Errorf("requests were cut off: %w", err)
	}
	return nil
}

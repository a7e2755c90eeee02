package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// get asks a server without a listener.
func get(s *Server, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func decoded(t *testing.T, w *httptest.ResponseRecorder) readiness {
	t.Helper()
	var body readiness
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v in %q", err, w.Body)
	}
	return body
}

func TestReadinessFollowsTheStateAndHealthDoesNot(t *testing.T) {
	s := New(Options{Targets: func() map[string]string { return map[string]string{"a": "ready", "b": "reconnecting"} }})
	for _, step := range []struct {
		state State
		code  int
		text  string
	}{{StateStarting, 503, "starting"}, {StateServing, 200, "serving"}, {StateDraining, 503, "draining"}} {
		s.SetState(step.state)
		w := get(s, "GET", "/readyz")
		want := readiness{Status: step.text, Targets: map[string]string{"a": "ready", "b": "reconnecting"}}
		if diff := cmp.Diff(want, decoded(t, w)); w.Code != step.code || diff != "" {
			t.Errorf("%v: code %d, body (-want +got):\n%s", step.state, w.Code, diff)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%v: Cache-Control %q", step.state, got)
		}
		if w := get(s, "GET", "/healthz"); w.Code != 200 || decoded(t, w).Status != "alive" {
			t.Errorf("%v: /healthz has code %d and body %q", step.state, w.Code, w.Body)
		}
	}
}

func TestOnlyWhatWasAskedForIsServed(t *testing.T) {
	bare := New(Options{})
	full := New(Options{Pprof: true, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })})
	for _, tt := range []struct {
		s            *Server
		method, path string
		code         int
		text         string
	}{
		{bare, "GET", "/metrics", 404, "There is nothing at this path"},
		{bare, "GET", "/debug/pprof/", 404, "/readyz"},
		{bare, "GET", "/readyz", 503, `{"status":"starting"}`},
		{full, "GET", "/metrics", 200, "up 1"},
		{full, "GET", "/debug/pprof/", 200, "goroutine"},
		{full, "GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{full, "GET", "/debug/pprof/cmdline", 404, "not shown"},
		{full, "POST", "/healthz", 404, "/debug/pprof/"},
		{full, "HEAD", "/healthz", 200, ""},
	} {
		if w := get(tt.s, tt.method, tt.path); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("%s %s: code %d, %q; want %d with %q", tt.method, tt.path, w.Code, w.Body, tt.code, tt.text)
		}
	}
}

// listening returns a server that serves, and its address.
func listening(t *testing.T, o Options) (*Server, string, chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return s, "http://" + l.Addr().String(), served
}

func TestShutdownWaitsForRequestsAndThenRefuses(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	s, base, served := listening(t, Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "whole")
	})})
	answer := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	go func() {
		r, err := client.Get(base + "/metrics")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		answer <- string(body)
	}()
	<-begun
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	if err := <-served; err != nil { // the listener is closed, the request is not
		t.Error(err)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := <-answer; got != "whole" {
		t.Errorf("answer %q", got)
	}
	if r, err := client.Get(base + "/healthz"); err == nil {
		r.Body.Close()
		t.Error("it still answers")
	}
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func TestAScraperThatDoesNotReadIsCutOffSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ended := time.Now(), make(chan time.Duration, 1)
		s := New(Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					ended <- time.Since(start)
					return
				}
			}
		})})
		listener, served := make(pipes), make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		client, conn := net.Pipe()
		defer client.Close()
		listener <- conn
		if _, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if took := <-ended; took != scrapeTimeout {
			t.Errorf("it was cut off after %v, want %v", took, scrapeTimeout)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownCutsOffWhatDoesNotEnd(t *testing.T) {
	begun := make(chan struct{})
	ended := make(chan struct{})
	s, base, served := listening(t, Options{Metrics: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	failed := make(chan error, 1)
	go func() {
		r, err := client.Get(base + "/metrics")
		if err == nil {
			r.Body.Close()
		}
		failed <- err
	}()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	<-ended
	if err := <-served; err != nil {
		t.Error(err)
	}
}

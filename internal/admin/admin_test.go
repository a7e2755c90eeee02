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

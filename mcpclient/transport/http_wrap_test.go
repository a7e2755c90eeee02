package transport

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wrapped is an HTTP whose round tripper is f in front of the transport's own.
func wrapped(url string, f func(base http.RoundTripper, r *http.Request) (*http.Response, error)) *HTTP {
	return &HTTP{URL: url, NoGetStream: true, Wrap: func(base *http.Transport) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return f(base, r) })
	}}
}

func TestAWrapIsToldWhatARequestBelongsTo(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case http.MethodPost:
			w.Header().Set("Mcp-Session-Id", "s")
			w.Header().Set("Content-Type", "application/json")
			say(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
	})
	type told struct {
		Method         string
		Start, Session bool
		Affinity       any // of the connection, before the request
	}
	var mu sync.Mutex
	var got []told
	tr := wrapped(server.URL, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		out := OutgoingOf(r.Context())
		mu.Lock()
		defer mu.Unlock()
		got = append(got, told{r.Method, out.Start, out.Session, out.Affinity.Load()})
		if out.Start {
			out.Affinity.Store("bound")
		}
		return base.RoundTrip(r)
	})
	tr.NoGetStream = false
	one, two := dial(t, tr, nil), dial(t, tr, nil)
	for _, r := range []*Request{modern(1, "server/discover"), legacy(1, "initialize"), legacy(1, "tools/list")} {
		if _, err := one.Call(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	one.Ready(Negotiated{Version: legacyVersion})
	if _, err := two.Call(t.Context(), modern(1, "tools/list")); err != nil {
		t.Fatal(err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []told{
		{"POST", false, false, nil}, {"POST", true, false, nil}, {"POST", false, true, "bound"},
		{"GET", false, true, "bound"}, {"POST", false, false, nil}, {"DELETE", false, true, "bound"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestAWrapIsToldThatTheStreamOfHTTPWithSSEBeginsTheSession(t *testing.T) {
	old := new(oldServer)
	var mu sync.Mutex
	var got []string
	tr := wrapped(serve(t, old.ServeHTTP).URL+"/sse", func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		out := OutgoingOf(r.Context())
		kind := "free"
		if out.Start {
			kind = "start"
		} else if out.Session {
			kind = "session"
		}
		mu.Lock()
		got = append(got, r.Method+" "+kind)
		mu.Unlock()
		return base.RoundTrip(r)
	})
	conn, err := tr.dialSSE(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Call(t.Context(), legacy(1, "initialize")); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"GET start", "POST session"}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestAWrapMayRepeatOnlyWhatSurelyWasNotSent(t *testing.T) {
	refusedAt := serve(t, nil)
	refusedAt.Close()
	server := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, tt := range map[string]struct {
		url    string
		header http.Header
		unsent bool
		kind   ErrorKind
	}{
		"refused":                 {refusedAt.URL, nil, true, NotSent},
		"read by the server":      {server.URL, nil, false, Lost},
		"refused before anything": {server.URL, http.Header{"Bad Name": {"x"}}, false, NotSent},
	} {
		t.Run(name, func(t *testing.T) {
			var unsent atomic.Bool
			tr := wrapped(tt.url, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				maps.Copy(r.Header, tt.header)
				resp, err := base.RoundTrip(r)
				unsent.Store(OutgoingOf(r.Context()).Unsent())
				return resp, err
			})
			_, err := dial(t, tr, nil).Call(t.Context(), modern(1, "tools/call"))
			wantError(t, err, tt.kind)
			if unsent.Load() != tt.unsent {
				t.Errorf("unsent: %t, want %t", unsent.Load(), tt.unsent)
			}
		})
	}
}

func TestAnErrorOfAWrapIsPassedOn(t *testing.T) {
	tr := wrapped("http://h/", func(http.RoundTripper, *http.Request) (*http.Response, error) {
		return nil, &Error{Kind: NotSent, Message: "no replica is there", Err: errors.New("password")}
	})
	tr.Redact = func(s string) string { return strings.ReplaceAll(s, "password", "***") }
	_, err := dial(t, tr, nil).Call(t.Context(), modern(1, "x"))
	wantError(t, err, NotSent)
	if e, _ := errors.AsType[*Error](err); e.Message != "no replica is there" || strings.Contains(err.Error(), "password") {
		t.Errorf("error %q", err)
	}
}

func TestTheHostThatAWrapNamesIsInTheMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"refused": {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "other:1 refuses connections"},
		"other":   {errors.New("x"), "no connection to other:1 came about"},
	} {
		tr := wrapped("http://h/", func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			OutgoingOf(r.Context()).Host = "other:1"
			return nil, tt.err
		})
		_, err := dial(t, tr, nil).Call(t.Context(), modern(1, "x"))
		wantError(t, err, NotSent)
		if !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: error %q, want %q", name, err, tt.want)
		}
	}
}

func TestWhatAWrapKeepsForARequestOutlivesItsRedirects(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/moved", http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		say(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	var seen []any
	tr := wrapped(server.URL, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		out := OutgoingOf(r.Context())
		seen = append(seen, out.Value)
		out.Value = r.URL.Path
		return base.RoundTrip(r)
	})
	conn := dial(t, tr, nil)
	for range 2 {
		if _, err := conn.Call(t.Context(), modern(1, "x")); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]any{nil, "/", nil, "/"}, seen); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestOnlyRequestsWithAWrapAreDescribed(t *testing.T) {
	if out := OutgoingOf(context.Background()); out != nil {
		t.Errorf("got %v", out)
	}
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if OutgoingOf(r.Context()) != nil {
			t.Error("a request of another client is described")
		}
		return nil, errors.New("x")
	})}
	_, err := dial(t, &HTTP{URL: "http://h/", Client: client}, nil).Call(t.Context(), modern(1, "x"))
	wantError(t, err, Lost)
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(Supervise(os.Args[2:]))
	}
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(role))
	}
	goleak.VerifyTestMain(m)
}

// serve starts a server that is stopped after the test's connections.
func serve(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// dial returns a connection that is closed after the test.
func dial(t testing.TB, tr Transport, h Handler) Conn {
	t.Helper()
	conn, err := tr.Dial(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := conn.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return conn
}

func dialURL(t testing.TB, url string) Conn {
	t.Helper()
	return dial(t, &HTTP{URL: url}, nil)
}

const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

func modern(id int64, method string) *Request {
	r := legacy(id, method)
	r.Version, r.Modern = modernVersion, true
	return r
}

func legacy(id int64, method string) *Request {
	r := &Request{ID: jsonrpc.IntID(id), Method: method, Version: legacyVersion}
	r.Body = jsonrpc.AppendRequest(nil, r.ID, method, []byte(`{}`))
	return r
}

func notification(method string) *Request {
	return &Request{Method: method, Version: legacyVersion, Body: jsonrpc.AppendNotification(nil, method, nil)}
}

// initialize opens a session.
func initialize(t testing.TB, conn Conn) {
	t.Helper()
	r := legacy(1000, "initialize")
	r.Version = ""
	if _, err := conn.Call(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// wantError checks the kind of an error and returns it.
func wantError(t testing.TB, err error, kind ErrorKind) Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("error is %T %v, want kind %v", err, err, kind)
	}
	if e.Message == "" {
		t.Errorf("error of kind %v has no message", kind)
	}
	return *e
}

// wantResult checks a successful response.
func wantResult(t testing.TB, m *jsonrpc.Message, err error, id int64, result string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if m.Kind != jsonrpc.Response || m.ID != jsonrpc.IntID(id) || string(m.Result) != result {
		t.Fatalf("response = %+v, want id %d and result %s", m, id, result)
	}
}

// readRequest decodes the body of a POST; a test server may use it from any
// goroutine.
func readRequest(r *http.Request) *jsonrpc.Message {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return &jsonrpc.Message{}
	}
	m, err := jsonrpc.Decode(data)
	if err != nil {
		return &jsonrpc.Message{}
	}
	return m
}

// answer writes {} as the JSON response to r.
func answer(w http.ResponseWriter, r *http.Request) {
	m := readRequest(r)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, []byte(`{}`)))
}

// say writes to a peer, which may have left.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// events writes one event each and flushes.
func events(w http.ResponseWriter, data ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, d := range data {
		say(w, "data: %s\n\n", d)
	}
	_ = http.NewResponseController(w).Flush()
}

// inbox collects what the server sends.
type inbox struct {
	mu  sync.Mutex
	got []string
	c   chan string
}

func newInbox() *inbox { return &inbox{c: make(chan string, 10000)} }

func (b *inbox) handle(in Inbound) {
	s := in.Message.Method + "@" + in.Origin.String()
	b.mu.Lock()
	b.got = append(b.got, s)
	b.mu.Unlock()
	b.c <- s
}

func (b *inbox) list() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.got, " ")
}

func (b *inbox) next(t testing.TB) string {
	t.Helper()
	select {
	case s := <-b.c:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("nothing arrived")
		return ""
	}
}

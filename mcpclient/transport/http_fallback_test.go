package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func initializeRequest(id int64) *Request {
	r := legacy(id, "initialize")
	r.Version = ""
	return r
}

func TestAServerThatOnlySpeaksTheOldTransportIsFoundByInitialize(t *testing.T) {
	for name, refuse := range map[string]http.HandlerFunc{
		"404 html": fixed(404, "text/html", "<html>Cannot POST /sse</html>"),
		"405":      fixed(405, "text/plain", "Method Not Allowed"),
		"400 text": fixed(400, "text/plain", "Missing sessionId"),
		"400 rpc":  fixed(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: no session"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			old := &oldServer{put: refuse}
			server := serve(t, old.ServeHTTP)
			tr := &HTTP{URL: server.URL + "/sse"}
			box := newInbox()
			conn := dial(t, tr, box.handle)
			if !conn.PerRequestStreams() {
				t.Error("not streamable before initialize")
			}
			_, err := conn.Call(t.Context(), modern(1, "server/discover"))
			wantError(t, err, Status)
			m, err := conn.Call(t.Context(), initializeRequest(2))
			wantResult(t, m, err, 2, "{}")
			if conn.PerRequestStreams() {
				t.Error("still streamable after the fallback")
			}
			conn.Ready(Negotiated{Version: legacyVersion})
			if err := conn.Notify(t.Context(), notification("notifications/initialized")); err != nil {
				t.Fatal(err)
			}
			old.event(`{"id":"q","method":"ask"}`)
			if got := box.next(t); got != "ask@none" {
				t.Errorf("inbound %s", got)
			}
			if err := conn.Reply(t.Context(), jsonrpc.AppendResult(nil, jsonrpc.StringID("q"), nil), legacyVersion); err != nil {
				t.Fatal(err)
			}
			m, err = conn.Call(t.Context(), legacy(3, "ping"))
			wantResult(t, m, err, 3, "{}")
			old.restart()
			<-conn.Done()
			wantError(t, conn.Err(), Lost)
			_, err = conn.Call(t.Context(), legacy(4, "ping"))
			wantError(t, err, NotSent)
			// The next connection knows.
			again := dial(t, tr, nil)
			if again.PerRequestStreams() {
				t.Error("the verdict is forgotten")
			}
			m, err = again.Call(t.Context(), initializeRequest(5))
			wantResult(t, m, err, 5, "{}")
			want := strings.Join([]string{
				"POST /sse server/discover", "POST /sse initialize", "GET /sse ",
				"POST /message?sessionId=1 initialize", "POST /message?sessionId=1 notifications/initialized",
				"POST /message?sessionId=1 ", "POST /message?sessionId=1 ping",
				"GET /sse ", "POST /message?sessionId=2 initialize",
			}, "\n")
			if got := old.requests(); got != want {
				t.Errorf("requests:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestOnlyTheRefusalsOfTheSpecLeadToTheOldTransport(t *testing.T) {
	rpc := func(status int, code string) http.HandlerFunc {
		return fixed(status, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":`+code+`,"message":"m"}}`)
	}
	for name, tt := range map[string]struct {
		refuse  http.HandlerFunc
		request *Request
		kind    ErrorKind
		never   bool
	}{
		"401":              {fixed(401, "", ""), initializeRequest(1), Status, false},
		"403":              {fixed(403, "", ""), initializeRequest(1), Status, false},
		"406":              {fixed(406, "", ""), initializeRequest(1), Status, false},
		"500":              {fixed(500, "", ""), initializeRequest(1), Status, false},
		"redirect":         {fixed(302, "", ""), initializeRequest(1), Status, false},
		"html success":     {fixed(200, "text/html", "<html>"), initializeRequest(1), Malformed, false},
		"version":          {rpc(400, "-32022"), initializeRequest(1), Status, false},
		"unknown method":   {rpc(404, "-32601"), initializeRequest(1), Status, false},
		"header":           {rpc(400, "-32020"), initializeRequest(1), Status, false},
		"capability":       {rpc(400, "-32021"), initializeRequest(1), Status, false},
		"another method":   {fixed(404, "", ""), legacy(1, "ping"), Status, false},
		"modern":           {fixed(404, "", ""), modern(1, "initialize"), Status, false},
		"switched off":     {fixed(404, "", ""), initializeRequest(1), Status, true},
		"switched off 405": {fixed(405, "", ""), initializeRequest(1), Status, true},
	} {
		t.Run(name, func(t *testing.T) {
			old := &oldServer{put: tt.refuse}
			tr := &HTTP{URL: serve(t, old.ServeHTTP).URL + "/sse"}
			if tt.never {
				tr.SSEFallback = SSENever
			}
			conn := dial(t, tr, nil)
			_, err := conn.Call(t.Context(), tt.request)
			wantError(t, err, tt.kind)
			if strings.Contains(old.requests(), "GET") || !conn.PerRequestStreams() {
				t.Errorf("requests:\n%s", old.requests())
			}
		})
	}
}

func TestWithoutAnEndpointEventTheFirstErrorCounts(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"405": fixed(405, "", ""), "500": fixed(500, "", ""), "json": fixed(200, "application/json", "{}"),
		"no event": fixed(200, "text/event-stream", ""), "message": fixed(200, "text/event-stream", "data: {\"method\":\"n\"}\n\n"),
		"foreign endpoint": fixed(200, "text/event-stream", "event: endpoint\ndata: http://evil.invalid/\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			old := &oldServer{put: fixed(400, "text/plain", "first"), get: get}
			tr := &HTTP{URL: serve(t, old.ServeHTTP).URL + "/sse"}
			conn := dial(t, tr, nil)
			_, err := conn.Call(t.Context(), initializeRequest(1))
			if e := wantError(t, err, Status); e.Status != 400 || !strings.Contains(e.Message, "first") {
				t.Errorf("error %+v", e)
			}
			if got := old.requests(); got != "POST /sse initialize\nGET /sse " || tr.onlySSE.Load() {
				t.Errorf("requests:\n%s", got)
			}
		})
	}
}

// quiet answers POSTs with 405 and GETs with an event stream without events.
type quiet struct{}

func (quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		return &http.Response{StatusCode: 405, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r,
		Body: readCloser{silence{r.Context()}, io.NopCloser(nil)},
	}, nil
}

type silence struct {
	//nolint:containedctx // a body that lives as long as its request
	ctx context.Context
}

func (s silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func TestASilentStreamIsNoOldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &HTTP{URL: "http://h/mcp", Client: &http.Client{Transport: quiet{}}}
		conn := dial(t, tr, nil)
		start := time.Now()
		_, err := conn.Call(t.Context(), initializeRequest(1))
		if e := wantError(t, err, Status); e.Status != 405 {
			t.Errorf("error %+v", e)
		}
		if took := time.Since(start); took != endpointWait {
			t.Errorf("took %v", took)
		}
		tr.onlySSE.Store(true) // it was an old one before
		conn = dial(t, tr, nil)
		if !conn.PerRequestStreams() || tr.onlySSE.Load() {
			t.Error("the verdict stands")
		}
		tr.onlySSE.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := tr.Dial(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || !tr.onlySSE.Load() {
			t.Errorf("Dial: %v", err)
		}
		tr.onlySSE.Store(false)
		// Close does not wait for an attempt.
		conn, err = tr.Dial(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Call(context.Background(), initializeRequest(1))
			failed <- err
		}()
		synctest.Wait()
		start = time.Now()
		if err := conn.Close(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		wantError(t, <-failed, Status)
		<-conn.Done()
		wantError(t, conn.Err(), Closed)
		_, err = conn.Call(t.Context(), initializeRequest(1))
		wantError(t, err, Closed)
	})
}

func TestAVerdictThatStopsWorkingIsForgotten(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	old := new(oldServer)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch s := int(status.Load()); {
		case s == 200:
			old.ServeHTTP(w, r)
		case r.Method == http.MethodGet:
			w.WriteHeader(s)
		default:
			answer(w, r)
		}
	}))
	tr := &HTTP{URL: server.URL + "/sse"}
	conn := dial(t, tr, nil)
	initialize(t, conn)
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []int32{503, 401, 429} { // says nothing about the transport
		status.Store(s)
		_, err := tr.Dial(t.Context(), nil)
		if e := wantError(t, err, Status); e.Status != int(s) || !tr.onlySSE.Load() {
			t.Errorf("error %+v", e)
		}
	}
	status.Store(405)
	conn = dial(t, tr, nil)
	initialize(t, conn)
	if !conn.PerRequestStreams() || tr.onlySSE.Load() {
		t.Error("the verdict stands")
	}
	status.Store(200)
	tr.onlySSE.Store(true)
	server.Close()
	_, err := tr.Dial(t.Context(), nil)
	wantError(t, err, NotSent)
	if !tr.onlySSE.Load() {
		t.Error("a server that is down lost its verdict")
	}
}

func TestClosingAfterTheFallbackLeavesNothing(t *testing.T) {
	old := new(oldServer)
	entered := make(chan struct{})
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return true
		}
		w.WriteHeader(http.StatusAccepted)
		close(entered)
		return false
	}
	conn := dial(t, &HTTP{URL: serve(t, old.ServeHTTP).URL + "/sse"}, nil)
	initialize(t, conn)
	waiting := call(t.Context(), conn, 1)
	<-entered
	for range 2 {
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, (<-waiting).err, Closed)
	wantError(t, conn.Err(), Closed)
	if strings.Contains(old.requests(), "DELETE") {
		t.Error("a session was deleted")
	}
}

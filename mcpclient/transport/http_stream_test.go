package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func TestFault53_MessagesOfAStreamArriveInOrderBeforeTheResponse(t *testing.T) {
	box := newInbox()
	seen := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		readRequest(r)
		events(w, `{"method":"first"}`)
		<-seen // the first must arrive while the call is open
		var many []string
		for i := range 1000 {
			many = append(many, fmt.Sprintf(`{"method":"n%d"}`, i))
		}
		events(w, many...)
		events(w, `{"id":9,"method":"ask"}`, pong, `{"method":"late"}`)
	})
	conn := dial(t, &HTTP{URL: server.URL}, func(in Inbound) {
		box.handle(in)
		if in.Message.Method == "first" {
			close(seen)
		}
	})
	m, err := conn.Call(t.Context(), modern(1, "x"))
	wantResult(t, m, err, 1, `{"ok":true}`)
	got := strings.Fields(box.list())
	if len(got) != 1002 || got[0] != "first@1" || got[1] != "n0@1" || got[1000] != "n999@1" || got[1001] != "ask@1" {
		t.Errorf("%d messages: %.200v", len(got), got)
	}
}

func TestAStreamThatStaysOpenDoesNotHoldTheResponse(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		events(w, string(jsonrpc.AppendResult(nil, m.ID, nil)))
		<-r.Context().Done()
	})
	conn := dialURL(t, server.URL)
	start := time.Now()
	for id := range int64(50) {
		m, err := conn.Call(t.Context(), modern(id, "x"))
		wantResult(t, m, err, id, "{}")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("50 calls took %v", took)
	}
}

func TestALegacyStreamIsResumedAfterTheWaitTheServerAskedFor(t *testing.T) {
	var closed, back atomic.Int64
	var log []string
	var mu sync.Mutex
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		mu.Lock()
		log = append(log, r.Method+" "+r.Header.Get("Last-Event-Id")+" "+r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("Accept")+" "+r.Header.Get("X-Trace"))
		n := len(log)
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Mcp-Session-Id", "s")
		switch {
		case m.Method == "initialize":
			say(w, "data: %s\n\n", jsonrpc.AppendResult(nil, m.ID, nil))
		case r.Method == http.MethodPost:
			say(w, "id: e1\nretry: 200\ndata:\n\nid: e2\ndata: {\"method\":\"a\"}\n\n")
			closed.Store(time.Now().UnixNano())
		case n == 3:
			back.Store(time.Now().UnixNano())
			w.WriteHeader(http.StatusBadGateway) // once
		case n == 4:
			say(w, "id: e3\ndata: {\"method\":\"b\"}\n\n")
		default:
			say(w, "data: %s\n\n", pong)
		}
	})
	box := newInbox()
	conn := dial(t, &HTTP{URL: server.URL, NoGetStream: true}, box.handle)
	initialize(t, conn)
	r := legacy(1, "tools/call")
	r.Header = http.Header{"X-Trace": {"t"}}
	m, err := conn.Call(t.Context(), r)
	wantResult(t, m, err, 1, `{"ok":true}`)
	if got := box.list(); got != "a@1 b@1" {
		t.Errorf("inbound: %s", got)
	}
	mu.Lock()
	got := strings.Join(log, "\n")
	mu.Unlock()
	post, get := " application/json, text/event-stream", " text/event-stream"
	want := "POST  " + post + " \nPOST  s" + post + " t\nGET e2 s" + get + " t\nGET e2 s" + get + " t\nGET e3 s" + get + " t"
	if got != want {
		t.Errorf("requests:\n%s\nwant:\n%s", got, want)
	}
	if wait := time.Duration(back.Load() - closed.Load()); wait < 190*time.Millisecond {
		t.Errorf("came back after %v, asked for 200ms", wait)
	}
}

func TestModernStreamsAndStreamsWithoutIDsAreNotResumed(t *testing.T) {
	var gets atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			gets.Add(1)
		}
		m := readRequest(r)
		w.Header().Set("Content-Type", "text/event-stream")
		if m.Method == "ids" {
			say(w, "id: 1\nretry: 1\n")
		}
		say(w, "data: {\"method\":\"n\"}\n\n")
	})
	conn := dialURL(t, server.URL)
	for _, r := range []*Request{modern(1, "ids"), legacy(1, "none")} {
		_, err := conn.Call(t.Context(), r)
		wantError(t, err, Lost)
	}
	if gets.Load() != 0 {
		t.Errorf("%d GETs", gets.Load())
	}
}

func TestAResumeThatIsRefusedLosesTheRequest(t *testing.T) {
	for _, status := range []int{405, 400, 200, 401, 404, 410, 302, 307} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var posts atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				m := readRequest(r)
				w.Header().Set("Mcp-Session-Id", "s")
				switch {
				case r.Method == http.MethodGet:
					w.WriteHeader(status)
				case m.Method == "initialize":
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, nil))
				case r.Method == http.MethodPost:
					posts.Add(1)
					w.Header().Set("Content-Type", "text/event-stream")
					say(w, "id: 1\nretry: 1\ndata:\n\n")
				}
			})
			conn := dialURL(t, server.URL)
			initialize(t, conn)
			_, err := conn.Call(t.Context(), legacy(1, "x"))
			if e := wantError(t, err, Lost); e.Status != 0 || errors.Is(err, &Error{Kind: SessionGone}) || errors.Is(err, &Error{Kind: Status}) {
				t.Errorf("status %d", e.Status)
			}
			if status != 404 {
				return
			}
			_, err = conn.Call(t.Context(), legacy(2, "x")) // the session is known to be gone
			wantError(t, err, SessionGone)
			if posts.Load() != 1 {
				t.Errorf("%d POSTs", posts.Load())
			}
		})
	}
}

func TestACallerThatLeavesWhileResumingIsNotHeld(t *testing.T) {
	ended := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		readRequest(r)
		w.Header().Set("Content-Type", "text/event-stream")
		say(w, "id: 1\nretry: 3600000\ndata:\n\n")
		close(ended)
	})
	conn := dialURL(t, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-ended
		cancel()
	}()
	if _, err := conn.Call(ctx, legacy(1, "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
}

func TestTheGETStreamReconnectsWithItsLastEvent(t *testing.T) {
	lastIDs := make(chan string, 10)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			answer(w, r)
			return
		}
		if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Mcp-Protocol-Version") != legacyVersion || r.Header.Get("Mcp-Method") != "" {
			t.Errorf("GET headers: %v", r.Header)
		}
		id := r.Header.Get("Last-Event-Id")
		lastIDs <- id
		w.Header().Set("Content-Type", "text/event-stream")
		switch id {
		case "":
			say(w, "id: 1\nretry: 60\ndata: {\"method\":\"a\"}\n\ndata: oops\n\ndata: {\"id\":1,\"result\":{}}\n\n")
		case "1":
			say(w, "id: 2\ndata: {\"method\":\"big%s\"}\n\nid: 3\ndata: {\"id\":5,\"method\":\"b\"}\n\n", strings.Repeat("x", 1<<20))
		default:
			events(w)
			<-r.Context().Done()
		}
	})
	box := newInbox()
	conn := dial(t, &HTTP{URL: server.URL, MaxReplyBytes: 1 << 20}, box.handle)
	initialize(t, conn)
	conn.Ready(Negotiated{Version: legacyVersion})
	conn.Ready(Negotiated{Version: legacyVersion}) // a second one opens nothing
	for _, want := range []string{"", "1", "3"} {
		select {
		case got := <-lastIDs:
			if got != want {
				t.Errorf("Last-Event-ID %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no further GET")
		}
	}
	if got := box.next(t) + " " + box.next(t); got != "a@none b@none" {
		t.Errorf("inbound: %s", got)
	}
	if len(lastIDs) != 0 {
		t.Error("a GET too many")
	}
}

func TestFault28_AServerWithoutGETStreamIsLeftAlone(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"405": fixed(405, "", ""), "404": fixed(404, "", ""), "400": fixed(400, "", ""), "401": fixed(401, "", ""),
		"501": fixed(501, "", ""), "200 json": fixed(200, "application/json", "{}"), "302": fixed(302, "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			var gets atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					gets.Add(1)
					handler(w, r)
					return
				}
				w.Header().Set("Mcp-Session-Id", "s")
				answer(w, r)
			})
			conn := dialHTTP(t, &HTTP{URL: server.URL})
			initialize(t, conn)
			s := &sharedStream{retry: -1}
			if conn.listenOnce(s) {
				t.Error("another attempt is due")
			}
			m, err := conn.Call(t.Context(), legacy(1, "x"))
			wantResult(t, m, err, 1, "{}")
			if gets.Load() != 1 {
				t.Errorf("%d GETs", gets.Load())
			}
		})
	}
}

func TestModernConnectionsOpenNoGETStream(t *testing.T) {
	var gets, deletes atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			gets.Add(1)
		case http.MethodDelete:
			deletes.Add(1)
		}
		w.Header().Set("Mcp-Session-Id", "s")
		answer(w, r)
	})
	conn := dialURL(t, server.URL)
	if _, err := conn.Call(t.Context(), modern(1, "server/discover")); err != nil {
		t.Fatal(err)
	}
	conn.Ready(Negotiated{Modern: true, Version: modernVersion})
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if gets.Load()+deletes.Load() != 0 {
		t.Errorf("%d GETs, %d DELETEs", gets.Load(), deletes.Load())
	}
}

// dialHTTP returns the connection behind the interface.
func dialHTTP(t *testing.T, h *HTTP) *httpConn { return dialHTTPWith(t, h, nil) }

func dialHTTPWith(t *testing.T, h *HTTP, handler Handler) *httpConn {
	t.Helper()
	h.SSEFallback = SSENever
	conn, ok := dial(t, h, handler).(*httpConn)
	if !ok {
		t.Fatal("not an HTTP connection")
	}
	return conn
}

func TestFault29_GETStreamFailuresAreRetriedSlowly(t *testing.T) {
	for _, status := range []int{500, 502, 503, 429, 408} {
		if !temporary(status) {
			t.Errorf("%d is final", status)
		}
	}
	var last time.Duration
	for misses, most := range []time.Duration{1, 1, 2, 4, 8, 16, 30, 30, 30} {
		d := reconnectWait(-1, misses, misses)
		if d < most*time.Second/2 || d > most*time.Second {
			t.Errorf("after %d misses: %v, want up to %v s", misses, d, int(most))
		}
		last = d
	}
	if last < 15*time.Second {
		t.Errorf("last wait %v", last)
	}
	if d := reconnectWait(200*time.Millisecond, 1, 1); d != 200*time.Millisecond {
		t.Errorf("asked for 200ms: %v", d)
	}
	if d := reconnectWait(0, 0, 0); d != leastRetry {
		t.Errorf("asked for 0: %v", d)
	}
	if d := reconnectWait(time.Minute, 5, 5); d != time.Minute {
		t.Errorf("asked for a minute: %v", d)
	}
	// An accepted stream that ends at once counts as a miss.
	server := httptest.NewServer(fixed(200, "text/event-stream", ""))
	defer server.Close()
	conn := dialHTTP(t, &HTTP{URL: server.URL})
	s := &sharedStream{retry: -1}
	for want := range 5 {
		if s.misses != want || !conn.listenOnce(s) {
			t.Errorf("attempt %d: %d misses", want, s.misses)
		}
	}
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	if s := new(sharedStream); !dialHTTP(t, &HTTP{URL: busy.URL}).listenOnce(s) || s.after != 7*time.Second {
		t.Errorf("Retry-After: %v", s.after)
	}
}

func TestReadyWaitsUntilTheGETStreamIsOpenButNotForEver(t *testing.T) {
	for name, answers := range map[string]bool{"it opens": true, "it is never answered": false} {
		t.Run(name, func(t *testing.T) {
			var arrived atomic.Bool
			over := make(chan struct{})
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					return
				}
				arrived.Store(true)
				if answers {
					w.Header().Set("Content-Type", "text/event-stream")
					w.WriteHeader(http.StatusOK)
					if f, ok := w.(http.Flusher); ok {
						f.Flush()
					}
				}
				select {
				case <-r.Context().Done():
				case <-over:
				}
			}))
			t.Cleanup(srv.Close)
			t.Cleanup(func() { close(over) })
			conn := dialHTTP(t, &HTTP{URL: srv.URL})
			conn.Ready(Negotiated{Version: "2025-11-25"})
			if !arrived.Load() {
				t.Error("the server had not seen the GET yet, and would drop what it asks there")
			}
		})
	}
}

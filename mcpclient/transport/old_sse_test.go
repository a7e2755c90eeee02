package transport

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func TestTheOldTransportPostsToTheEndpointAndReadsTheStream(t *testing.T) {
	old := new(oldServer)
	server := serve(t, old.ServeHTTP)
	box := newInbox()
	tr := &SSE{URL: server.URL + "/sse", Header: http.Header{"Authorization": {"Bearer x"}}}
	conn := dial(t, tr, box.handle)
	if tr.Name() != NameSSE || conn.PerRequestStreams() {
		t.Error("name or streams")
	}
	initialize(t, conn)
	if err := conn.Notify(t.Context(), notification("notifications/initialized")); err != nil {
		t.Fatal(err)
	}
	conn.Ready(Negotiated{Version: legacyVersion})
	old.event(`{"id":"q","method":"ask"}`)
	if got := box.next(t); got != "ask@none" {
		t.Errorf("inbound %s", got)
	}
	if err := conn.Reply(t.Context(), jsonrpc.AppendResult(nil, jsonrpc.StringID("q"), nil), legacyVersion); err != nil {
		t.Fatal(err)
	}
	r := legacy(1, "tools/call")
	r.Header = http.Header{"Traceparent": {"00-1"}}
	m, err := conn.Call(t.Context(), r)
	wantResult(t, m, err, 1, "{}")
	h := old.posted()
	for name, want := range map[string]string{"Content-Type": "application/json", "Authorization": "Bearer x", "Traceparent": "00-1", "Mcp-Session-Id": ""} {
		if h.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, h.Get(name), want)
		}
	}
	for range 2 {
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, conn.Err(), Closed)
	_, err = conn.Call(t.Context(), legacy(2, "x"))
	wantError(t, err, Closed)
	want := "GET /sse \n" + strings.Join([]string{
		"POST /message?sessionId=1 initialize", "POST /message?sessionId=1 notifications/initialized",
		"POST /message?sessionId=1 ", "POST /message?sessionId=1 tools/call",
	}, "\n")
	if got := old.requests(); got != want {
		t.Errorf("requests:\n%s\nwant:\n%s", got, want)
	}
}

func TestEndpointsOfEveryFormAreUsedIfTheyAreOfOneOrigin(t *testing.T) {
	for name, tt := range map[string]struct{ endpoint, path, says string }{
		"root-relative":   {"/messages/?session_id=a%20b", "/messages/?session_id=a%20b", ""},
		"same path":       {"/sse?sessionId=1", "/sse?sessionId=1", ""},
		"relative":        {"message?x=1#f", "/message?x=1", ""},
		"query only":      {"?x=1", "/sse?x=1", ""},
		"space around":    {" /m ", "/m", ""},
		"absolute":        {"http://HOST/m?x=1", "/m?x=1", ""},
		"network path":    {"//HOST/m", "/m", ""},
		"other host":      {"http://evil.invalid/m", "", "evil.invalid"},
		"other port":      {"http://127.0.0.1:1/m", "", "another origin"},
		"other scheme":    {"https://HOST/m", "", "another origin"},
		"no http":         {"file:///etc/passwd", "", "another origin"},
		"user in the URL": {"http://u:p@HOST/m", "/m", ""},
		"empty":           {" ", "", "no URL"},
		"unparsable":      {"http://[::1/m", "", "no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			old := new(oldServer)
			server := serve(t, old.ServeHTTP)
			old.endpoint = strings.Replace(tt.endpoint, "HOST", strings.TrimPrefix(server.URL, "http://"), 1)
			if tt.says != "" {
				_, err := (&SSE{URL: server.URL + "/sse"}).Dial(t.Context(), nil)
				if e := wantError(t, err, Malformed); !strings.Contains(e.Message, tt.says) {
					t.Errorf("message %q does not say %q", e.Message, tt.says)
				}
				return
			}
			conn := dial(t, &SSE{URL: server.URL + "/sse"}, nil)
			m, err := conn.Call(t.Context(), legacy(1, "x"))
			wantResult(t, m, err, 1, "{}")
			if got := old.requests(); got != "GET /sse \nPOST "+tt.path+" x" {
				t.Errorf("requests:\n%s", got)
			}
			if old.posted().Get("Authorization") != "" {
				t.Error("the endpoint's credentials were used")
			}
		})
	}
}

func TestAServerWithoutEndpointEventIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		kind    ErrorKind
		says    string
	}{
		"405":           {fixed(405, "", ""), Status, "405"},
		"401":           {fixed(401, "", ""), Status, "credentials"},
		"json":          {fixed(200, "application/json", "{}"), Malformed, "application/json"},
		"html":          {fixed(200, "text/html", "<html>"), Malformed, "text/html"},
		"no content":    {fixed(204, "", ""), Malformed, "no body"},
		"ends":          {fixed(200, "text/event-stream", ": hello\n\n"), Malformed, "ended before"},
		"message first": {fixed(200, "text/event-stream", "data: {\"method\":\"n\"}\n\n"), Malformed, "began with a message"},
		"301":           {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusMovedPermanently) }, Status, "redirect"},
		"other origin": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.invalid/", http.StatusTemporaryRedirect)
		}, Status, "not followed"},
		"breaks off":     {func(w http.ResponseWriter, _ *http.Request) { events(w); panic(http.ErrAbortHandler) }, Malformed, "ended before"},
		"endpoint limit": {fixed(200, "text/event-stream", "event: endpoint\ndata: /"+strings.Repeat("x", 5000)+"\n\n"), Malformed, "ended before"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&SSE{URL: serve(t, tt.handler).URL, MaxReplyBytes: 1000}).Dial(t.Context(), nil)
			if e := wantError(t, err, tt.kind); !strings.Contains(e.Message, tt.says) {
				t.Errorf("message %q does not say %q", e.Message, tt.says)
			}
		})
	}
	if err := (&SSE{URL: "ftp://h"}).Validate(); err == nil {
		t.Error("ftp is valid")
	}
	_, err := (&SSE{URL: "ftp://h"}).Dial(t.Context(), nil)
	wantError(t, err, NotSent)
}

func TestTheWaitForTheEndpointEndsWithTheContext(t *testing.T) {
	entered := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		events(w)
		close(entered)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	if _, err := (&SSE{URL: server.URL}).Dial(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
}

func TestTheEndOfTheDialContextDoesNotEndTheStream(t *testing.T) {
	old := new(oldServer)
	server := serve(t, old.ServeHTTP)
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := (&SSE{URL: server.URL + "/sse"}).Dial(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	cancel()
	m, err := conn.Call(t.Context(), legacy(1, "x"))
	wantResult(t, m, err, 1, "{}")
}

func TestARefusedPostFailsItsRequestAlone(t *testing.T) {
	old := new(oldServer)
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		switch m.Method {
		case "bad":
			w.WriteHeader(http.StatusBadRequest)
			say(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}`)
		case "down":
			w.WriteHeader(http.StatusBadGateway)
		case "cut":
			panic(http.ErrAbortHandler)
		case "wait":
			w.WriteHeader(http.StatusAccepted) // answered later
		default:
			return true
		}
		return false
	}
	conn := dial(t, &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse"}, nil)
	waiting := call(t.Context(), named(conn, "wait"), 1)
	_, err := conn.Call(t.Context(), legacy(2, "bad"))
	if e := wantError(t, err, Status); e.Status != 400 || e.RPC == nil || e.RPC.Code != -32600 {
		t.Errorf("error %+v", e)
	}
	_, err = conn.Call(t.Context(), legacy(3, "down"))
	wantError(t, err, Status)
	_, err = conn.Call(t.Context(), legacy(4, "cut"))
	wantError(t, err, Lost)
	wantError(t, conn.Notify(t.Context(), notification("down")), Status)
	m, err := conn.Call(t.Context(), legacy(5, "fine"))
	wantResult(t, m, err, 5, "{}")
	old.event(`{"id":1,"result":{"late":1}}`)
	got := <-waiting
	wantResult(t, got.msg, got.err, 1, `{"late":1}`)
	_, err = conn.Call(t.Context(), &Request{Body: []byte("{}")})
	wantError(t, err, Invalid)
	broken := legacy(6, "x")
	broken.Body = []byte("{\n}")
	_, err = conn.Call(t.Context(), broken)
	wantError(t, err, Invalid)
}

// named makes call use another method.
func named(c Conn, method string) Conn { return namedConn{c, method} }

type namedConn struct {
	Conn
	method string
}

func (n namedConn) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	return n.Conn.Call(ctx, &Request{ID: r.ID, Method: n.method, Body: jsonrpc.AppendRequest(nil, r.ID, n.method, nil)})
}

func TestAPostThatIsNeverAnsweredHoldsNobody(t *testing.T) {
	old := new(oldServer)
	hung := make(chan string, 10)
	release := make(chan struct{})
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		if strings.HasPrefix(m.Method, "hang") {
			hung <- m.Method
			if m.Method == "hang but answer" {
				old.event(string(jsonrpc.AppendResult(nil, m.ID, nil)))
			}
			<-release
			return false
		}
		return true
	}
	server := serve(t, old.ServeHTTP)
	defer close(release)
	conn := dial(t, &SSE{URL: server.URL + "/sse"}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	hanging := call(ctx, named(conn, "hang"), 1)
	<-hung
	m, err := conn.Call(t.Context(), legacy(2, "fine"))
	wantResult(t, m, err, 2, "{}")
	m, err = conn.Call(t.Context(), legacy(3, "hang but answer"))
	wantResult(t, m, err, 3, "{}")
	cancel()
	if got := <-hanging; !errors.Is(got.err, context.Canceled) {
		t.Errorf("error %v", got.err)
	}
	if _, err := conn.Call(ctx, legacy(1, "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Call with a dead context: %v", err)
	}
	pending := call(t.Context(), named(conn, "hang"), 4)
	<-hung
	<-hung // the answered one
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantError(t, (<-pending).err, Closed)
}

func TestFault55_TheEndOfTheOldStreamEndsTheConnectionAndANewOneUsesTheNewEndpoint(t *testing.T) {
	old := new(oldServer)
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		if m.Method != "wait" {
			return true
		}
		w.WriteHeader(http.StatusAccepted)
		return false
	}
	tr := &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse"}
	conn := dial(t, tr, nil)
	initialize(t, conn)
	waiting := call(t.Context(), named(conn, "wait"), 1)
	if _, err := conn.Call(t.Context(), legacy(2, "x")); err != nil {
		t.Fatal(err)
	}
	old.restart()
	<-conn.Done()
	wantError(t, conn.Err(), Lost)
	if got := <-waiting; !errors.Is(got.err, &Error{Kind: Lost}) && !errors.Is(got.err, &Error{Kind: NotSent}) {
		t.Errorf("pending call: %v", got.err)
	}
	_, err := conn.Call(t.Context(), legacy(3, "x"))
	wantError(t, err, NotSent)
	wantError(t, conn.Notify(t.Context(), notification("n")), NotSent)
	again := dial(t, tr, nil)
	initialize(t, again)
	if got := old.requests(); !strings.HasSuffix(got, "POST /message?sessionId=2 initialize") {
		t.Errorf("requests:\n%s", got)
	}
}

func TestFault55_AnEndpointThatForgotTheStreamIsASessionThatIsGone(t *testing.T) {
	var mu sync.Mutex
	status := http.StatusNotFound
	old := new(oldServer)
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if m.Method == "initialize" && status != http.StatusNotFound || m.Method == "fine" {
			return true
		}
		w.WriteHeader(http.StatusNotFound)
		return false
	}
	server := serve(t, old.ServeHTTP)
	// As the first answer a 404 says that the endpoint is wrong.
	conn := dial(t, &SSE{URL: server.URL + "/sse"}, nil)
	_, err := conn.Call(t.Context(), legacy(1, "initialize"))
	wantError(t, err, Status)
	mu.Lock()
	status = http.StatusOK
	mu.Unlock()
	initialize(t, conn)
	_, err = conn.Call(t.Context(), legacy(2, "tools/call"))
	if e := wantError(t, err, SessionGone); e.Status != 404 {
		t.Errorf("error %+v", e)
	}
	before := old.requests()
	_, err = conn.Call(t.Context(), legacy(3, "fine"))
	wantError(t, err, SessionGone)
	wantError(t, conn.Reply(t.Context(), []byte("{}"), ""), SessionGone)
	if old.requests() != before {
		t.Error("the dead endpoint was used again")
	}
}

func TestNoiseOnTheOldStreamHurtsNobody(t *testing.T) {
	old := new(oldServer)
	old.early = bom + ": welcome\n\nevent: ping\ndata: {}\n\nretry: 10\n\n"
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		if m.Kind == jsonrpc.Request {
			w.WriteHeader(http.StatusAccepted)
			old.raw("data: oops\n\nevent: ping\ndata: " + pong + "\n\n: c\n\ndata:\n\ndata: {\"id\":77,\"result\":{}}\n\n" +
				"event: endpoint\ndata: http://evil.invalid/\n\ndata: {\"id\":null,\"result\":{}}\n\n" +
				"event: message\r\ndata: [{\"method\":\"a\"},\r\ndata:{\"id\":1,\"result\":{\"ok\":true}}]\r\n\r\n" + "data: " + pong + "\n\n")
			return false
		}
		return true
	}
	box := newInbox()
	conn := dial(t, &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse"}, box.handle)
	m, err := conn.Call(t.Context(), legacy(1, "x"))
	wantResult(t, m, err, 1, `{"ok":true}`)
	if got := box.list(); got != "a@none" {
		t.Errorf("inbound %s", got)
	}
	waiting := call(t.Context(), conn, 1) // the same noise answers it
	if got := <-waiting; got.err != nil {
		t.Error(got.err)
	}
}

func TestAnswersOnTheOldStreamThatAreBrokenOrTooLargeFailTheirCall(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for name, tt := range map[string]struct {
		event string
		kind  ErrorKind
	}{
		"broken":          {"data: {\"id\":1,\"error\":\"boom\"}", Malformed},
		"id first":        {`data: {"jsonrpc":"2.0","id":1,"result":{"x":"` + big + `"}}`, TooLarge},
		"id last":         {`data: {"result":{"x":"` + big + `"},"jsonrpc":"2.0","id":1}`, TooLarge},
		"many lines":      {"data: {\"result\":{\ndata: \"x\":\"" + big + "\"\ndata: },\ndata: \"id\":1}", TooLarge},
		"many long lines": {"data: {\"result\":[\ndata: \"" + big + "\",\ndata: \"" + big + "\"],\"id\":1}", TooLarge},
		"small lines":     {"data: {\"id\":1,\"result\":[1\n" + strings.Repeat("data: ,2\n", 100<<10) + "data: ]}", TooLarge},
		"error, no id":    {"data: {\"id\":null,\"error\":{\"code\":-32600,\"message\":\"m\"}}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			old := new(oldServer)
			old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
				if m.Method != "bad" {
					return true
				}
				w.WriteHeader(http.StatusAccepted)
				old.raw("event: ping\ndata: " + big + "\n\n" + tt.event + "\n\n")
				return false
			}
			conn := dial(t, &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse", MaxReplyBytes: 100 << 10}, nil)
			m, err := conn.Call(t.Context(), legacy(1, "bad"))
			if tt.kind != 0 {
				wantError(t, err, tt.kind)
			} else if err != nil || m.Error == nil {
				t.Errorf("response %+v, %v", m, err)
			}
			m, err = conn.Call(t.Context(), legacy(2, "fine"))
			wantResult(t, m, err, 2, "{}")
		})
	}
}

func TestManyCallsShareTheOldStream(t *testing.T) {
	old := new(oldServer)
	conn := dial(t, &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse"}, nil)
	start := time.Now()
	var wg sync.WaitGroup
	for id := range int64(90) {
		wg.Go(func() {
			m, err := conn.Call(t.Context(), legacy(id, "x"))
			wantResult(t, m, err, id, "{}")
		})
	}
	wg.Wait()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

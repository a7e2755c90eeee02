package transport

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

func TestFault37_RedirectsAreFollowedOnlyWhereTheyAreSafe(t *testing.T) {
	var leaked atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { leaked.Add(1) })
	for name, tt := range map[string]struct {
		status int
		to     string
		says   string // "" = it is followed
	}{
		"307 same origin": {307, "/mcp/", ""}, "308 same origin": {308, "/mcp/", ""},
		"301": {301, "/mcp/", "307 or 308"}, "302": {302, "/mcp/", "307 or 308"}, "303": {303, "/mcp/", "307 or 308"},
		"307 elsewhere": {307, other.URL + "/mcp/?secret=1", "to " + other.URL + ", another origin"}, "308 elsewhere": {308, other.URL, "another origin"},
		"no location": {307, "", "no Location header"}, "loop": {307, "/mcp", "in a loop"},
		"bad location": {307, "http://[::1/%zz", "holds no URL but: http://[::1/%zz"}, "bad location of a 302": {302, ":", "holds no URL but: :"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/mcp/" {
					if r.Header.Get("Authorization") != "Bearer x" || r.Method != http.MethodPost || r.Header.Get("Mcp-Method") != "ping" {
						t.Errorf("redirected request: %s %v", r.Method, r.Header)
					}
					answer(w, r)
					return
				}
				if tt.to != "" {
					w.Header().Set("Location", tt.to)
				}
				w.WriteHeader(tt.status)
			})
			conn := dial(t, &HTTP{URL: server.URL + "/mcp", Header: http.Header{"Authorization": {"Bearer x"}}}, nil)
			m, err := conn.Call(t.Context(), modern(1, "ping"))
			if tt.says == "" {
				wantResult(t, m, err, 1, "{}")
				return
			}
			if e := wantError(t, err, Status); e.Status != tt.status || !strings.Contains(e.Message, tt.says) || strings.Contains(e.Message, "secret") {
				t.Errorf("error = %v", err)
			}
		})
	}
	if leaked.Load() != 0 {
		t.Error("a request reached another origin")
	}
}

func TestFault37_OriginsAreComparedWithTheirPorts(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"http://h/a", "http://H:80/b", true}, {"http://h/a", "https://h/a", true}, {"http://h:80/a", "https://h:443/a", true},
		{"https://h/a", "http://h/a", false}, {"http://h:8080/a", "https://h/a", false}, {"http://h/a", "https://h:8443/a", false},
		{"http://h/a", "http://h:81/a", false}, {"http://h/a", "http://h.evil/a", false}, {"https://h/", "https://h:443/", true},
	} {
		from, _ := url.Parse(tt.from)
		to, _ := url.Parse(tt.to)
		if got := sameOrigin(from, to); got != tt.ok {
			t.Errorf("%s → %s: %v", tt.from, tt.to, got)
		}
	}
}

func TestNothingListeningMeansNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	plain := serve(t, answer)
	for name, tt := range map[string]struct{ url, says string }{
		"refused":      {"http://user:secret@" + address + "/?key=secret", "refuses connections"},
		"no such host": {"http://no-such-host.invalid/?key=secret", "host name"},
		"no TLS":       {strings.Replace(plain.URL, "http:", "https:", 1), "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialURL(t, tt.url).Call(t.Context(), modern(1, "x"))
			e := wantError(t, err, NotSent)
			if !strings.Contains(e.Message, tt.says) || strings.Contains(e.Error(), "secret") {
				t.Errorf("message %q does not say %q, or says too much: %v", e.Message, tt.says, e)
			}
		})
	}
}

// rawServer runs handler on every TCP connection.
func rawServer(t *testing.T, handler func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handler(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}

// takePost reads one whole request.
func takePost(t *testing.T, conn net.Conn) bool {
	buf := make([]byte, 64<<10)
	var got []byte
	for {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if head, body, ok := strings.Cut(string(got), "\r\n\r\n"); ok && strings.HasSuffix(body, "}") {
			if !strings.HasPrefix(head, "POST") {
				t.Errorf("request: %s", head)
			}
			return true
		}
		if err != nil {
			return false
		}
	}
}

func TestAPostThatWasReadIsNeverSentTwice(t *testing.T) {
	for _, key := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
		t.Run("header "+key, func(t *testing.T) {
			var posts atomic.Int32
			// Each connection answers one request, takes a second one and
			// closes: the case in which net/http may repeat requests.
			base := rawServer(t, func(conn net.Conn) {
				if !takePost(t, conn) {
					return
				}
				posts.Add(1)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n"+`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`[:40])
				if takePost(t, conn) {
					posts.Add(1)
				}
			})
			h := http.Header{}
			if key != "" {
				h.Set(key, "1")
			}
			conn := dial(t, &HTTP{URL: base, Header: h}, nil)
			_, err := conn.Call(t.Context(), modern(1, "tools/call"))
			wantError(t, err, Malformed) // cut to fit; only the connection matters
			r := modern(2, "tools/call")
			r.Header = h
			_, err = conn.Call(t.Context(), r)
			wantError(t, err, Lost)
			if n := posts.Load(); n != 2 {
				t.Errorf("the server read %d requests, want 2", n)
			}
		})
	}
}

func TestADeadIdleConnectionNeverRunsACallTwice(t *testing.T) {
	var posts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		answer(w, r)
	}))
	defer server.Close()
	conn := dialURL(t, server.URL)
	for id := range int64(20) {
		before := posts.Load()
		m, err := conn.Call(t.Context(), modern(id, "x"))
		n := posts.Load() - before
		switch {
		case err == nil:
			wantResult(t, m, err, id, "{}")
		case errors.Is(err, &Error{Kind: NotSent}):
			if n != 0 {
				t.Errorf("call %d ran %d times though it was not sent", id, n)
			}
		default: // written before the end of the connection was seen
			wantError(t, err, Lost)
		}
		if n > 1 || err == nil && n != 1 {
			t.Errorf("call %d ran %d times", id, n)
		}
		server.CloseClientConnections() // waits until they are closed
	}
}

func TestAReplyThatBreaksOffIsLost(t *testing.T) {
	for name, head := range map[string]string{
		"before the head": "", "in the head": "HTTP/1.1 200 O",
		"in the body": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
		"in a stream": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:",
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialURL(t, rawServer(t, func(conn net.Conn) {
				if takePost(t, conn) {
					_, _ = io.WriteString(conn, head)
				}
			}))
			_, err := conn.Call(t.Context(), modern(1, "x"))
			wantError(t, err, Lost)
		})
	}
}

func TestARareRequestKeepsNoConnectionOfPlainHTTP(t *testing.T) {
	var last bool
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last = r.Close
		answer(w, r)
	})
	for name, tc := range map[string]struct {
		client *http.Client
		rare   bool
		want   bool
	}{
		"a usual one": {nil, false, false}, "a rare one": {nil, true, true},
		"a rare one of a client that is not ours": {server.Client(), true, false},
	} {
		conn := dial(t, &HTTP{URL: server.URL, Client: tc.client}, nil)
		r := modern(1, "server/discover")
		r.Rare = tc.rare
		m, err := conn.Call(t.Context(), r)
		wantResult(t, m, err, 1, "{}")
		if last != tc.want {
			t.Errorf("%s: the connection ends with it: %v, want %v", name, last, tc.want)
		}
	}
}

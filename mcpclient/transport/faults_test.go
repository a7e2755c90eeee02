package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// roundTripper answers requests without a network, so that a test may run in
// a bubble.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(r *http.Request, status int, header http.Header, body string) (*http.Response, error) {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func TestFault16_TheEndOfAnOldSessionDoesNotTouchItsSuccessor(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	var sessions atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions.Add(1)))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, nil))
		case r.Header.Get("Mcp-Session-Id") == "s1":
			close(entered)
			<-release
			w.WriteHeader(http.StatusNotFound)
		default:
			answer(w, r)
		}
	})
	conn := dialHTTP(t, &HTTP{URL: server.URL, NoGetStream: true})
	initialize(t, conn)
	late := call(t.Context(), conn, 1)
	<-entered
	initialize(t, conn)
	close(release)
	wantError(t, (<-late).err, SessionGone)
	if err := conn.Notify(t.Context(), notification("n")); err != nil {
		t.Errorf("the new session: %v", err)
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.session != "s2" || conn.gone {
		t.Errorf("session %q, gone %v", conn.session, conn.gone)
	}
}

func TestFault28_TheEndOfTheGETStreamLeavesThePostsAlone(t *testing.T) {
	for _, second := range []int{405, 502, 404} {
		t.Run(fmt.Sprint(second), func(t *testing.T) {
			var gets atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodGet:
					answer(w, r)
				case gets.Add(1) == 1:
					events(w, `{"method":"n"}`)
				default:
					w.WriteHeader(second)
				}
			})
			conn := dialHTTP(t, &HTTP{URL: server.URL})
			initialize(t, conn)
			s := &sharedStream{retry: -1}
			if !conn.listenOnce(s) {
				t.Error("no second attempt after a stream that worked")
			}
			if again := conn.listenOnce(s); again != (second == 502) {
				t.Errorf("another attempt: %v", again)
			}
			m, err := conn.Call(t.Context(), legacy(1, "x"))
			wantResult(t, m, err, 1, "{}")
		})
	}
}

func TestFault29_AGETStreamThatClosesAtOnceIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int32
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				gets.Add(1)
			}
			return respond(r, 200, http.Header{"Content-Type": {"text/event-stream"}}, "")
		})}
		conn := dial(t, &HTTP{URL: "http://h/", Client: client}, nil)
		conn.Ready(Negotiated{Version: legacyVersion})
		time.Sleep(10 * time.Minute)
		// 30 s apart at most and 15 s at least, after the first few.
		if n := gets.Load(); n < 20 || n > 50 {
			t.Errorf("%d GETs in ten minutes", n)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFault31_ASessionIsDeletedOnceWhateverTheAnswer(t *testing.T) {
	for _, status := range []int{200, 204, 202, 404, 405, 500, 400} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var deletes atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					deletes.Add(1)
					if r.Header.Get("Mcp-Session-Id") != "s" {
						t.Errorf("DELETE of session %q", r.Header.Get("Mcp-Session-Id"))
					}
					w.WriteHeader(status)
					return
				}
				w.Header().Set("Mcp-Session-Id", "s")
				answer(w, r)
			})
			for _, sessions := range []int32{1, 0} {
				deletes.Store(0)
				conn := dial(t, &HTTP{URL: server.URL}, nil)
				if sessions == 1 {
					initialize(t, conn)
				} else if _, err := conn.Call(t.Context(), modern(1, "server/discover")); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := conn.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if n := deletes.Load(); n != sessions {
					t.Errorf("%d DELETEs for %d sessions", n, sessions)
				}
			}
		})
	}
}

func TestFault32_ADELETEThatIsNeverAnsweredHoldsCloseForAWhileOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return respond(r, 200, http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {"s"}}, `{"id":1000,"result":{}}`)
		})}
		conn := dial(t, &HTTP{URL: "http://h/", Client: client}, nil)
		initialize(t, conn)
		start := time.Now()
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != deleteTimeout {
			t.Errorf("took %v", took)
		}
	})
}

func TestFault38_NamesReachTheServerAsTheyAre(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		name, err := DecodeHeaderValue(r.Header.Get("Mcp-Name"))
		m := readRequest(r)
		if err != nil || r.Header.Get("Y") != "" {
			t.Errorf("headers %v: %v", r.Header, err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, jsonrpc.AppendNotification(nil, name, nil)))
	})
	conn := dialURL(t, server.URL)
	for _, name := range []string{"plain", "Hello, 世界", " x ", "=?base64?dGVzdA==?=", "a\r\nY: y", "tab\t", "\x00"} {
		r := modern(1, "tools/call")
		r.Name = name
		m, err := conn.Call(t.Context(), r)
		wantResult(t, m, err, 1, string(jsonrpc.AppendNotification(nil, name, nil)))
	}
}

func TestFault71_AnErrorWithoutAnIDIsNotForARequestThatStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refusal = `{"id":null,"error":{"code":-32600,"message":"m"}}`
		s, server := pair(t, nil, StreamOptions{})
		r := bufio.NewReader(server)
		listening := make([]chan reply, 2)
		for i := range listening {
			listening[i] = call(t.Context(), named(s, methodListen), int64(100+i))
			readLine(t, r)
		}
		one := call(t.Context(), s, 1)
		readLine(t, r)
		say(server, "%s\n", refusal)
		if got := <-one; got.err != nil || got.msg.Error == nil || got.msg.ID != jsonrpc.IntID(1) {
			t.Errorf("the only call beside: %+v", got)
		}
		two, three := call(t.Context(), s, 2), call(t.Context(), s, 3)
		readLine(t, r)
		readLine(t, r)
		say(server, "%s\n%s\n%s\n", refusal, `{"id":2,"result":{}}`, `{"id":3,"result":{}}`)
		for i, c := range []chan reply{two, three} {
			got := <-c
			wantResult(t, got.msg, got.err, int64(2+i), "{}")
		}
		say(server, "%s\n%s\n%s\n", refusal, `{"id":100,"result":{}}`, refusal)
		got := <-listening[0]
		wantResult(t, got.msg, got.err, 100, "{}")
		if got := <-listening[1]; got.err != nil || got.msg.Error == nil {
			t.Errorf("the only one that is open: %+v", got)
		}
	})
}

func TestFault76_NumbersAndIDsPassUnchanged(t *testing.T) {
	const value = `{"n":9007199254740993,"e":1e400,"z":-0,"f":1.10,"u":"\u00e9"}`
	const id = 9007199254740993
	r := legacy(id, "echo")
	r.Body = jsonrpc.AppendRequest(nil, r.ID, "echo", []byte(value))
	echo := func(m *jsonrpc.Message) []byte { return jsonrpc.AppendResult(nil, m.ID, m.Params) }

	conn := dialURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		if m.Kind == jsonrpc.Request {
			events(w, string(echo(m)))
		}
	}).URL)
	m, err := conn.Call(t.Context(), r)
	wantResult(t, m, err, id, value)

	old := new(oldServer)
	old.post = func(w http.ResponseWriter, m *jsonrpc.Message) bool {
		w.WriteHeader(http.StatusAccepted)
		old.event(string(echo(m)))
		return false
	}
	m, err = dial(t, &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse"}, nil).Call(t.Context(), r)
	wantResult(t, m, err, id, value)

	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		go func() {
			line, err := bufio.NewReader(server).ReadBytes('\n')
			if err != nil {
				return
			}
			if m, err := jsonrpc.Decode(line); err == nil {
				say(server, "%s\n", echo(m))
			}
		}()
		m, err := s.Call(t.Context(), r)
		wantResult(t, m, err, id, value)
	})
}

func TestFault77_ASecondAnswerOnASharedStreamIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		s, server := pair(t, nil, StreamOptions{Logger: log.logger()})
		r := bufio.NewReader(server)
		one := call(t.Context(), s, 1)
		readLine(t, r)
		say(server, "%s\n%s\n", `{"id":1,"result":{}}`, `{"id":1,"result":{"second":1}}`)
		got := <-one
		wantResult(t, got.msg, got.err, 1, "{}")
		two := call(t.Context(), s, 2)
		readLine(t, r)
		say(server, "%s\n%s\n", `{"id":1,"error":{"code":1,"message":"third"}}`, `{"id":2,"result":{}}`)
		got = <-two
		wantResult(t, got.msg, got.err, 2, "{}")
		if log.count("no request waits for") != 1 {
			t.Errorf("log: %s", log.buf.String())
		}
	})
}

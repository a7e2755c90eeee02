package transport

import (
	"bufio"
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// debug returns a logger of all levels.
func (l *lines) debug() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestFault56_JunkInARowEndsTheConnectionAtItsLimit(t *testing.T) {
	line := strings.Repeat("x", 999)
	for name, tt := range map[string]struct {
		limit JunkLimit
		line  string
		most  int // lines that are tolerated
	}{
		"default lines": {JunkLimit{}, "log", DefaultJunkLines},
		"default bytes": {JunkLimit{Lines: -1}, strings.Repeat("x", 1<<20), 16},
		"lines":         {JunkLimit{Lines: 5}, line, 5},
		"bytes":         {JunkLimit{Bytes: 9990}, line, 10},
		"one line":      {JunkLimit{Bytes: 10}, line, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(lines)
				s, server := pair(t, nil, StreamOptions{MaxJunk: tt.limit, Logger: log.logger()})
				one := call(t.Context(), s, 1)
				readLine(t, bufio.NewReader(server))
				for range 2 { // a message in between starts the count again
					for range tt.most {
						say(server, "%s\n\n\r\n", tt.line)
					}
					say(server, "%s\n", `{"method":"n"}`)
				}
				synctest.Wait()
				if s.Err() != nil {
					t.Fatalf("at the limit: %v", s.Err())
				}
				for range tt.most + 1 {
					say(server, "%s\n", tt.line)
				}
				wantError(t, (<-one).err, Malformed)
				if e := wantError(t, s.Err(), Malformed); !strings.Contains(e.Message, "stderr") || len(e.Message) > 500 {
					t.Errorf("message %q", e.Message)
				}
				if n := log.count("skipped output"); n != 1 {
					t.Errorf("%d warnings", n)
				}
			})
		})
	}
}

func TestFault56_UnlimitedJunkIsReadForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{MaxJunk: JunkLimit{Lines: -1, Bytes: -1}, MaxReplyBytes: 1 << 10})
		one := call(t.Context(), s, 1)
		readLine(t, bufio.NewReader(server))
		for range 2 * DefaultJunkLines {
			say(server, "%s\n", "junk")
		}
		for range 20 {
			say(server, "%s\n", strings.Repeat("x", 1<<20))
		}
		say(server, "%s\n", `{"id":1,"result":{}}`)
		got := <-one
		wantResult(t, got.msg, got.err, 1, "{}")
	})
}

func TestLargeAnswersThatComeTooLateAreNoJunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{MaxReplyBytes: 1 << 10})
		late := `{"id":7,"result":"` + strings.Repeat("x", 6<<20) + `"}`
		for range 4 {
			say(server, "%s\n", late)
		}
		synctest.Wait()
		if s.Err() != nil {
			t.Error(s.Err())
		}
	})
}

func TestWarningsOfAKindAreFarBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		var l limiter
		for range 35 { // at 0, 10, 20 and 30 s
			l.warn(t.Context(), log.logger(), "w")
			time.Sleep(time.Second)
		}
		if log.count("msg=w") != 4 || log.count("suppressed_before=9") != 3 {
			t.Errorf("log: %s", log.buf.String())
		}
	})
}

func TestFault56_JunkEventsOfHTTPStreamsAreLoggedOnce(t *testing.T) {
	log := new(lines)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fixed(200, "text/event-stream", strings.Repeat("data: oops\n\ndata: {\"id\":9,\"result\":{}}\n\n", 100)+"data: {\"method\":\"end\"}\n\n")(w, r)
			return
		}
		fixed(200, "text/event-stream", strings.Repeat("data: oops\n\ndata: {\"id\":9,\"result\":{}}\n\n", 100)+"data: "+pong+"\n\n")(w, r)
	})
	box := newInbox()
	conn := dial(t, &HTTP{URL: server.URL, Logger: log.logger()}, box.handle)
	for range 3 {
		m, err := conn.Call(t.Context(), legacy(1, "x"))
		wantResult(t, m, err, 1, `{"ok":true}`)
	}
	conn.Ready(Negotiated{Version: legacyVersion})
	if got := box.next(t); got != "end@none" {
		t.Error(got)
	}
	if log.count("skipped an event") != 1 || log.count("skipped a response") != 1 {
		t.Errorf("log: %s", log.buf.String())
	}
}

func TestIDsOfAnotherTypeAreAcceptedOnlyOnRequest(t *testing.T) {
	answers := map[string]string{ // by the id that is asked with
		`7`: `"7"`, `"7"`: `7`, `"a"`: `"a"`, `8`: `8`,
	}
	for _, lenient := range []bool{false, true} {
		for asked, answered := range answers {
			id, err := jsonrpc.ParseID([]byte(asked))
			if err != nil {
				t.Fatal(err)
			}
			r := &Request{ID: id, Method: "x", Version: modernVersion, Modern: true, Body: jsonrpc.AppendRequest(nil, id, "x", nil)}
			ok := lenient || asked == answered
			for kind, body := range map[string]string{
				"application/json":  `{"id":` + answered + `,"result":{}}`,
				"text/event-stream": "data: {\"id\":" + answered + ",\"result\":{}}\n\n",
			} {
				conn := dial(t, &HTTP{URL: serve(t, fixed(200, kind, body)).URL, LenientIDs: lenient}, nil)
				m, err := conn.Call(t.Context(), r)
				if ok && (err != nil || m.ID != id) || !ok && err == nil {
					t.Errorf("%s, lenient %v: %s answered by %s: %+v, %v", kind, lenient, asked, answered, m, err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				s, server := pair(t, nil, StreamOptions{LenientIDs: lenient})
				out := make(chan reply, 1)
				go func() {
					m, err := s.Call(t.Context(), r)
					out <- reply{m, err}
				}()
				readLine(t, bufio.NewReader(server))
				say(server, "{\"id\":%s,\"result\":{}}\n{\"id\":%s,\"result\":{\"second\":1}}\n", answered, asked)
				got := <-out
				if want := map[bool]string{true: "{}", false: `{"second":1}`}[ok]; got.err != nil || got.msg.ID != id || string(got.msg.Result) != want {
					t.Errorf("stream, lenient %v: %s answered by %s: %+v", lenient, asked, answered, got)
				}
			})
		}
	}
}

func TestTheExactIDWinsOverItsLookalike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{LenientIDs: true})
		r := bufio.NewReader(server)
		number := call(t.Context(), s, 7)
		readLine(t, r)
		id := jsonrpc.StringID("7")
		text := make(chan reply, 1)
		go func() {
			m, err := s.Call(t.Context(), &Request{ID: id, Method: "x", Body: jsonrpc.AppendRequest(nil, id, "x", nil)})
			text <- reply{m, err}
		}()
		readLine(t, r)
		say(server, "%s\n%s\n", `{"id":"7","result":{"text":1}}`, `{"id":7,"result":{"number":1}}`)
		if got := <-text; got.err != nil || string(got.msg.Result) != `{"text":1}` {
			t.Errorf("%+v", got)
		}
		got := <-number
		wantResult(t, got.msg, got.err, 7, `{"number":1}`)
	})
}

func TestAReplyOnTheStreamOfInitializeBelongsToItsSession(t *testing.T) {
	for name, result := range map[string]string{"success": `{"id":1000,"result":{}}`, "failure": `{"id":1000,"error":{"code":1,"message":"m"}}`} {
		t.Run(name, func(t *testing.T) {
			replied := make(chan string, 1)
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				m := readRequest(r)
				switch {
				case m.Method == "initialize":
					w.Header().Set("Mcp-Session-Id", "s1")
					events(w, `{"id":"q","method":"ping"}`)
					replied <- <-replied // wait for the reply
					events(w, result)
				case m.Kind == jsonrpc.Response:
					replied <- r.Header.Get("Mcp-Session-Id")
					w.WriteHeader(http.StatusAccepted)
				default:
					w.Header().Set("X-Session", r.Header.Get("Mcp-Session-Id"))
					answer(w, r)
				}
			})
			asked := make(chan struct{})
			conn := dialHTTPWith(t, &HTTP{URL: server.URL, NoGetStream: true}, func(Inbound) { close(asked) })
			done := make(chan struct{})
			go func() {
				defer close(done)
				<-asked
				if err := conn.Reply(t.Context(), jsonrpc.AppendResult(nil, jsonrpc.StringID("q"), nil), ""); err != nil {
					t.Error(err)
				}
			}()
			initialize(t, conn)
			<-done
			if got := <-replied; got != "s1" {
				t.Errorf("the reply carried session %q", got)
			}
			conn.mu.Lock()
			defer conn.mu.Unlock()
			if want := map[string]string{"success": "s1", "failure": ""}[name]; conn.session != want || conn.offered != "" {
				t.Errorf("session %q, offered %q, want %q", conn.session, conn.offered, want)
			}
		})
	}
}

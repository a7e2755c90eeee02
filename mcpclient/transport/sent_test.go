package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// wantEnded checks the error of a call whose context ended.
func wantEnded(t testing.TB, err error, unsent bool) {
	t.Helper()
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v is not the context's", err)
	}
	if errors.Is(err, ErrUnsent) != unsent {
		t.Errorf("error %v, unsent: want %v", err, unsent)
	}
}

func TestACallThatWaitsForItsTurnOnAStreamIsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		written := call(ctx, s, 1)
		readLine(t, bufio.NewReader(server))
		synctest.Wait()
		stuck := call(ctx, s, 2)
		synctest.Wait()
		queued := call(ctx, s, 3)
		synctest.Wait()
		cancel()
		wantEnded(t, (<-written).err, false)
		wantEnded(t, (<-stuck).err, false)
		wantEnded(t, (<-queued).err, true)
		wantEnded(t, s.Notify(ctx, notification("n")), true)
		wantEnded(t, s.Reply(ctx, []byte("{}"), ""), true)
	})
}

// dialer counts connections and holds back those from number hold on until
// their context ends.
type dialer struct {
	hold    int32
	n       atomic.Int32
	holding chan struct{} // one value for each
}

func (d *dialer) client(t *testing.T) *http.Client {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if d.n.Add(1) >= d.hold {
			d.holding <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestAnHTTPRequestWithoutAConnectionIsUnsent(t *testing.T) {
	reached := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		if m.Method == "resumed" {
			w.Header().Set("Content-Type", "text/event-stream")
			say(w, "id: 1\nretry: 1\ndata:\n\n")
			return
		}
		reached <- struct{}{}
		<-r.Context().Done()
	})
	for name, tt := range map[string]struct {
		method string
		hold   int32
		unsent bool
	}{
		"no connection":            {"x", 1, true},
		"written":                  {"x", 9, false},
		"no connection to resume":  {"resumed", 2, false},
		"the context ended before": {"", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dialer{hold: tt.hold, holding: make(chan struct{}, 9)}
			conn := dial(t, &HTTP{URL: server.URL, Client: d.client(t), NoGetStream: true}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				select {
				case <-d.holding:
				case <-reached:
				case <-t.Context().Done():
				}
				cancel()
			}()
			if tt.method == "" {
				cancel()
			}
			_, err := conn.Call(ctx, legacy(1, tt.method))
			wantEnded(t, err, tt.unsent)
			if name == "no connection" {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				wantEnded(t, conn.Notify(ctx, notification("n")), true)
			}
		})
	}
}

func TestAPostOfHTTPWithSSEWithoutAConnectionIsUnsent(t *testing.T) {
	for hold, unsent := range map[int32]bool{2: true, 9: false} {
		reached := make(chan struct{}, 1)
		old := new(oldServer)
		old.post = func(w http.ResponseWriter, _ *jsonrpc.Message) bool {
			w.WriteHeader(http.StatusAccepted)
			reached <- struct{}{}
			return false
		}
		d := &dialer{hold: hold, holding: make(chan struct{}, 9)}
		conn := dial(t, &SSE{URL: serve(t, old.ServeHTTP).URL + "/sse", Client: d.client(t)}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			select {
			case <-d.holding:
			case <-reached:
			}
			cancel()
		}()
		_, err := conn.Call(ctx, legacy(1, "x"))
		wantEnded(t, err, unsent)
		_, err = conn.Call(ctx, legacy(1, "x"))
		wantEnded(t, err, true)
	}
}

func TestARequestThatAForeignClientMayHaveSentIsNeverCalledUnsent(t *testing.T) {
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		trip func(*httptrace.ClientTrace)
		kind ErrorKind
	}{
		"says nothing":               {func(*httptrace.ClientTrace) {}, Lost},
		"no connection":              {func(tr *httptrace.ClientTrace) { tr.GetConn("h") }, NotSent},
		"written":                    {func(tr *httptrace.ClientTrace) { tr.GetConn("h"); tr.WroteHeaders() }, Lost},
		"written, then sent again":   {func(tr *httptrace.ClientTrace) { tr.GetConn("h"); tr.WroteHeaders(); tr.GetConn("h") }, Lost},
		"written to a reused one":    {func(tr *httptrace.ClientTrace) { tr.WroteHeaders() }, Lost},
		"given, then asked for more": {func(tr *httptrace.ClientTrace) { tr.GetConn("h"); tr.GotConn(httptrace.GotConnInfo{}); tr.GetConn("h") }, NotSent},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				tt.trip(httptrace.ContextClientTrace(r.Context()))
				return nil, refused
			})}
			_, err := dial(t, &HTTP{URL: "http://h/", Client: client}, nil).Call(t.Context(), legacy(1, "tools/call"))
			wantError(t, err, tt.kind)
		})
	}
}

func TestAFailedResumptionIsNeverCalledUnsent(t *testing.T) {
	for name, tt := range map[string]struct {
		event string
		hold  bool // nothing listens any more
	}{
		"an id that no header can hold": {"id: a\x01b\nretry: 1\ndata:\n\n", false},
		"the server is gone":            {"id: 1\nretry: 1\ndata:\n\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var posts atomic.Int32
				client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					trace := httptrace.ContextClientTrace(r.Context())
					trace.GetConn("h")
					if r.Method == http.MethodGet {
						return nil, errors.New("connection refused")
					}
					posts.Add(1)
					trace.WroteHeaders()
					return respond(r, 200, http.Header{"Content-Type": {"text/event-stream"}}, tt.event)
				})}
				conn := dial(t, &HTTP{URL: "http://h/", Client: client, NoGetStream: true}, nil)
				_, err := conn.Call(t.Context(), legacy(1, "tools/call"))
				wantError(t, err, Lost)
				if posts.Load() != 1 {
					t.Errorf("%d POSTs", posts.Load())
				}
				if err := conn.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestWhatWasWrittenBeforeAFailedWriteIsLostNotUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := net.Pipe()
		defer server.Close()
		input := &closable{Conn: ours}
		s := NewStream(input, nil, StreamOptions{})
		one := call(t.Context(), s, 1)
		readLine(t, bufio.NewReader(server))
		input.closed.Store(true)
		_, err := s.Call(t.Context(), legacy(2, "tools/call"))
		wantError(t, err, NotSent)
		wantError(t, (<-one).err, Lost)
		wantError(t, s.Err(), Lost)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// closable is a connection whose peer can stop reading for good.
type closable struct {
	net.Conn
	closed atomic.Bool
}

func (c *closable) Write(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

func TestABusyServerMayLetALineWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		r := bufio.NewReader(server)
		innocent := call(t.Context(), s, 1)
		readLine(t, r)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hasty := call(ctx, s, 2)
		wantEnded(t, (<-hasty).err, false)
		time.Sleep(stallBusy - 2*time.Second)
		say(server, "%s\n", `{"id":1,"result":{}}`)
		got := <-innocent
		wantResult(t, got.msg, got.err, 1, "{}")
		readLine(t, r)
		synctest.Wait()
		three := call(t.Context(), s, 3)
		readLine(t, r)
		say(server, "%s\n", `{"id":3,"result":{}}`)
		got = <-three
		wantResult(t, got.msg, got.err, 3, "{}")
		time.Sleep(2 * stallBusy)
		if s.Err() != nil {
			t.Errorf("connection: %v", s.Err())
		}
	})
}

func TestAServerThatReadsNothingForAMinuteIsGivenUpHoweverBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		r := bufio.NewReaderSize(server, 16)
		innocent := call(t.Context(), s, 1)
		readLine(t, r)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		go func() { // reads some of it every 40 s, three times
			for range 3 {
				time.Sleep(40 * time.Second)
				_, _ = io.CopyN(io.Discard, server, pieceBytes)
			}
		}()
		big := legacy(2, "x")
		big.Body = jsonrpc.AppendRequest(nil, big.ID, "x", []byte(`{"x":"`+strings.Repeat("x", 20*pieceBytes)+`"}`))
		_, err := s.Call(ctx, big)
		wantEnded(t, err, false)
		if e := wantError(t, (<-innocent).err, Lost); !strings.Contains(e.Message, "stopped reading") {
			t.Error(e.Message)
		}
		if took := time.Since(start); took < 120*time.Second+stallBusy-time.Second || took > 121*time.Second+stallBusy {
			t.Errorf("given up after %v", took)
		}
	})
}

func TestCloseEndsTheWatchOverALineThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Close waits for the watch
		s, _ := pair(t, nil, StreamOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantEnded(t, (<-call(ctx, s, 1)).err, false)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMessagesOfTheTransportLeaveTheOutcomeToTheCaller(t *testing.T) {
	if e := errLost("the stream ended", io.EOF); strings.Contains(fmt.Sprint(e), "unknown") {
		t.Error(e)
	}
	e, ok := errors.AsType[*Error](notSent(errLost("the server process has ended (exit status 3)", nil)))
	if !ok || e.Kind != NotSent || !strings.Contains(e.Message, "exit status 3") {
		t.Errorf("%+v", e)
	}
}

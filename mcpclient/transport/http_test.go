package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func TestFault20_Fault22_ModernRequestsCarryTheHeadersOfTheSpec(t *testing.T) {
	var got http.Header
	var host string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, host = r.Header.Clone(), r.Host
		w.Header().Set("Mcp-Session-Id", "never")
		answer(w, r)
	})
	conn := dial(t, &HTTP{URL: server.URL, Header: http.Header{
		"accept": {"text/plain"}, "Content-Type": {"text/plain"}, "X-User": {"u"}, "mcp-method": {"evil"},
		"Mcp-Session-Id": {"evil"}, "Idempotency-Key": {"k"}, "Host": {"virtual.example"},
	}}, nil)
	r := modern(1, "tools/call")
	r.Name = "Hello, 世界"
	r.Header = http.Header{"Traceparent": {"00-1"}, "Mcp-Param-Region": {"us"}, "mcp-protocol-version": {"evil"}}
	m, err := conn.Call(t.Context(), r)
	wantResult(t, m, err, 1, "{}")
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream, text/plain",
		"Mcp-Protocol-Version": modernVersion, "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?SGVsbG8sIOS4lueVjA==?=",
		"Traceparent": "00-1", "Mcp-Param-Region": "us", "X-User": "u", "Mcp-Session-Id": "", "Idempotency-Key": "k", "Last-Event-Id": "",
	} {
		if v := strings.Join(got.Values(name), "|"); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	if host != "virtual.example" {
		t.Errorf("Host: %q", host)
	}
	if _, err := conn.Call(t.Context(), modern(2, "tools/list")); err != nil {
		t.Fatal(err)
	}
	if len(got.Values("Mcp-Name")) != 0 || len(got.Values("Mcp-Session-Id")) != 0 {
		t.Errorf("second request: %v", got)
	}
	empty := modern(3, "tools/call")
	empty.HasName = true
	if _, err := conn.Call(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	if v := got.Values("Mcp-Name"); len(v) != 1 || v[0] != "" {
		t.Errorf("empty name: %q", v)
	}
}

func TestFault10_SessionsComeOnlyFromASuccessfulInitialize(t *testing.T) {
	var mu sync.Mutex
	var log []string
	fail := true
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		mu.Lock()
		defer mu.Unlock()
		log = append(log, r.Method+" "+m.Method+" "+r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("Mcp-Protocol-Version"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.Method == "server/discover":
			w.Header().Set("Mcp-Session-Id", "from-error")
			w.WriteHeader(http.StatusBadRequest)
		case m.Method == "initialize" && fail:
			fail = false
			w.Header().Set("Mcp-Session-Id", "from-failed")
			_, _ = w.Write(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: -32602}))
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, nil))
		case m.Method == "":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Mcp-Session-Id", "late")
			_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, nil))
		}
	})
	conn := dial(t, &HTTP{URL: server.URL, NoGetStream: true}, nil)
	_, err := conn.Call(t.Context(), modern(1, "server/discover"))
	wantError(t, err, Status)
	initialize(t, conn) // answered by an error
	initialize(t, conn)
	conn.Ready(Negotiated{Version: legacyVersion})
	for id := range int64(2) {
		m, err := conn.Call(t.Context(), legacy(id, "ping"))
		wantResult(t, m, err, id, "{}")
	}
	if err := conn.Reply(t.Context(), jsonrpc.AppendResult(nil, jsonrpc.IntID(1), nil), legacyVersion); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"POST server/discover  2026-07-28", "POST initialize  ", "POST initialize  ",
		"POST ping s1 2025-11-25", "POST ping s1 2025-11-25", "POST  s1 2025-11-25", "DELETE  s1 2025-11-25",
	}
	if got := strings.Join(log, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("requests:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	_, err = conn.Call(t.Context(), legacy(9, "ping"))
	wantError(t, err, Closed)
	wantError(t, conn.Err(), Closed)
}

func TestFault16_ALostSessionIsToldByStatusAloneAndNotDeleted(t *testing.T) {
	for name, body := range map[string]string{
		"empty": "", "text": "no such session", "html": "<html>", "null id": `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"x"}}`,
		"odd id": `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"x"}}`,
		"our id": `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"x"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var deletes, posts atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					deletes.Add(1)
					return
				}
				posts.Add(1)
				if r.Header.Get("Mcp-Session-Id") != "" {
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(body))
					return
				}
				w.Header().Set("Mcp-Session-Id", "s")
				answer(w, r)
			})
			conn := dialURL(t, server.URL)
			initialize(t, conn)
			_, err := conn.Call(t.Context(), legacy(1, "ping"))
			e := wantError(t, err, SessionGone)
			if e.Status != 404 || (e.RPC != nil) != strings.Contains(body, "jsonrpc") {
				t.Errorf("error = %+v", e)
			}
			before := posts.Load()
			_, err = conn.Call(t.Context(), legacy(2, "ping"))
			wantError(t, err, SessionGone)
			if posts.Load() != before {
				t.Error("the dead session id was sent again")
			}
			initialize(t, conn)
			_, err = conn.Call(t.Context(), legacy(3, "ping"))
			wantError(t, err, SessionGone)
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if deletes.Load() != 0 {
				t.Error("a session that is gone was deleted")
			}
		})
	}
}

func TestFault16_A404WithoutASessionIsAStatus(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`))
	})
	_, err := dialURL(t, server.URL).Call(t.Context(), modern(1, "x"))
	if e := wantError(t, err, Status); e.Status != 404 || e.RPC == nil || e.RPC.Code != -32601 {
		t.Errorf("error = %+v", e)
	}
}

func TestFault32_CloseReturnsThoughTheServerIsSilent(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		if m.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", "s")
			_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, nil))
			return
		}
		entered <- r.Method
		<-release
	}))
	defer server.Close()
	defer close(release)
	conn := dialURL(t, server.URL)
	initialize(t, conn)
	conn.Ready(Negotiated{Version: legacyVersion})
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Call(context.Background(), legacy(1, "tools/call"))
		failed <- err
	}()
	<-entered
	<-entered // the POST and the GET
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := conn.Close(ctx); err != nil {
		t.Logf("Close: %v", err)
	}
	wantError(t, <-failed, Closed)
	<-conn.Done()
	if got := <-entered; got != http.MethodDelete {
		t.Errorf("last request is %s", got)
	}
}

func TestSequentialCallsUseOneTCPConnection(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"json": answer,
		"stream": func(w http.ResponseWriter, r *http.Request) {
			m := readRequest(r)
			events(w, `{"method":"n"}`)
			events(w, string(jsonrpc.AppendResult(nil, m.ID, nil)))
		},
		"notification": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"error": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, strings.Repeat("x", 5000), http.StatusInternalServerError)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var opened atomic.Int32
			server := httptest.NewUnstartedServer(handler)
			server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					opened.Add(1)
				}
			}
			server.Start()
			defer server.Close()
			conn := dialURL(t, server.URL)
			for id := range int64(1000) {
				var err error
				if name == "notification" {
					err = conn.Notify(t.Context(), notification("n"))
				} else {
					_, err = conn.Call(t.Context(), modern(id, "ping"))
				}
				if (err != nil) != (name == "error") {
					t.Fatal(err)
				}
			}
			most := int32(1)
			if name == "stream" {
				most = 3 // a busy machine may delay the end of a stream once
			}
			if n := opened.Load(); n > most {
				t.Errorf("%d TCP connections", n)
			}
		})
	}
}

func TestAnEndedContextReturnsAtOnceAndClosesTheRequest(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		t.Run(fmt.Sprint("streaming ", streaming), func(t *testing.T) {
			entered, left := make(chan struct{}), make(chan struct{})
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				readRequest(r)
				if streaming {
					events(w, `{"method":"n"}`)
				}
				close(entered)
				<-r.Context().Done()
				close(left)
			})
			conn := dialURL(t, server.URL)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-entered
				cancel()
			}()
			if _, err := conn.Call(ctx, modern(1, "x")); !errors.Is(err, context.Canceled) {
				t.Errorf("Call: %v", err)
			}
			<-left
			if _, err := conn.Call(ctx, modern(1, "x")); !errors.Is(err, context.Canceled) {
				t.Errorf("Call with a dead context: %v", err)
			}
		})
	}
}

func TestConcurrentCallsKeepTheirAnswersApart(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := readRequest(r)
		if m.ID.String() == "7" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "Application/JSON;charset=utf-8")
		_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID, []byte(`{"id":`+m.ID.String()+`}`)))
	})
	conn := dialURL(t, server.URL)
	var wg sync.WaitGroup
	for id := range int64(100) {
		wg.Go(func() {
			m, err := conn.Call(t.Context(), modern(id, "x"))
			if id == 7 {
				wantError(t, err, Status)
				return
			}
			wantResult(t, m, err, id, fmt.Sprintf(`{"id":%d}`, id))
		})
	}
	wg.Wait()
}

func TestWhatCannotBeSentIsRefusedAndHurtsNobody(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		answer(w, r)
	})
	conn := dialURL(t, server.URL)
	first := make(chan error, 1)
	go func() {
		_, err := conn.Call(t.Context(), modern(1, "x"))
		first <- err
	}()
	<-entered
	_, err := conn.Call(t.Context(), modern(1, "x"))
	wantError(t, err, Invalid)
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	_, err = conn.Call(t.Context(), &Request{Body: []byte("{}")})
	wantError(t, err, Invalid)
	broken := modern(2, "x")
	broken.Body = []byte("{\n}")
	_, err = conn.Call(t.Context(), broken)
	wantError(t, err, Invalid)
	bad := modern(3, "x")
	bad.Header = http.Header{"X-Caller": {"a\nb"}}
	_, err = conn.Call(t.Context(), bad)
	if e := wantError(t, err, Invalid); !strings.Contains(e.Message, "X-Caller") {
		t.Errorf("message %q", e.Message)
	}
}

func TestHTTPSpeaksHTTP2WhereOffered(t *testing.T) {
	var proto atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
		answer(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tr := &HTTP{URL: server.URL}
	conn := dial(t, tr, nil)
	_, err := conn.Call(t.Context(), modern(1, "x"))
	e := wantError(t, err, NotSent) // the certificate is not trusted
	if !strings.Contains(e.Message, "certificate") {
		t.Errorf("message: %s", e.Message)
	}
	theirs, ok1 := server.Client().Transport.(*http.Transport)
	ours, ok2 := tr.sender.tripper.(*http.Transport)
	if !ok1 || !ok2 {
		t.Fatal("unexpected transports")
	}
	ours.TLSClientConfig.RootCAs = theirs.TLSClientConfig.RootCAs
	m, err := conn.Call(t.Context(), modern(2, "x"))
	wantResult(t, m, err, 2, "{}")
	if proto.Load() != "HTTP/2.0" {
		t.Errorf("protocol %v", proto.Load())
	}
}

func TestAGivenClientIsUsedWithoutItsTimeout(t *testing.T) {
	server := serve(t, answer)
	client := &http.Client{Timeout: time.Nanosecond, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	conn := dial(t, &HTTP{URL: server.URL, Client: client}, nil)
	m, err := conn.Call(t.Context(), modern(1, "x"))
	wantResult(t, m, err, 1, "{}")
	if client.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
}

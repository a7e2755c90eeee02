package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

const callTool = "/mcpbridge.v1.ToolsService/CallTool"

// raw is a caller that writes HTTP/1.1 by itself.
type raw struct {
	net.Conn

	t *testing.T
	r *bufio.Reader
}

func (b *bridge) raw() *raw {
	b.t.Helper()
	conn, err := new(net.Dialer).DialContext(b.t.Context(), "tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		b.t.Fatal(err)
	}
	return &raw{conn, b.t, bufio.NewReader(conn)}
}

// send writes a POST with these headers and this body, which may be less than
// the headers promise.
func (r *raw) send(path, headers, body string) {
	r.t.Helper()
	if _, err := io.WriteString(r, "POST "+path+" HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"+body); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) receive() (*http.Response, string) {
	r.t.Helper()
	res, err := http.ReadResponse(r.r, nil)
	if err != nil {
		r.t.Fatalf("no answer: %v", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res, string(body)
}

// ended reports whether the other side has closed the connection.
func (r *raw) ended() bool {
	_, err := r.r.ReadByte()
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestACallerThatDoesNotFinishItsBodyIsAnsweredAndDisconnected(t *testing.T) {
	limits := limits{body: 200 * time.Millisecond, drain: 50 * time.Millisecond}
	b := start(t, Options{limits: limits}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	const json, short, body = "Content-Type: application/json\r\n", "Content-Length: 100\r\n", `{"name":`
	for name, c := range map[string]struct{ path, headers, body, want string }{
		"a call":                {callTool, json + short, body, "did not arrive within 200ms"},
		"no byte of it":         {callTool, json + short, "", "did not arrive within 200ms"},
		"the caller's deadline": {callTool, json + short + "Connect-Timeout-Ms: 50\r\n", body, "the caller's deadline passed"},
		"a long body":           {callTool, json + "Content-Length: 300000\r\n", body, "did not arrive within 200ms"},
		"chunked":               {callTool, json + "Transfer-Encoding: chunked\r\n", "8\r\n" + body + "\r\n", "did not arrive within 200ms"},
		"gRPC-Web":              {callTool, "Content-Type: application/grpc-web\r\n" + short, "\x00\x00\x00", ""},
		"a stream":              {"/grpc.health.v1.Health/Watch", "Content-Type: application/connect+json\r\n" + short, "\x00\x00", "did not arrive within 200ms"},
		"both directions":       {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "Content-Type: application/connect+json\r\n" + short, "", "use HTTP/2"},
		"no such path":          {"/nope", json + short, body, "nothing at this path"},
		"no such procedure":     {"/a.b/C", json + short, body, "does not serve"},
		"a wrong type":          {callTool, "Content-Type: text/x\r\n" + short, body, "content-type"},
		"a wrong timeout":       {callTool, json + short + "Connect-Timeout-Ms: abc\r\n", body, "connect-timeout-ms"},
		"a promise to continue": {callTool, json + short + "Expect: 100-continue\r\n", "", ""},
		"an empty type":         {callTool, short, body, "content-type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller := b.raw()
			caller.t = t
			caller.send(c.path, c.headers, c.body)
			res, text := caller.receive()
			if res.StatusCode == http.StatusContinue {
				res, text = caller.receive()
			}
			if !strings.Contains(text, c.want) {
				t.Errorf("%s %s, want text with %q", res.Status, text, c.want)
			}
			if !res.Close {
				t.Error("the answer does not say Connection: close")
			}
			if !caller.ended() {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestARefusedRequestWithItsWholeBodyKeepsTheConnection(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	caller := b.raw()
	for _, c := range []struct {
		path, headers string
		status        int
	}{
		{"/nope", "", 404},
		{"/a.b/C", "Content-Type: application/json\r\n", 501},
		{callTool, "Content-Type: text/x\r\n", 415},
		{callTool, "Content-Type: application/json\r\nConnect-Timeout-Ms: x\r\n", 400},
		{callTool, "Content-Type: application/json\r\n", 200},
	} {
		caller.send(c.path, c.headers+"Content-Length: 15\r\n", `{"name":"echo"}`)
		if res, text := caller.receive(); res.StatusCode != c.status || res.Close {
			t.Errorf("%s %s: %s, close %v, %s", c.path, c.headers, res.Status, res.Close, text)
		}
	}
}

// returned makes an interceptor that tells when a call's handler returned.
func returned() (connect.ServerInterceptor, <-chan error) {
	done := make(chan error, 10)
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			err := next(ctx, spec, stream)
			done <- err
			return err
		}
	}, done
}

// wait waits for a handler to return, however it ended.
func wait(done <-chan error) {
	for range done {
		return
	}
}

// bulky has a tool whose answer no buffer between here and a caller holds.
func bulky() *mcptest.Server {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Respond(mcptest.Text(strings.Repeat("0123456789abcdef", 6<<16)))
	return server
}

func TestAnAnswerThatNobodyReadsIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		limits  limits
		headers string
	}{
		"no progress":           {limits{write: 200 * time.Millisecond}, ""},
		"the caller's deadline": {limits{grace: 10 * time.Millisecond}, "Connect-Timeout-Ms: 2000\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			watch, done := returned()
			b := start(t, Options{limits: c.limits, Interceptors: []connect.ServerInterceptor{watch}}, map[string]targetConfig{"shop": {server: bulky()}}).ready()
			caller := b.raw()
			caller.send(callTool, "Content-Type: application/json\r\nContent-Length: 15\r\n"+c.headers, `{"name":"echo"}`)
			select {
			case err := <-done:
				if err == nil {
					t.Error("the call ended without an error")
				}
			case <-time.After(time.Minute):
				t.Fatal("the answer is still held")
			}
			if n, _ := io.Copy(io.Discard, caller.r); n >= 6<<20 {
				t.Errorf("%d bytes arrived", n)
			}
		})
	}
}

func TestAnAnswerOverHTTP2ThatNobodyReadsIsGivenUp(t *testing.T) {
	watch, done := returned()
	b := start(t, Options{limits: limits{write: 200 * time.Millisecond}, Interceptors: []connect.ServerInterceptor{watch}}, map[string]targetConfig{"shop": {server: bulky()}}).ready()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+callTool, strings.NewReader(`{"name":"echo"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	client := httpClient(t, true)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the call ended without an error")
		}
	case <-time.After(time.Minute):
		t.Fatal("the answer is still held")
	}
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("the answer came whole, %d bytes", n)
	}
	if status, err := b.health(overConnect).check(t.Context(), ""); err != nil || status != healthServing {
		t.Errorf("the next call: %v, %v", status, err)
	}
}

// slowWriter is the other side of an exchange in fake time: each write takes a
// while, unless its deadline passes.
type slowWriter struct {
	*httptest.ResponseRecorder

	takes    time.Duration
	expired  chan struct{}
	deadline time.Time // the last one that was set
}

func (w *slowWriter) Write(p []byte) (int, error) {
	select {
	case <-w.expired:
		return 0, os.ErrDeadlineExceeded
	default:
	}
	select {
	case <-time.After(w.takes):
		return w.ResponseRecorder.Write(p)
	case <-w.expired:
		return 0, os.ErrDeadlineExceeded
	}
}

func (w *slowWriter) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	if t.Before(time.Now()) {
		close(w.expired)
	}
	return nil
}

// slowExchange begins an exchange whose writes take so long.
func slowExchange(t *testing.T, takes time.Duration, deadline time.Time) (*exchange, *slowWriter) {
	t.Helper()
	w := &slowWriter{ResponseRecorder: httptest.NewRecorder(), takes: takes, expired: make(chan struct{})}
	l := limits{body: defaultBodyTimeout, write: defaultWriteTimeout, grace: defaultAnswerGrace, drain: defaultDrainTimeout}
	return newExchange(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody), l, deadline, false), w
}

func TestWritesHaveToMakeProgressAndSilenceIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, w := slowExchange(t, 29*time.Second, time.Time{})
		start := time.Now()
		if n, err := x.Write(make([]byte, 10*writeChunk)); err != nil || n != 10*writeChunk || time.Since(start) != 290*time.Second {
			t.Errorf("a slow caller got %d bytes in %v: %v", n, time.Since(start), err)
		}
		time.Sleep(24 * time.Hour) // a stream with nothing to send
		w.takes = 0
		if _, err := x.Write([]byte("x")); err != nil {
			t.Errorf("after a silence: %v", err)
		}
		x.Flush()
		w.takes = 31 * time.Second
		start = time.Now()
		n, err := x.Write(make([]byte, 2*writeChunk))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n != 0 || time.Since(start) != 30*time.Second {
			t.Errorf("without progress: %d bytes, %v after %v", n, err, time.Since(start))
		}
		x.end()
		if !w.deadline.Before(time.Now()) {
			t.Error("the end gave an expired answer new time")
		}
	})
}

func TestAnAnswerEndsSoonAfterTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		x, _ := slowExchange(t, time.Second, start.Add(10*time.Second))
		n, err := x.Write(make([]byte, 20*writeChunk))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 15*writeChunk || time.Since(start) != 15*time.Second {
			t.Errorf("%d bytes, %v after %v", n, err, time.Since(start))
		}
		x.end()
	})
}

func TestWhatIsLeftAtTheEndHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, w := slowExchange(t, 0, time.Time{})
		x.end()
		if got := time.Until(w.deadline); got != defaultWriteTimeout {
			t.Errorf("write deadline in %v", got)
		}
		if err := x.setReadDeadline(time.Now()); !errors.Is(err, errRequestOver) {
			t.Errorf("a deadline after the end: %v", err)
		}
	})
}

package transport

import (
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// fixed answers every POST with one status, content type and body.
func fixed(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		readRequest(r)
		w.Header()["Content-Type"] = nil // no guess of net/http
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

const pong = `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`

func TestFault23_Fault44_Fault47_Fault52_RepliesAreUnderstoodInEveryHarmlessForm(t *testing.T) {
	for name, tt := range map[string]struct{ contentType, body string }{
		"json":                     {"application/json", pong},
		"json with charset":        {"Application/JSON ; Charset=\"utf-8\"", pong},
		"json with broken charset": {"application/json; charset=", pong},
		"json, odd spaces":         {" application/json ;; charset", pong},
		"json with BOM and space":  {"application/json", bom + " \r\n" + pong + "\r\n"},
		"other json":               {"application/vnd.mcp+json", pong},
		"no content type, json":    {"", " " + pong},
		"no content type, stream":  {"", "data: " + pong + "\n\n"},
		"guessed content type":     {"text/plain; charset=utf-8", pong},
		"stream":                   {"text/event-stream;charset=UTF-8", "event: message\ndata: " + pong + "\n\n"},
		"stream with CRLF and BOM": {"TEXT/Event-Stream", bom + "\r\ndata:" + pong + "\r\n\r\n"},
		"stream without its end":   {"text/event-stream", "data: " + pong},
		"stream that is json":      {"text/event-stream", pong},
		"stream of many lines":     {"text/event-stream", "data: {\"id\":1,\ndata: \"result\":{\"ok\":true}}\n\n"},
		"stream with junk":         {"text/event-stream", ": ping\n\nevent: ping\ndata: hello\n\nid: 1\ndata:\n\ndata: oops\n\ndata: {\"id\":2,\"result\":{}}\n\ndata: " + pong + "\n\n"},
		"stream with more behind":  {"text/event-stream", "data: " + pong + "\n\ndata: {\"id\":1,\"result\":{\"second\":1}}\n\n"},
		"no id":                    {"application/json", `{"result":{"ok":true}}`},
		"null id":                  {"application/json", `{"id":null,"result":{"ok":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialURL(t, serve(t, fixed(200, tt.contentType, tt.body)).URL)
			m, err := conn.Call(t.Context(), modern(1, "ping"))
			wantResult(t, m, err, 1, `{"ok":true}`)
		})
	}
}

func TestFault71_ErrorsOnOurOwnReplyBelongToUs(t *testing.T) {
	for _, id := range []string{`"id":1,`, `"id":null,`, ``, `"id":"server-error",`, `"id":0,`} {
		for _, contentType := range []string{"application/json", "text/event-stream"} {
			body := `{"jsonrpc":"2.0",` + id + `"error":{"code":-32600,"message":"m"}}`
			if contentType == "text/event-stream" {
				if strings.Contains(id, "error") || strings.Contains(id, "0") {
					continue // a stream may carry more
				}
				body = "data: " + body + "\n\n"
			}
			conn := dialURL(t, serve(t, fixed(200, contentType, body)).URL)
			m, err := conn.Call(t.Context(), modern(1, "ping"))
			if err != nil || m.Error == nil || m.Error.Code != -32600 || m.ID != jsonrpc.IntID(1) {
				t.Errorf("id %s as %s: %+v, %v", id, contentType, m, err)
			}
		}
	}
}

func TestFault26_Fault41_Fault73_BadRepliesFailOnlyTheirRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		contentType, body string
		kind              ErrorKind
		says              string
	}{
		"html":            {"text/html", "<html><title>Log in</title>", Malformed, "text/html"},
		"html excerpt":    {"text/html", "<html>\n<title>Log in\x00</title>", Malformed, "<html> <title>Log in.</title>"},
		"text":            {"text/plain", "hello", Malformed, "hello"},
		"no type, text":   {"", "hello", Malformed, "no content type"},
		"empty":           {"", "", Malformed, "no body"},
		"empty json":      {"application/json", "", Malformed, "no body"},
		"broken json":     {"application/json", "oops", Malformed, "oops"},
		"cut json":        {"application/json", `{"id":1,"result":{`, Malformed, "not a JSON-RPC message"},
		"foreign result":  {"application/json", `{"id":2,"result":{}}`, Malformed, "id 2"},
		"string id":       {"application/json", `{"id":"1","result":{}}`, Malformed, "id 1"},
		"fraction id":     {"application/json", `{"id":1.0,"result":{}}`, Malformed, ""},
		"notification":    {"application/json", `{"method":"n"}`, Malformed, "notification"},
		"both":            {"application/json", `{"id":1,"result":{},"method":"x"}`, Malformed, ""},
		"batch":           {"application/json", `[` + pong + `]`, Malformed, ""},
		"stream, broken":  {"text/event-stream", "data: {\"id\":1,\"error\":\"boom\"}\n\n", Malformed, ""},
		"stream, junk":    {"text/event-stream", "data: oops\n\n", Malformed, "oops"},
		"stream, nothing": {"text/event-stream", ": hello\n\n", Lost, "without a response"},
		"stream, empty":   {"text/event-stream", "", Lost, "without a response"},
		"stream, ids":     {"text/event-stream", "id: 1\ndata:\n\n", Lost, "without a response"},
		"strange type":    {"text/" + strings.Repeat("x", 100), "x", Malformed, "invalid content type"},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			bad := fixed(200, tt.contentType, tt.body)
			conn := dialURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					bad(w, r)
					return
				}
				answer(w, r)
			}).URL)
			_, err := conn.Call(t.Context(), modern(1, "ping"))
			e := wantError(t, err, tt.kind)
			if !strings.Contains(e.Message, tt.says) {
				t.Errorf("message %q does not say %q", e.Message, tt.says)
			}
			m, err := conn.Call(t.Context(), modern(2, "ping"))
			wantResult(t, m, err, 2, "{}")
		})
	}
}

func TestUnsolicitedCompressionIsMalformed(t *testing.T) {
	conn := dialURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("compression was offered")
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(pong))
		_ = z.Close()
	}).URL)
	_, err := conn.Call(t.Context(), modern(1, "ping"))
	wantError(t, err, Malformed)
}

func TestFault50_RepliesBeyondTheLimitFailAlone(t *testing.T) {
	big := `{"jsonrpc":"2.0","id":1,"result":{"x":"` + strings.Repeat("x", 5<<20) + `"}}`
	for name, tt := range map[string]struct{ contentType, body string }{
		"json": {"application/json", big}, "stream": {"text/event-stream", "data: " + big + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, fixed(200, tt.contentType, tt.body))
			conn := dial(t, &HTTP{URL: server.URL, MaxReplyBytes: 4 << 20}, nil)
			_, err := conn.Call(t.Context(), modern(1, "x"))
			if e := wantError(t, err, TooLarge); e.Limit != 4<<20 {
				t.Errorf("limit %d", e.Limit)
			}
			for _, limit := range []int64{0, -1, int64(len(big))} {
				conn := dial(t, &HTTP{URL: server.URL, MaxReplyBytes: limit}, nil)
				m, err := conn.Call(t.Context(), modern(1, "x"))
				if err != nil || len(m.Result) < 5<<20 {
					t.Errorf("limit %d: %v", limit, err)
				}
			}
		})
	}
}

func TestLegacyBatchesAreTakenApart(t *testing.T) {
	for name, tt := range map[string]struct{ contentType, body string }{
		"json":   {"application/json", `[{"method":"a"},{"id":9,"method":"b"},` + pong + `]`},
		"stream": {"text/event-stream", `data: [{"method":"a"},{"id":9,"method":"b"},` + pong + "]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			box := newInbox()
			conn := dial(t, &HTTP{URL: serve(t, fixed(200, tt.contentType, tt.body)).URL}, box.handle)
			m, err := conn.Call(t.Context(), legacy(1, "x"))
			wantResult(t, m, err, 1, `{"ok":true}`)
			if got := box.list(); got != "a@1 b@1" {
				t.Errorf("inbound: %s", got)
			}
		})
	}
	conn := dialURL(t, serve(t, fixed(200, "application/json", `[{"id":2,"result":{}},3]`)).URL)
	_, err := conn.Call(t.Context(), legacy(1, "x"))
	wantError(t, err, Malformed)
}

func TestFault25_NotificationsIgnoreWhateverComesWithASuccess(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"202":        fixed(202, "", ""),
		"202 text":   fixed(202, "text/plain", "Accepted"),
		"202 json":   fixed(202, "application/json", ""),
		"200":        fixed(200, "", ""),
		"200 empty":  fixed(200, "application/json", ""),
		"200 null":   fixed(200, "application/json", "null"),
		"200 object": fixed(200, "application/json", "{}"),
		"200 html":   fixed(200, "text/html", "<html>"),
		"204":        fixed(204, "", ""),
		"open stream": func(w http.ResponseWriter, r *http.Request) {
			events(w)
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialURL(t, serve(t, handler).URL)
			if err := conn.Notify(t.Context(), notification("notifications/initialized")); err != nil {
				t.Error(err)
			}
		})
	}
	conn := dialURL(t, serve(t, fixed(400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}`)).URL)
	err := conn.Notify(t.Context(), notification("n"))
	if e := wantError(t, err, Status); e.RPC == nil || e.RPC.Code != -32600 {
		t.Errorf("refused notification: %+v", e)
	}
}

func TestFault7_StatusErrorsCarryWhatACallerBranchesOn(t *testing.T) {
	secret := "Bearer error=\"invalid_token\""
	handler := func(status int, header, value, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			fixed(status, contentType, body)(w, r)
		}
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    Error
		says    string
	}{
		"401":            {handler(401, "WWW-Authenticate", secret, "text/plain", "no"), Error{Status: 401, WWWAuthenticate: secret}, "credentials"},
		"403":            {handler(403, "", "", "", ""), Error{Status: 403}, "permit"},
		"429":            {handler(429, "Retry-After", "7", "", ""), Error{Status: 429, RetryAfter: 7 * time.Second}, "later"},
		"503":            {handler(503, "Retry-After", "1", "text/html", "<html>"), Error{Status: 503, RetryAfter: time.Second}, "503"},
		"500 text":       {handler(500, "", "", "text/plain", "boom\n"), Error{Status: 500}, "boom"},
		"400 odd id":     {handler(400, "", "", "application/json", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}`), Error{Status: 400, RPC: &jsonrpc.Error{Code: -32600}}, "400"},
		"400 our id":     {handler(400, "", "", "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"m"}}`), Error{Status: 400, RPC: &jsonrpc.Error{Code: -32020}}, "400"},
		"400 of gateway": {handler(400, "", "", "application/json", `{"error":{"code":7,"message":"m"}}`), Error{Status: 400}, "400"},
		"400 oauth":      {handler(400, "", "", "application/json", `{"error":"invalid_token","jsonrpc":1}`), Error{Status: 400}, "400"},
		"strange status": {handler(599, "", "", "", ""), Error{Status: 599}, "599"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialURL(t, serve(t, tt.handler).URL).Call(t.Context(), modern(1, "x"))
			e := wantError(t, err, Status)
			if e.Status != tt.want.Status || e.RetryAfter != tt.want.RetryAfter || e.WWWAuthenticate != tt.want.WWWAuthenticate ||
				(e.RPC == nil) != (tt.want.RPC == nil) || e.RPC != nil && e.RPC.Code != tt.want.RPC.Code {
				t.Errorf("error = %+v, want %+v", e, tt.want)
			}
			if !strings.Contains(e.Message, tt.says) || strings.Contains(e.Message, secret) {
				t.Errorf("message %q does not say %q, or too much", e.Message, tt.says)
			}
		})
	}
}

func TestAnErrorWithoutEndIsReportedAnyway(t *testing.T) {
	conn := dialURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		readRequest(r)
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}).URL)
	_, err := conn.Call(t.Context(), modern(1, "x"))
	if e := wantError(t, err, Status); !strings.Contains(e.Message, "half") {
		t.Errorf("message %q", e.Message)
	}
}

func TestExcerptsAreShortAndPrintable(t *testing.T) {
	got := redactor(nil).excerpt([]byte("a\tb\x1b[31m\xff" + strings.Repeat("ä", 300)))
	if len(got) > excerptBytes || !strings.HasPrefix(got, "a b.[31m.ä") || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestErrorsMatchByKind(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", &Error{Kind: Lost, Message: "m", Err: http.ErrBodyNotAllowed})
	if e := wantError(t, err, Lost); !e.Is(&Error{Kind: Lost}) || e.Is(&Error{Kind: Closed}) || !errors.Is(&e, http.ErrBodyNotAllowed) || !strings.HasPrefix(e.Error(), "m: ") {
		t.Errorf("%v", e)
	}
	if Lost.String() != "lost" || ErrorKind(99).String() != "kind(99)" {
		t.Error("kind names")
	}
}

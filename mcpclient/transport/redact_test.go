package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

const secret = "s3cr3t-t0ken-of-some-length"

func hide(s string) string { return strings.ReplaceAll(s, secret, "[redacted]") }

func TestSecretsAreReplacedBeforeTextIsCut(t *testing.T) {
	r := redactor(hide)
	for n := range 600 { // wherever the cut falls
		text := strings.Repeat("x", n) + secret + strings.Repeat("y", n)
		for _, got := range []string{r.excerpt([]byte(text)), r.clip([]byte(text), 300)} {
			if strings.Contains(got, secret[:2]) {
				t.Fatalf("%d bytes before: %q", n, got)
			}
		}
	}
	// Text that shrinks must not show what the window has cut.
	many := strings.Repeat(secret, 10000)
	if got := r.clip([]byte(many), 20<<10); strings.Contains(strings.ReplaceAll(got, "[redacted]", ""), secret[:2]) {
		t.Errorf("it ends with %q", got[len(got)-60:])
	}
	if got := redactor(nil).excerpt([]byte("a\x00\xff\n" + strings.Repeat("é", 300))); !strings.HasPrefix(got, "a.. é") || len(got) > excerptBytes || !strings.HasSuffix(got, "…") {
		t.Errorf("excerpt %q", got)
	}
	if got := redactor(nil).clip([]byte("éé"), 4); got != "éé" {
		t.Errorf("clip %q", got)
	}
	err := r.cover(fmt.Errorf("%w: %s", io.EOF, secret))
	if err.Error() != "EOF: [redacted]" || !errors.Is(err, io.EOF) || r.cover(nil) != nil {
		t.Errorf("error %v", err)
	}
}

func TestNoSecretThatAServerEchoesLeavesTheHTTPTransport(t *testing.T) {
	long := strings.Repeat("x", 190) + secret
	for name, handler := range map[string]http.HandlerFunc{
		"status":         fixed(500, "text/plain", "bad token "+secret),
		"status, cut":    fixed(400, "text/plain", long),
		"not JSON":       fixed(200, "application/json", long),
		"broken answer":  fixed(200, "application/json", `{"id":1,"result":{"`+secret+`":nonsense}}`),
		"content type":   fixed(200, "text/"+secret, "x"),
		"another id":     fixed(200, "application/json", `{"id":"`+secret+`","result":{}}`),
		"stream":         fixed(200, "text/event-stream", "data: "+long+"\n\n"),
		"broken event":   fixed(200, "text/event-stream", `data: {"id":1,"result":{"`+secret+`":nonsense}}`+"\n\n"),
		"foreign id":     fixed(200, "text/event-stream", `data: {"id":"`+secret+`","result":{}}`+"\n\n"),
		"batch":          fixed(200, "application/json", `[{"`+secret+`":`),
		"encoding":       encoded(secret),
		"redirect":       redirect("http://" + secret + ".example/"),
		"bad location":   redirect("http://[" + secret + "/"),
		"location, long": redirect("http://" + strings.Repeat("x", 190) + secret + "/"),
	} {
		t.Run(name, func(t *testing.T) {
			log := new(lines)
			conn := dial(t, &HTTP{URL: serve(t, handler).URL, Logger: log.debug(), Redact: hide, SSEFallback: SSENever}, nil)
			_, err := conn.Call(t.Context(), legacy(1, "x"))
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error()+log.text(), secret[:6]) {
				t.Errorf("error %v, log %s", err, log.text())
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("error is a %T", err)
			}
		})
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

func encoded(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", name)
		w.Header().Set("Content-Type", "application/json")
		say(w, "\x1f\x8b\x08")
	}
}

func TestNoSecretThatAServerEchoesLeavesTheGETStream(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			events(w, "oops "+secret, `{"id":"`+secret+`","result":{}}`, `{"method":"n"}`)
			<-r.Context().Done()
		}
	})
	log, box := new(lines), newInbox()
	conn := dial(t, &HTTP{URL: server.URL, Logger: log.debug(), Redact: hide}, box.handle)
	conn.Ready(Negotiated{Version: legacyVersion})
	box.next(t)
	if text := log.text(); strings.Contains(text, secret[:6]) || strings.Count(text, "[redacted]") < 2 {
		t.Errorf("log: %s", text)
	}
}

func TestNoSecretThatAServerEchoesLeavesHTTPWithSSE(t *testing.T) {
	for _, first := range []string{"event: endpoint\ndata: http://" + secret + ".example/\n\n", "event: endpoint\ndata: http://[" + secret + "\n\n"} {
		log := new(lines)
		_, err := (&SSE{URL: serve(t, fixed(200, "text/event-stream", first)).URL, Logger: log.debug(), Redact: hide}).Dial(t.Context(), nil)
		if e := wantError(t, err, Malformed); strings.Contains(e.Error()+log.text(), secret[:6]) {
			t.Errorf("error %v, log %s", e.Error(), log.text())
		}
	}
}

func TestNoSecretThatAServerEchoesLeavesAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		s, server := pair(t, nil, StreamOptions{Logger: log.debug(), Redact: hide, MaxJunk: JunkLimit{Lines: 3}})
		one := call(t.Context(), s, 1)
		go func() { _, _ = io.Copy(io.Discard, server) }()
		synctest.Wait()
		say(server, "%s\n", `{"id":1,"result":{"`+secret+`":nonsense}}`)
		if e := wantError(t, (<-one).err, Malformed); strings.Contains(e.Error(), secret[:6]) {
			t.Errorf("error: %v", e.Error())
		}
		say(server, "%s\n", `{"id":"`+secret+`","result":{}}`)
		for range 4 {
			say(server, "%s%s\n", strings.Repeat("x", 190), secret)
		}
		<-s.Done()
		if e := wantError(t, s.Err(), Malformed); strings.Contains(e.Error()+log.text(), secret[:6]) {
			t.Errorf("error %v, log %s", e.Error(), log.text())
		}
	})
}

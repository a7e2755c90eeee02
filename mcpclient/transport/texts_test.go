package transport

import (
	"bufio"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepliesThatCannotBeReadAreCalledByTheirName(t *testing.T) {
	deep := `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`
	behind := `{"jsonrpc":"2.0","result":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `,"id":1}`
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"deep":              {fixed(200, "application/json", deep), "levels deep"},
		"deep event":        {fixed(200, "text/event-stream", "data: "+deep+"\n\n"), "levels deep"},
		"deep, id behind":   {fixed(200, "text/event-stream", "data: "+behind+"\n\n"), "levels deep"},
		"gzip":              {encoded("gzip"), "compressed (gzip)"},
		"br":                {encoded("br"), "compressed (br)"},
		"gzip, unannounced": {fixed(200, "application/json", "\x1f\x8b\x08"), "compressed (gzip)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialURL(t, serve(t, tt.handler).URL).Call(t.Context(), legacy(1, "x"))
			if e := wantError(t, err, Malformed); !strings.Contains(e.Message, tt.says) || strings.Contains(e.Message, "not a JSON") {
				t.Errorf("message %q", e.Message)
			}
		})
	}
	for _, line := range []string{deep, behind} {
		synctest.Test(t, func(t *testing.T) {
			s, server := pair(t, nil, StreamOptions{})
			one := call(t.Context(), s, 1)
			readLine(t, bufio.NewReader(server))
			say(server, "%s\n", line)
			if e := wantError(t, (<-one).err, Malformed); !strings.Contains(e.Message, "levels deep") {
				t.Errorf("message %q", e.Message)
			}
		})
	}
	plain := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "identity")
		answer(w, r)
	}
	m, err := dialURL(t, serve(t, plain).URL).Call(t.Context(), legacy(1, "x"))
	wantResult(t, m, err, 1, "{}")
}

// primed is a reply with an event stream that holds an id and nothing else.
func primed(r *http.Request) (*http.Response, error) {
	return respond(r, 200, http.Header{"Content-Type": {"text/event-stream"}}, "id: 1\nretry: 0\ndata:\n\n")
}

func TestAnEventWithoutDataIsNoProgressOfTheGETStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int32
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			gets.Add(1)
			return primed(r)
		})}
		conn := dial(t, &HTTP{URL: "http://h/", Client: client}, nil)
		conn.Ready(Negotiated{Version: legacyVersion})
		time.Sleep(10 * time.Minute)
		if n := gets.Load(); n < 20 || n > 50 {
			t.Errorf("%d GETs in ten minutes", n)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALongRequestMayBeAskedForAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int32
		start := time.Now()
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				gets.Add(1)
			}
			if time.Since(start) > 10*time.Minute {
				return respond(r, 200, http.Header{"Content-Type": {"text/event-stream"}}, "data: "+pong+"\n\n")
			}
			return primed(r)
		})}
		conn := dial(t, &HTTP{URL: "http://h/", Client: client, NoGetStream: true}, nil)
		m, err := conn.Call(t.Context(), legacy(1, "x"))
		wantResult(t, m, err, 1, `{"ok":true}`)
		if late := time.Since(start) - 10*time.Minute; late > firstBackoff {
			t.Errorf("%v late", late)
		}
		if n := gets.Load(); n < 500 || n > 620 {
			t.Errorf("%d GETs in ten minutes", n)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFloodsOfAStreamAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		flood := strings.Repeat("data: oops\n\ndata: {\"id\":9,\"result\":{}}\n\ndata: {\"method\":\"n\"}\n\ndata: {\"id\":5,\"method\":\"r\"}\n\ndata: [1]\n\nevent: odd\ndata: x\n\nid: \x01\ndata:\n\n", 1000)
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return respond(r, 200, http.Header{"Content-Type": {"text/event-stream"}}, flood+"data: "+pong+"\n\n")
			}
			return respond(r, 200, http.Header{"Content-Type": {"text/event-stream"}}, flood)
		})}
		conn := dial(t, &HTTP{URL: "http://h/", Client: client, Logger: log.debug()}, nil)
		m, err := conn.Call(t.Context(), legacy(1, "x"))
		wantResult(t, m, err, 1, `{"ok":true}`)
		conn.Ready(Negotiated{Version: legacyVersion})
		synctest.Wait()
		if n := log.count("\n"); n > 4 {
			t.Errorf("%d records:\n%s", n, log.text())
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

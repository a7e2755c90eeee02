package mcpclient_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// statusOf answers one method (from its first exchange on) with a whole reply.
func statusOf(method string, reply *mcptest.Reply) func(string, int) *mcptest.Reply {
	return func(m string, _ int) *mcptest.Reply {
		if m == method {
			return reply
		}
		return nil
	}
}

func TestFault16AForgottenSessionIsReplacedByStatusAloneAndTheCallRepeatedOnce(t *testing.T) {
	bodies := map[string]*mcptest.Reply{
		"empty":  nil,
		"html":   {Status: 404, ContentType: "text/html", Body: "<h1>Not Found</h1>"},
		"-32001": {Status: 404, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`},
		"-32002": {Status: 404, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32002,"message":"gone"}}`},
	}
	for name, reply := range bodies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Legacy)
				s.Session.Unknown = reply
				c := overHTTP(t, s, mcpclient.Options{})
				connected(t, c)
				s.ExpireSessions()
				var wg sync.WaitGroup
				for range 20 { // all of them find out; one repairs it for all
					wg.Go(func() {
						if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if s.Count("initialize") != 2 || s.Count("notifications/initialized") != 2 {
					t.Errorf("want one new handshake: %v", s.Methods())
				}
				for _, e := range s.Entries("initialize") {
					if e.Session != "" {
						t.Error("the old session id was sent with initialize")
					}
				}
			})
		})
	}
	t.Run("a second 404 is an error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Status = statusOf("tools/call", &mcptest.Reply{Status: 404})
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err == nil || s.Count("tools/call") != 2 {
				t.Errorf("%v after %d attempts", err, s.Count("tools/call"))
			}
		})
	})
	t.Run("not without a session id", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Session.None = true
			s.Status = statusOf("tools/call", &mcptest.Reply{Status: 404})
			c := overHTTP(t, s, mcpclient.Options{})
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindHTTP, "404")
			if s.Count("tools/call") != 1 {
				t.Errorf("%d attempts", s.Count("tools/call"))
			}
			stillWorks(t, c)
		})
	})
	t.Run("nor on a modern connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Fail(-32601, "no such method", nil, 404)}
			c := overHTTP(t, s, mcpclient.Options{})
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindRPC, "-32601")
			if s.Count("tools/call") != 1 || s.Count("server/discover") != 1 {
				t.Errorf("the server saw %v", s.Methods())
			}
			stillWorks(t, c)
		})
	})
}

func TestFault17A401OnAForgottenSessionIsAuthorizationAndNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Session.Unknown = &mcptest.Reply{Status: 401}
		c := overHTTP(t, s, mcpclient.Options{})
		connected(t, c)
		s.ExpireSessions()
		for range 3 {
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindUnauthorized, "")
		}
		if s.Count("tools/call") != 3 || s.Count("initialize") != 1 {
			t.Errorf("the server saw %v", s.Methods())
		}
	})
}

func TestFault19AFailedReconnectionIsNotTheLast(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		c := over(t, s, mcpclient.Options{})
		connected(t, c)
		s.SetDown(true)
		s.ExpireSessions()
		time.Sleep(5 * time.Minute) // probes, and attempts, fail
		if st := c.Status(); st.State != mcpclient.StateReconnecting || st.LastError == nil {
			t.Fatalf("status %+v", st)
		}
		s.SetDown(false)
		time.Sleep(2 * time.Minute)
		if st := c.Status(); st.State != mcpclient.StateReady || st.Connects != 2 {
			t.Fatalf("status %+v", st)
		}
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Error(err)
		}
		pings := s.Count("ping")
		time.Sleep(5 * time.Minute)
		if s.Count("ping") < pings+5 {
			t.Error("the health probe did not survive the outage")
		}
	})
}

func TestFault20AcceptListsBothTypesOnPOSTAndTheStreamOnGET(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era) // the fake answers 406 to anything else
			url, client := mcptest.StartMemoryHTTP(t, s)
			c := newClient(t, &transport.HTTP{URL: url, Client: client, Header: http.Header{"Accept": {"text/html"}}}, mcpclient.Options{
				Headers: func(_ context.Context, _ *mcpclient.Call, h http.Header) { h.Set("Accept", "image/png") },
			})
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, e := range s.Transcript() {
				accept := e.Header.Get("Accept")
				switch {
				case e.Method == mcptest.MethodGet && !strings.Contains(accept, "text/event-stream"),
					e.Method != mcptest.MethodGet && !strings.HasPrefix(accept, "application/json, text/event-stream"):
					t.Errorf("%s: Accept %q", e.Method, accept)
				}
			}
			if era == mcptest.Legacy && s.Count(mcptest.MethodGet) == 0 {
				t.Error("there was no GET stream to look at")
			}
		})
	}
}

func TestFault22TheContentTypeOfRequestsIsBare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy) // the fake answers 415 to anything else
		url, client := mcptest.StartMemoryHTTP(t, s)
		c := newClient(t, &transport.HTTP{URL: url, Client: client, Header: http.Header{"content-type": {"application/json; charset=utf-8"}}}, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Transcript() {
			if got := e.Header.Values("Content-Type"); e.Method != mcptest.MethodGet && !slices.Equal(got, []string{"application/json"}) {
				t.Errorf("%s: Content-Type %q", e.Method, got)
			}
		}
	})
}

func TestFault23AnswersAreKnownByTheirMediaTypeAlone(t *testing.T) {
	for _, kind := range []string{"application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;charset=UTF-8", "application/json;", "application/json; charset=\"broken"} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.ContentType = kind
			c := overHTTP(t, s, mcpclient.Options{})
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Errorf("%q: %v", kind, err)
			}
		})
	}
	for _, kind := range []string{"text/event-stream;charset=utf-8", "Text/Event-Stream", "text/event-stream ; x=y"} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.SSE = mcptest.SSEOptions{Always: true, ContentType: kind}
			c := overHTTP(t, s, mcpclient.Options{})
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Errorf("%q: %v", kind, err)
			}
		})
	}
	t.Run("without one the first bytes tell", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"tools/call": func(_ context.Context, r *mcptest.Request) (any, error) {
				answer := `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"resultType":"complete","content":[]}}`
				return &mcptest.Reply{Body: map[string]string{"json": answer, "stream": "data: " + answer + "\n\n", "neither": "hello"}[r.Text("name")]}, nil
			}}
			c := overHTTP(t, s, mcpclient.Options{})
			for _, name := range []string{"json", "stream"} {
				if _, err := c.CallTool(t.Context(), name, nil, nil); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "neither", nil, nil)), mcpclient.KindProtocol, "content type")
			stillWorks(t, c)
		})
	})
}

func TestFault25AnyAcknowledgementOfANotificationWillDo(t *testing.T) {
	for name, reply := range map[string]*mcptest.Reply{
		"202 text":       {Status: 202, ContentType: "text/plain", Body: "Accepted"},
		"202 empty json": {Status: 202, ContentType: "application/json"},
		"200 empty":      {Status: 200},
		"200 null":       {Status: 200, ContentType: "application/json", Body: "null"},
		"200 object":     {Status: 200, ContentType: "application/json", Body: "{}"},
		"200 html":       {Status: 200, ContentType: "text/html", Body: "<p>ok"},
		"200 stream":     {Status: 200, ContentType: "text/event-stream", Stall: true},
		"204":            {Status: 204},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Legacy)
				s.Accepted = reply
				c := overHTTP(t, s, mcpclient.Options{})
				if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFault26InvalidJSONFailsOnlyThatCall(t *testing.T) {
	for name, body := range map[string]string{"no json": "oops", "cut off": `{"jsonrpc":"2.0","id":`, "empty": "", "a number": "42"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				s := answered(features(mcptest.Legacy), "bad", mcptest.Respond(&mcptest.Reply{ContentType: "application/json", Body: body}))
				answered(s, "slow", mcptest.After(gate, mcptest.Respond(mcptest.Text("done"))))
				c := overHTTP(t, s, mcpclient.Options{})
				connected(t, c)
				other := make(chan error, 1)
				go func() { other <- errOf(c.CallTool(t.Context(), "slow", nil, nil)) }()
				synctest.Wait()
				start := time.Now()
				_ = wantKind(t, errOf(c.CallTool(t.Context(), "bad", nil, nil)), mcpclient.KindProtocol, "")
				took(t, start, 0)
				close(gate)
				if err := <-other; err != nil {
					t.Errorf("another call failed: %v", err)
				}
				stillWorks(t, c)
			})
		})
	}
}

package mcpclient_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestFault28AFailingGETStreamLeavesTheCallsAlone(t *testing.T) {
	for _, status := range []int{405, 404, 400, 501, 502} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Session.None = status == 404 // with a session it would mean that the session is gone
			s.Status = func(method string, n int) *mcptest.Reply {
				if method == mcptest.MethodGet && n > 1 {
					return &mcptest.Reply{Status: status}
				}
				return nil
			}
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			time.Sleep(time.Second)
			s.Hangup()
			time.Sleep(10 * time.Minute)
			if n := s.Count(mcptest.MethodGet); status != 502 && n != 2 || n > 40 {
				t.Errorf("status %d: %d GETs", status, n)
			}
			stillWorks(t, c)
		})
	}
}

func TestFault29AGETStreamThatEndsAtOnceIsReopenedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Status = statusOf(mcptest.MethodGet, &mcptest.Reply{ContentType: "text/event-stream"})
		c := overHTTP(t, s, mcpclient.Options{})
		connected(t, c)
		time.Sleep(time.Minute)
		first := s.Count(mcptest.MethodGet)
		time.Sleep(10 * time.Minute)
		if n := s.Count(mcptest.MethodGet) - first; first > 10 || n > 40 || n < 10 {
			t.Errorf("%d GETs in the first minute, %d in ten more", first, n)
		}
		stillWorks(t, c)
	})
}

func TestFault31TheSessionIsDeletedOnceIfThereIsOne(t *testing.T) {
	for _, status := range []int{200, 204, 404, 405, 500} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Session.DeleteStatus = status
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			if err := c.Close(t.Context()); err != nil || s.Count(mcptest.MethodDelete) != 1 {
				t.Errorf("status %d: %v, %d DELETEs", status, err, s.Count(mcptest.MethodDelete))
			}
		})
	}
	none := features(mcptest.Legacy)
	none.Session.None = true
	for _, s := range []*mcptest.Server{features(mcptest.Modern), none} {
		synctest.Test(t, func(t *testing.T) {
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			if err := c.Close(t.Context()); err != nil || s.Count(mcptest.MethodDelete) != 0 {
				t.Errorf("%v, %v", err, s.Methods())
			}
		})
	}
}

func TestFault32CloseIsBoundedWhenTheDeleteIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		never := make(chan struct{})
		defer close(never)
		s.Status = func(method string, _ int) *mcptest.Reply {
			if method == mcptest.MethodDelete {
				<-never
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		connected(t, c)
		start := time.Now()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		took(t, start, 5*time.Second)
	})
}

func TestFault34AnEndless401IsToldOncePerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Status = func(method string, n int) *mcptest.Reply {
			if slices.Contains([]string{"tools/call", mcptest.MethodGet, mcptest.MethodDelete}, method) {
				return &mcptest.Reply{Status: 401, Header: http.Header{"Www-Authenticate": {"Bearer"}}}
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		for range 3 {
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindUnauthorized, "")
		}
		time.Sleep(10 * time.Minute)
		stillWorks(t, c)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if s.Count("tools/call") != 3 || s.Count(mcptest.MethodGet) != 1 || s.Count(mcptest.MethodDelete) != 1 {
			t.Errorf("the server saw %v", s.Methods())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Auth.Times = -1
		c := overHTTP(t, s, mcpclient.Options{})
		c.Start()
		time.Sleep(10 * time.Minute)
		if n := s.Count(mcptest.MethodUnauthorized); n < 5 || n > 20 {
			t.Errorf("%d attempts to connect in ten minutes", n)
		}
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindUnauthorized, "")
	})
}

func TestFault35AnExpiredTokenFailsItsCallsAndAFreshOneIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Auth = mcptest.AuthOptions{Issue: true, Challenge: `Bearer error="invalid_token"`}
		url, client := mcptest.StartMemoryHTTP(t, s)
		refresh := func() string {
			resp, err := client.Post(strings.TrimSuffix(url, "/mcp")+"/token", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return "Bearer token-" + string(rune('0'+s.Count(mcptest.MethodToken)))
		}
		var token atomic.Pointer[string]
		token.Store(new(refresh()))
		c := newClient(t, &transport.HTTP{URL: url, Client: client}, mcpclient.Options{
			Headers: func(_ context.Context, _ *mcpclient.Call, h http.Header) {
				h.Set("Authorization", *token.Load())
			},
		})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the subscription to list changes is open
		s.RevokeToken()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindUnauthorized, "")
			})
		}
		wg.Wait()
		if n := s.Count(mcptest.MethodUnauthorized); n != 5 {
			t.Errorf("%d refusals for 5 calls", n)
		}
		time.Sleep(10 * time.Minute) // a 401 answers the health probe, too
		token.Store(new(refresh()))
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Error(err)
		}
		stillWorks(t, c)
	})
}

func TestFault37RedirectsKeepThePOSTAndTheCredentials(t *testing.T) {
	for _, code := range []int{307, 308} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Redirect = mcptest.RedirectOptions{Code: code, Target: "/mcp/"}
			c := overHTTP(t, s, mcpclient.Options{})
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Errorf("%d: %v", code, err)
			}
		})
	}
	for _, code := range []int{301, 302, 303} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Redirect = mcptest.RedirectOptions{Code: code, Target: "/mcp/"}
			c := overHTTP(t, s, mcpclient.Options{Lazy: true})
			_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "redirect")
			if len(wire(s)) != s.Count(mcptest.MethodRedirected) {
				t.Errorf("%d: the server saw %v", code, s.Methods())
			}
		})
	}
	t.Run("never to another origin", func(t *testing.T) {
		thief := &mcptest.Server{}
		s := features(mcptest.Modern)
		s.Redirect = mcptest.RedirectOptions{Target: mcptest.StartHTTP(t, thief) + "/stolen"}
		c := newClient(t, &transport.HTTP{URL: mcptest.StartHTTP(t, s), Header: http.Header{"Authorization": {"Bearer secret"}}}, mcpclient.Options{Lazy: true})
		_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "configure the final URL")
		if got := thief.Methods(); len(got) != 0 {
			t.Errorf("the other origin saw %v", got)
		}
	})
}

func TestFault38NamesReachTheServerWhateverTheyHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"Hello, 世界", " x ", "=?base64?dGVzdA==?=", "a\r\nX: y", "=?base64??=", "tab\there", "\u00a0", "a b", "emoji 🎉", "=?BASE64?x?=", "del\x7f"}
		s := features(mcptest.Modern) // the fake decodes Mcp-Name and compares
		for _, name := range names {
			answered(s, name, mcptest.Respond(mcptest.Text("ok")))
			s.Prompts = append(s.Prompts, mcptest.Prompt{Name: name})
			s.Resources = append(s.Resources, mcptest.Resource{URI: name})
		}
		c := overHTTP(t, s, mcpclient.Options{})
		for _, name := range names {
			if _, err := c.CallTool(t.Context(), name, nil, nil); err != nil {
				t.Errorf("tool %q: %v", name, err)
			}
			if _, err := c.GetPrompt(t.Context(), name, nil, nil); err != nil {
				t.Errorf("prompt %q: %v", name, err)
			}
			if _, err := c.ReadResource(t.Context(), name, nil); err != nil {
				t.Errorf("resource %q: %v", name, err)
			}
		}
		for _, e := range s.Transcript() {
			if e.Header.Get("X") != "" {
				t.Error("a header was injected")
			}
		}
	})
}

func TestFault40AHeaderThatHTTPCannotCarryIsNamedEarly(t *testing.T) {
	for name, value := range map[string]string{"X-Name": "ü", "X-Line": "a\r\nb"} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			url, client := mcptest.StartMemoryHTTP(t, s)
			tr := &transport.HTTP{URL: url, Client: client, Header: http.Header{name: {value}}}
			if err := tr.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			c := newClient(t, tr, mcpclient.Options{Lazy: true})
			_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, name)
			if len(s.Methods()) != 0 {
				t.Error("something was sent")
			}
		})
	}
	t.Run("one of a single call costs that call alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			var bad atomic.Bool
			c := overHTTP(t, s, mcpclient.Options{Headers: func(_ context.Context, _ *mcpclient.Call, h http.Header) {
				if bad.Load() {
					h.Set("X-Caller", "a\nb")
				}
			}})
			connected(t, c)
			synctest.Wait()
			bad.Store(true)
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err == nil {
				t.Error("a header with a line break was sent")
			}
			bad.Store(false)
			stillWorks(t, c)
		})
	})
}

func TestFault41AWebPageFailsItsCallAndIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answered(features(mcptest.Modern), "login", mcptest.HTML(200))
		c := overHTTP(t, s, mcpclient.Options{})
		e := wantKind(t, errOf(c.CallTool(t.Context(), "login", nil, nil)), mcpclient.KindProtocol, "text/html")
		if !strings.Contains(e.Message, "Sign in") {
			t.Errorf("the message shows no first bytes: %s", e.Message)
		}
		stillWorks(t, c)
	})
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Dual)
		s.Discover = mcptest.Sequence(mcptest.HTML(200), nil)
		c := overHTTP(t, s, mcpclient.Options{})
		_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "text/html")
		time.Sleep(10 * time.Second)
		connected(t, c)
		if c.Status().Server.Era != mcpclient.EraModern {
			t.Error("the page was taken for a legacy server, and remembered")
		}
	})
}

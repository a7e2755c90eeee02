package mcpclient_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestFault1SilenceAfterTheProbeIsBoundedAndInitializeFollowsOnTheSameConnection(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		s.Discover = mcptest.Silence()
		c := over(t, s, mcpclient.Options{Version: mcpclient.VersionOptions{DetectTimeout: 3 * time.Second}})
		start := time.Now()
		connected(t, c)
		took(t, start, 3*time.Second)
		if n := s.Count(mcptest.MethodOpened); n > 1 {
			t.Errorf("%d streams: the handshake belongs on the one that was probed", n)
		}
		if s.Count("notifications/cancelled") != 0 {
			t.Error("a probe is not cancelled by a message")
		}
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence(), Initialize: mcptest.Silence()}
		c := overPipe(t, s, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{Timeout: 20 * time.Second}})
		start := time.Now()
		_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "20s")
		took(t, start, 20*time.Second)
	})
}

func TestFault2ASlowModernServerIsNotTakenForALegacyOne(t *testing.T) {
	for name, initialize := range map[string]mcptest.Handler{
		"initialize is refused by name": nil,
		"initialize is not answered":    mcptest.Silence(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Modern)
				s.Discover = mcptest.Sequence(mcptest.Delay(7*time.Second, nil), nil)
				s.Initialize = initialize
				c := overPipe(t, s, mcpclient.Options{Version: mcpclient.VersionOptions{DetectTimeout: 5 * time.Second}})
				connected(t, c)
				if st := c.Status(); st.Server.Era != mcpclient.EraModern {
					t.Errorf("taken for %v", st.Server.Era)
				}
				if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
	t.Run("the error names both attempts", func(t *testing.T) {
		for name, answer := range map[string]mcptest.Handler{
			"an error": mcptest.Fail(-32603, "no handshakes here", nil, 200), "silence": mcptest.Silence(),
		} {
			synctest.Test(t, func(t *testing.T) {
				s := &mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence(), Initialize: answer}
				c := overPipe(t, s, mcpclient.Options{Lazy: true})
				err := c.Connect(t.Context())
				e := wantKind(t, err, mcpclient.KindUnavailable, "")
				if !strings.Contains(e.Message, "server/discover") || !strings.Contains(err.Error(), "initialize") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	})
}

func TestFault4ARefusedProbeIsAuthorizationAndTheSameProbeIsTriedAgain(t *testing.T) {
	for _, status := range []int{401, 403} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Auth = mcptest.AuthOptions{Times: 1, Status: status, Challenge: `Bearer resource_metadata="https://x/.well-known"`}
			c := overHTTP(t, s, mcpclient.Options{})
			e := wantKind(t, c.Connect(t.Context()), mcpclient.KindUnauthorized, "")
			if e.Status != status {
				t.Errorf("the status is %d, want %d", e.Status, status)
			}
			time.Sleep(10 * time.Second)
			connected(t, c)
			if got := strings.Join(s.Methods()[:2], " "); got != mcptest.MethodUnauthorized+" server/discover" || s.Count("initialize") != 0 {
				t.Errorf("status %d: the server saw %v", status, s.Methods())
			}
		})
	}
}

func TestFault5AProcessThatExitsOnTheProbeIsStartedAgainOnceAndTheVerdictKept(t *testing.T) {
	child, c := overStdio(t, "fault 5: exits on discover, and of a tool", mcpclient.Options{})
	if _, err := c.ListTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = wantKind(t, errOf(c.CallTool(t.Context(), "die", nil, nil)), mcpclient.KindLost, "")
	if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
		t.Fatal(err)
	}
	if n, probes := child.Count(mcptest.MethodOpened), child.Count("server/discover"); n != 3 || probes != 1 {
		t.Errorf("%d processes and %d probes, want 3 and 1", n, probes)
	}
}

func TestFault7ARefusalBelongsToItsPOSTWhateverIDItCarries(t *testing.T) {
	refusal := &mcptest.Reply{Status: 400, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"not like that"}}`}
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Status = func(method string, n int) *mcptest.Reply {
			if method == "server/discover" || method == "tools/call" && n == 1 {
				return refusal
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		start := time.Now()
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindRPC, "-32600")
		if e.Status != 400 || e.RPC.Message != "not like that" || time.Since(start) != 0 {
			t.Errorf("after %v: %+v", time.Since(start), e)
		}
		if c.Status().Server.Era != mcpclient.EraLegacy {
			t.Error("on the probe it means a legacy server")
		}
		stillWorks(t, c)
	})
}

func TestFault8AnyUnknownErrorOnTheProbeMeansLegacy(t *testing.T) {
	for _, code := range []int{-32000, -32001, -32600, -32601, -32602, -32603, -32700, 0, 1, 404, -1} {
		either(t, func(t *testing.T, over overFunc) {
			s := features(mcptest.Legacy)
			s.Discover = mcptest.Fail(code, "Bad Request: No valid session ID provided", nil, 400)
			c := over(t, s, mcpclient.Options{})
			connected(t, c)
			if c.Status().Server.Era != mcpclient.EraLegacy {
				t.Errorf("code %d: %+v", code, c.Status().Server)
			}
		})
	}
}

func TestFault10ASessionIDComesOnlyFromASuccessfulInitialize(t *testing.T) {
	stray := http.Header{"Mcp-Session-Id": {"stray"}}
	t.Run("legacy, in an error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Status = func(method string, _ int) *mcptest.Reply {
				if method == "server/discover" {
					return &mcptest.Reply{Status: 400, Header: stray, ContentType: "text/plain", Body: "no"}
				}
				return nil
			}
			c := overHTTP(t, s, mcpclient.Options{}) // the fake refuses an initialize with a session id
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.Entries("tools/list")[0].Session; got != "session-1" {
				t.Errorf("the session is %q", got)
			}
		})
	})
	t.Run("modern, in every answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Discover = func(_ context.Context, r *mcptest.Request) (any, error) {
				return &mcptest.Reply{Header: stray, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`}, nil
			}
			c := overHTTP(t, s, mcpclient.Options{}) // the fake refuses a session id on modern requests
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(t.Context()); err != nil || s.Count(mcptest.MethodDelete) != 0 {
				t.Errorf("%v, %v", err, s.Methods())
			}
		})
	})
}

func TestFault11TheVersionHeaderIsThatOfTheMessageWhateverTheCallerForwards(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Legacy, mcptest.Modern} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			if era == mcptest.Legacy {
				s.Versions = []string{"2025-06-18"}
			}
			url, client := mcptest.StartMemoryHTTP(t, s)
			foreign := func(h http.Header) {
				h.Set("MCP-Protocol-Version", "2024-11-05")
				h.Set("Mcp-Method", "initialize")
				h.Set("Mcp-Session-Id", "stray")
			}
			configured := http.Header{}
			foreign(configured)
			c := newClient(t, &transport.HTTP{URL: url, Client: client, Header: configured}, mcpclient.Options{
				Headers: func(_ context.Context, _ *mcpclient.Call, h http.Header) { foreign(h) },
			})
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Fatal(err) // the fake compares header, message and session
			}
			want := map[mcptest.Era]string{mcptest.Legacy: "2025-06-18", mcptest.Modern: "2026-07-28"}[era]
			if got := s.Entries("tools/call")[0].Header.Values("Mcp-Protocol-Version"); !slices.Equal(got, []string{want}) {
				t.Errorf("the version header is %q", got)
			}
			if era == mcptest.Legacy && len(s.Entries("initialize")[0].Header.Values("Mcp-Protocol-Version")) != 0 {
				t.Error("initialize has no version header: nothing is negotiated yet")
			}
		})
	}
}

func TestFault13AKnownVersionIsAskedForAndAnyKnownOneAccepted(t *testing.T) {
	for _, version := range mcpclient.SupportedVersions() {
		if mcpclient.EraOf(version) != mcpclient.EraLegacy {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Versions = []string{version}
			c := overHTTP(t, s, mcpclient.Options{})
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked := strings.Trim(string(jsonMember(t, s.Entries("initialize")[0].Params(), "protocolVersion")), `"`)
			if mcpclient.EraOf(asked) != mcpclient.EraLegacy || c.Status().Server.ProtocolVersion != version {
				t.Errorf("asked for %q, got %s", asked, c.Status().Server.ProtocolVersion)
			}
		})
	}
}

func TestFault14AFailedHandshakeIsNoConnectionAndClosesTheTransport(t *testing.T) {
	answer := func(raw string) mcptest.Handler { return mcptest.Respond(mcptest.Raw(raw)) }
	for name, tc := range map[string]struct {
		initialize mcptest.Handler
		kind       mcpclient.Kind
		text       string
	}{
		"an error":           {mcptest.Fail(-32603, "no", nil, 200), mcpclient.KindUnavailable, "-32603"},
		"an unknown version": {answer(`{"protocolVersion":"2099-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`), mcpclient.KindVersion, "2099-01-01"},
		"a modern version":   {answer(`{"protocolVersion":"2026-07-28","capabilities":{}}`), mcpclient.KindVersion, "2026-07-28"},
		"no version":         {answer(`{"capabilities":{}}`), mcpclient.KindVersion, "version"},
		"no object":          {answer(`[]`), mcpclient.KindUnavailable, "initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Legacy)
				s.Initialize = tc.initialize
				c := overPipe(t, s, mcpclient.Options{Lazy: true})
				_ = wantKind(t, c.Connect(t.Context()), tc.kind, tc.text)
				synctest.Wait()
				if s.Count("notifications/initialized") != 0 || s.Count(mcptest.MethodOpened) != s.Count(mcptest.MethodEOF) {
					t.Errorf("the server saw %v", s.Methods())
				}
				if st := c.Status(); st.State == mcpclient.StateReady || st.LastError == nil {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

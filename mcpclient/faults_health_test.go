package mcpclient_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestFault103AServerWithoutPingIsHealthy(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"ping": mcptest.Fail(-32601, "Method not found", nil, 0)}
		c := over(t, s, mcpclient.Options{})
		connected(t, c)
		time.Sleep(time.Hour)
		if s.Count("ping") < 60 {
			t.Errorf("%d probes in an hour", s.Count("ping"))
		}
		stillWorks(t, c)
	})
}

func TestFault104OneMissedPingIsNoLostConnection(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"ping": mcptest.Sequence(mcptest.Silence(), nil, mcptest.Silence(), nil)}
		c := over(t, s, mcpclient.Options{Health: mcpclient.HealthOptions{Interval: time.Minute, Timeout: 10 * time.Second}})
		connected(t, c)
		for range 90 { // the first probe fails after a minute or so; the second is due 10s later
			if c.Status().State == mcpclient.StateSuspect {
				break
			}
			time.Sleep(time.Second)
		}
		if st := c.Status(); st.State != mcpclient.StateSuspect || st.LastError == nil {
			t.Errorf("status %+v", st)
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Errorf("calls still go out: %v", err)
		}
		time.Sleep(time.Hour)
		stillWorks(t, c)
	})
}

func TestFault106AFailingHandshakeIsRepeatedWithGrowingPausesOrUpToACap(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		s.Initialize = mcptest.Fail(-32603, "not today", nil, 200)
		c := over(t, s, mcpclient.Options{})
		c.Start()
		time.Sleep(10 * time.Minute)
		if n := s.Count("initialize"); n < 8 || n > 16 {
			t.Errorf("%d handshakes in ten minutes", n)
		}
	})
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		s.Initialize = mcptest.Fail(-32603, "not today", nil, 200)
		c := over(t, s, mcpclient.Options{Reconnect: mcpclient.ReconnectOptions{MaxAttempts: 3}})
		c.Start()
		time.Sleep(time.Hour)
		if n := s.Count("initialize"); n != 3 {
			t.Errorf("%d handshakes, want the cap of 3", n)
		}
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindUnavailable, "not today")
		if e.RetryAfter != mcpclient.NeverAgain || s.Count("initialize") != 3 {
			t.Errorf("after giving up: %+v, %d handshakes", e, s.Count("initialize"))
		}
	})
}

func TestFault107AnyFailureOfTheProbeLeadsToANewConnection(t *testing.T) {
	ping := func(h mcptest.Handler) func(*mcptest.Server) {
		return func(s *mcptest.Server) { s.Handle = map[string]mcptest.Handler{"ping": h} }
	}
	for name, fault := range map[string]func(*mcptest.Server){
		"hang":  ping(mcptest.Sequence(mcptest.Silence(), mcptest.Silence(), nil)),
		"reset": ping(mcptest.Sequence(mcptest.Hangup(), mcptest.Hangup(), nil)),
		"500": func(s *mcptest.Server) {
			s.Status = func(method string, n int) *mcptest.Reply {
				if method == "ping" && n <= 2 {
					return &mcptest.Reply{Status: 500, ContentType: "text/plain", Body: "internal"}
				}
				return nil
			}
		},
		"refused": func(*mcptest.Server) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Legacy)
				fault(s)
				c := overHTTP(t, s, mcpclient.Options{})
				connected(t, c)
				if name == "refused" {
					s.SetDown(true)
					time.Sleep(3 * time.Minute)
					if st := c.Status(); st.State != mcpclient.StateReconnecting {
						t.Errorf("status %+v", st)
					}
					s.SetDown(false)
				}
				time.Sleep(5 * time.Minute)
				if st := c.Status(); st.State != mcpclient.StateReady || st.Connects != 2 {
					t.Errorf("status %+v", st)
				}
				if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFault109AModernServerIsProbedWithDiscover(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Modern) // the fake reports a ping
		c := over(t, s, mcpclient.Options{})
		connected(t, c)
		time.Sleep(10 * time.Minute)
		if s.Count("ping") != 0 || s.Count("server/discover") < 15 {
			t.Errorf("%d pings, %d probes", s.Count("ping"), s.Count("server/discover"))
		}
		stillWorks(t, c)
	})
}

func TestFault110APeerThatAcceptsAndSaysNothingDoesNotHoldTheConnectionAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent []net.Conn
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			silent = append(silent, theirs)
			return ours, nil
		}}
		c := newClient(t, &transport.HTTP{URL: "http://mute.invalid/mcp", Client: &http.Client{Transport: tr}}, mcpclient.Options{Lazy: true})
		start := time.Now()
		_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "30s")
		took(t, start, 30*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Minute)
		start = time.Now()
		if kindOf(c.Connect(ctx)) < 0 || time.Since(start) > time.Second {
			t.Errorf("a caller waited %v of its second", time.Since(start))
		}
		for _, conn := range silent {
			conn.Close()
		}
		tr.CloseIdleConnections()
	})
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Stdio.StopReading = true
		c := overPipe(t, s, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{Timeout: 10 * time.Second}})
		start := time.Now()
		e := wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "10s")
		took(t, start, 10*time.Second)
		if !strings.Contains(e.Message, "timeouts.initialize") {
			t.Errorf("the setting is not named: %s", e.Message)
		}
	})
}

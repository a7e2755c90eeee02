package mcpclient_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// The tests of this file and of seeds_calls_test.go prove what other clients'
// options promise, where no other test does; docs/client-options.md names them.

func TestTheKeyIsInLogsAndNeverOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{Key: "the-key", Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &out}, nil))})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "client=the-key") {
			t.Errorf("the log does not name the client:\n%s", out.String())
		}
		for _, e := range s.Transcript() {
			if strings.Contains(string(e.Raw)+fmt.Sprint(e.Header), "the-key") {
				t.Errorf("%s tells the key: %s", e.Method, e.Raw)
			}
		}
	})
}

func TestServersLearnWhoWeAreWithoutEmptyFields(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		for want, info := range map[string]mcpclient.Implementation{
			`{"name":"mcpbridge","version":"`:                                       {},
			`{"name":"n","version":"v"}`:                                            {Name: "n", Version: "v"},
			`{"name":"n","version":"v","title":"T","websiteUrl":"https://x","icons`: {Name: "n", Version: "v", Title: "T", WebsiteURL: "https://x", Icons: []mcpclient.Icon{{Src: "https://x/i"}}},
		} {
			synctest.Test(t, func(t *testing.T) {
				s := features(era)
				c := overHTTP(t, s, mcpclient.Options{Info: info})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range s.Transcript() {
					switch raw := e.Meta(mcpclient.MetaClientInfo); {
					case raw != nil:
						got = append(got, string(raw))
					case e.Method == "initialize":
						got = append(got, string(e.Params()))
					}
				}
				if len(got) == 0 || slices.ContainsFunc(got, func(raw string) bool { return !strings.Contains(raw, want) || strings.Contains(raw, "null") }) {
					t.Errorf("era %v: servers were told %q, want %s", era, got, want)
				}
			})
		}
	}
}

func TestOptionsAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		ran := false
		o := mcpclient.Options{
			Timeouts: mcpclient.Timeouts{Tools: map[string]time.Duration{"stuck": time.Second}},
			Roots:    []mcpclient.Root{{URI: "file:///a"}},
			Interceptors: []mcpclient.Interceptor{func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
				return next(ctx, call)
			}},
			Listeners: []mcpclient.Listener{{}},
		}
		c := overHTTP(t, s, o)
		o.Timeouts.Tools["stuck"], o.Roots[0].URI = time.Hour, "file:///b"
		o.Listeners[0].Before = func(context.Context, mcpclient.Operation) { ran = true }
		o.Interceptors[0] = nil
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "stuck", nil, nil)), mcpclient.KindTimeout, "1s")
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if roots, err := s.Ask(t.Context(), "roots/list", nil); err != nil || !strings.Contains(string(roots), "file:///a") || ran {
			t.Errorf("roots %s %v, listener ran: %v", roots, err, ran)
		}
	})
}

func TestAnOlderVersionMayBeAdvertisedAfterDetection(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Legacy, mcptest.Dual} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			c := overHTTP(t, s, mcpclient.Options{Version: mcpclient.VersionOptions{Advertise: "2025-06-18"}})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := map[mcptest.Era]string{mcptest.Legacy: "2025-06-18", mcptest.Dual: "2026-07-28"}[era]
			if got := c.Status().Server.ProtocolVersion; got != want {
				t.Errorf("era %v speaks %s, want %s", era, got, want)
			}
			if probe := s.Entries("server/discover")[0]; string(probe.Meta(mcpclient.MetaProtocolVersion)) != `"2026-07-28"` {
				t.Errorf("the probe is of version %s", probe.Meta(mcpclient.MetaProtocolVersion))
			}
		})
	}
}

func TestProbeAndHandshakeMayHaveTimesOfTheirOwn(t *testing.T) {
	for want, separate := range map[time.Duration]bool{40 * time.Second: true, 30 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence(), Initialize: mcptest.Silence()}
			c := overHTTP(t, s, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{DetectTimeout: 10 * time.Second, SeparateBudgets: separate}})
			start := time.Now()
			_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "")
			if took := time.Since(start); took != want {
				t.Errorf("separate %v: it took %v, want %v", separate, took, want)
			}
		})
	}
}

func TestSilenceOverHTTPMayBeAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Discover = mcptest.Silence()
		c := overHTTP(t, s, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{FailOnSilence: true}})
		if err := c.Connect(t.Context()); err == nil || s.Count("initialize") != 0 {
			t.Errorf("%v after %v", err, s.Methods())
		}
	})
}

func TestRecoveryTriesAtAnEvenPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url, client := mcptest.StartMemoryHTTP(t, features(mcptest.Modern))
		tr := &switchable{Transport: &transport.HTTP{URL: url, Client: client}}
		c := newClient(t, tr, mcpclient.PresetRecovery())
		c.Start()
		time.Sleep(10 * time.Minute)
		if n := tr.dials.Load(); n < 105 || n > 135 {
			t.Errorf("%d attempts in ten minutes, want one per 5s", n)
		}
		tr.up.Store(true)
		time.Sleep(6 * time.Second)
		if st := c.Status(); st.State != mcpclient.StateReady {
			t.Errorf("the server is back, the client is %v", st.State)
		}
	})
}

func TestStoppingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := features(mcptest.Legacy)
		o := mcpclient.PresetRecovery()
		o.Handlers.Notification = map[string]func(context.Context, mcpclient.Notification){"x/stuck": func(context.Context, mcpclient.Notification) { <-release }}
		tr, server := transport.NewPipe()
		mcptest.StartPipe(t, s, server)
		c, err := mcpclient.New(tr, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Notify("x/stuck", nil)
		synctest.Wait()
		start := time.Now()
		_ = wantKind(t, c.Close(context.Background()), mcpclient.KindTimeout, "closing")
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("closing took %v, want StopTimeout", took)
		}
		close(release)
	})
}

func TestEachKindOfListHasACacheSwitch(t *testing.T) {
	lists := map[string]func(*mcpclient.Client) (*mcpclient.List, error){
		"tools/list":     func(c *mcpclient.Client) (*mcpclient.List, error) { return c.ListTools(context.Background()) },
		"resources/list": func(c *mcpclient.Client) (*mcpclient.List, error) { return c.ListResources(context.Background()) },
		"resources/templates/list": func(c *mcpclient.Client) (*mcpclient.List, error) {
			return c.ListResourceTemplates(context.Background())
		},
		"prompts/list": func(c *mcpclient.Client) (*mcpclient.List, error) { return c.ListPrompts(context.Background()) },
	}
	for _, off := range []mcpclient.CacheOptions{{}, {NoTools: true}, {NoResources: true}, {NoPrompts: true}, {IgnoreTTL: true}} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.PageSize = 0
			if off.IgnoreTTL {
				s.TTLMs = 1
			}
			c := overHTTP(t, s, mcpclient.Options{Cache: off})
			for range 3 {
				for method, list := range lists {
					if _, err := list(c); err != nil {
						t.Fatalf("%s: %v", method, err)
					}
				}
				time.Sleep(time.Second)
			}
			for method, switched := range map[string]bool{
				"tools/list": off.NoTools, "resources/list": off.NoResources, "resources/templates/list": off.NoResources, "prompts/list": off.NoPrompts,
			} {
				if want := map[bool]int{true: 3, false: 1}[switched]; s.Count(method) != want {
					t.Errorf("%+v: %d requests for %s, want %d", off, s.Count(method), method, want)
				}
			}
		})
	}
}

func TestNotificationsReachTheHandlerOfTheirMethodOrTheOneOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		note := func(who string) func(context.Context, mcpclient.Notification) {
			return func(_ context.Context, n mcpclient.Notification) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, who+" "+n.Method)
			}
		}
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{
			Handlers:  mcpclient.Handlers{Notification: map[string]func(context.Context, mcpclient.Notification){"x/mine": note("mine"), "": note("rest")}},
			Listeners: []mcpclient.Listener{{Notification: note("one")}, {Notification: note("two")}},
		})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Notify("x/mine", nil)
		s.Notify("x/other", jsontext.Value(`{}`))
		synctest.Wait()
		if want := []string{"one x/mine", "two x/mine", "mine x/mine", "one x/other", "two x/other", "rest x/other"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

package mcpclient_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// supported is the data of an UnsupportedProtocolVersionError.
func supported(versions ...string) map[string]any {
	return map[string]any{"supported": versions, "requested": "2026-07-28"}
}

func TestTheEraIsFoundOut(t *testing.T) {
	modern, legacy := "2026-07-28", "2025-11-25"
	type outcome struct {
		version string         // "" = the connection fails
		kind    mcpclient.Kind // with this kind
		text    string         // and these words
		methods string         // the messages the server saw
	}
	const probeThenHandshake = "server/discover initialize notifications/initialized"
	for name, tc := range map[string]struct {
		era      mcptest.Era
		versions []string
		discover mcptest.Handler
		status   *mcptest.Reply // answer to the probe before JSON-RPC
		auto     outcome
	}{
		"a modern server":                      {auto: outcome{version: modern, methods: "server/discover"}},
		"a server of both eras":                {era: mcptest.Dual, auto: outcome{version: modern, methods: "server/discover"}},
		"a legacy server":                      {era: mcptest.Legacy, auto: outcome{version: legacy, methods: probeThenHandshake}},
		"an old legacy server":                 {era: mcptest.Legacy, versions: []string{"2024-11-05"}, auto: outcome{version: "2024-11-05", methods: probeThenHandshake}},
		"error -32601":                         {era: mcptest.Legacy, discover: mcptest.Fail(-32601, "no", nil, 404), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"error -32602":                         {era: mcptest.Legacy, discover: mcptest.Fail(-32602, "no", nil, 200), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"error -32000 at 400":                  {era: mcptest.Legacy, discover: mcptest.Fail(-32000, "No valid session ID", nil, 400), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"error 0":                              {era: mcptest.Legacy, discover: mcptest.Fail(0, "invalid during session initialization", nil, 200), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"error -32603 at 500":                  {era: mcptest.Legacy, discover: mcptest.Fail(-32603, "Error in httpTransport", nil, 500), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"a bare 400":                           {era: mcptest.Legacy, status: &mcptest.Reply{Status: 400, ContentType: "text/plain", Body: "bad"}, auto: outcome{version: legacy, methods: probeThenHandshake}},
		"a 404 page":                           {era: mcptest.Legacy, status: &mcptest.Reply{Status: 404, ContentType: "text/html", Body: "<h1>"}, auto: outcome{version: legacy, methods: probeThenHandshake}},
		"a 400 with a foreign id":              {era: mcptest.Legacy, status: &mcptest.Reply{Status: 400, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}`}, auto: outcome{version: legacy, methods: probeThenHandshake}},
		"an empty result":                      {era: mcptest.Legacy, discover: mcptest.Respond(mcptest.Raw(`{}`)), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"a result of another shape":            {era: mcptest.Legacy, discover: mcptest.Respond(mcptest.Raw(`{"supportedVersions":"all"}`)), auto: outcome{version: legacy, methods: probeThenHandshake}},
		"discover lists legacy versions only":  {era: mcptest.Legacy, discover: mcptest.Respond(mcptest.Raw(`{"supportedVersions":["2025-06-18","2025-03-26"]}`)), auto: outcome{version: "2025-06-18", methods: probeThenHandshake}},
		"discover lists unknown versions only": {discover: mcptest.Respond(mcptest.Raw(`{"supportedVersions":["2030-01-01"]}`)), auto: outcome{kind: mcpclient.KindVersion, text: "2030-01-01", methods: "server/discover"}},
		"-32022 with legacy versions":          {era: mcptest.Legacy, discover: mcptest.Fail(-32022, "no", supported("2025-03-26", "2024-11-05"), 400), auto: outcome{version: "2025-03-26", methods: probeThenHandshake}},
		"-32022 with our modern version":       {discover: mcptest.Sequence(mcptest.Fail(-32022, "no", supported("2026-07-28"), 400), nil), auto: outcome{version: modern, methods: "server/discover server/discover"}},
		"-32022 with unknown versions":         {discover: mcptest.Fail(-32022, "no", supported("2031-01-01"), 400), auto: outcome{kind: mcpclient.KindVersion, text: "2031-01-01", methods: "server/discover"}},
		"-32022 without data":                  {discover: mcptest.Fail(-32022, "no", nil, 400), auto: outcome{kind: mcpclient.KindVersion, methods: "server/discover"}},
		"-32020":                               {discover: mcptest.Fail(-32020, "header mismatch", nil, 400), auto: outcome{kind: mcpclient.KindUnavailable, text: "-32020", methods: "server/discover"}},
		"-32021":                               {discover: mcptest.Fail(-32021, "missing capability", nil, 400), auto: outcome{kind: mcpclient.KindUnavailable, text: "-32021", methods: "server/discover"}},
		"401 is authorization":                 {status: &mcptest.Reply{Status: 401, ContentType: "text/plain"}, auto: outcome{kind: mcpclient.KindUnauthorized, text: "401", methods: "server/discover"}},
		"403 is authorization":                 {status: &mcptest.Reply{Status: 403, ContentType: "application/json", Body: `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`}, auto: outcome{kind: mcpclient.KindUnauthorized, text: "403", methods: "server/discover"}},
		"a bare 503 is no verdict":             {status: &mcptest.Reply{Status: 503, ContentType: "text/plain"}, auto: outcome{kind: mcpclient.KindUnavailable, text: "503", methods: "server/discover"}},
		"a web page is no verdict":             {discover: mcptest.HTML(200), auto: outcome{kind: mcpclient.KindUnavailable, text: "text/html", methods: "server/discover"}},
		"silence":                              {era: mcptest.Legacy, discover: mcptest.Silence(), auto: outcome{version: legacy, methods: "server/discover initialize $aborted notifications/initialized"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &mcptest.Server{Era: tc.era, Versions: tc.versions, Discover: tc.discover}
				if tc.status != nil {
					s.Status = func(method string, _ int) *mcptest.Reply {
						if method == "server/discover" {
							return tc.status
						}
						return nil
					}
				}
				c := overHTTP(t, s, mcpclient.Options{Lazy: true})
				err := c.Connect(t.Context())
				synctest.Wait()
				if tc.auto.version == "" {
					_ = wantKind(t, err, tc.auto.kind, tc.auto.text)
				} else if err != nil {
					t.Fatal(err)
				} else if got := c.Status().Server.ProtocolVersion; got != tc.auto.version {
					t.Errorf("it speaks %s, want %s", got, tc.auto.version)
				}
				got, want := wire(s), strings.Fields(tc.auto.methods)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("the server saw %v, want %v", got, want)
				}
				s.ForgiveViolations() // what a broken server makes of a good client
			})
		})
	}
}

func TestAPinIsRequestedAndTheMinimum(t *testing.T) {
	for name, tc := range map[string]struct {
		server  *mcptest.Server
		pin     string
		kind    mcpclient.Kind // -2 = it connects
		methods string
	}{
		"modern on modern":         {&mcptest.Server{}, "2026-07-28", -2, "server/discover"},
		"modern on legacy":         {&mcptest.Server{Era: mcptest.Legacy}, "2026-07-28", mcpclient.KindVersion, "server/discover"},
		"modern on silence":        {&mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence()}, "2026-07-28", mcpclient.KindUnavailable, "server/discover"},
		"legacy on legacy":         {&mcptest.Server{Era: mcptest.Legacy}, "2025-06-18", -2, "initialize notifications/initialized"},
		"legacy on both":           {&mcptest.Server{Era: mcptest.Dual}, "2025-11-25", -2, "initialize notifications/initialized"},
		"legacy on an older one":   {&mcptest.Server{Era: mcptest.Legacy, Versions: []string{"2024-11-05"}}, "2025-11-25", mcpclient.KindVersion, "initialize"},
		"legacy on modern":         {&mcptest.Server{}, "2025-11-25", mcpclient.KindUnavailable, "initialize"},
		"legacy on a false answer": {&mcptest.Server{Era: mcptest.Legacy, Initialize: mcptest.Respond(mcptest.Raw(`{"protocolVersion":"2099-01-01"}`))}, "2025-11-25", mcpclient.KindVersion, "initialize"},
		"legacy on an error":       {&mcptest.Server{Era: mcptest.Legacy, Initialize: mcptest.Fail(-32603, "no", nil, 200)}, "2025-11-25", mcpclient.KindUnavailable, "initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := overHTTP(t, tc.server, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{Pin: tc.pin}})
				err := c.Connect(t.Context())
				synctest.Wait()
				if kindOf(err) != tc.kind {
					t.Errorf("got %v, want kind %v", err, tc.kind)
				}
				got := slices.DeleteFunc(wire(tc.server), func(m string) bool { return strings.HasPrefix(m, "$") })
				if strings.Join(got, " ") != tc.methods {
					t.Errorf("the server saw %v, want %s", got, tc.methods)
				}
				tc.server.ForgiveViolations()
			})
		})
	}
}

func TestSilenceCostsExactlyTheDetectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence()}
		c := overHTTP(t, s, mcpclient.Options{Version: mcpclient.VersionOptions{DetectTimeout: 3 * time.Second}})
		start := time.Now()
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("connecting took %v, want the detect timeout of 3s", took)
		}
		s.ExpireSessions()
		start = time.Now()
		c.ListTools(t.Context()) //nolint:errcheck // whatever it says, it reconnects
		if took := time.Since(start); took != 0 || s.Count("server/discover") != 1 {
			t.Errorf("the verdict was not kept: %v, %d probes", took, s.Count("server/discover"))
		}
	})
}

func TestHalfOfTheTimeIsLeftForTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence()}
		c := overHTTP(t, s, mcpclient.Options{Version: mcpclient.VersionOptions{DetectTimeout: time.Hour, Timeout: 4 * time.Second}})
		start := time.Now()
		if err := c.Connect(t.Context()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("connected after %v: %v", time.Since(start), err)
		}
	})
}

func TestALateAnswerToTheProbeStillWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{
			Era:      mcptest.Dual,
			Discover: mcptest.Sequence(mcptest.Delay(7*time.Second, nil), nil),
			Handle:   map[string]mcptest.Handler{"initialize": mcptest.Silence()},
		}
		c := overHTTP(t, s, mcpclient.Options{})
		start := time.Now()
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 7*time.Second || c.Status().Server.Era != mcpclient.EraModern {
			t.Errorf("after %v: %+v", took, c.Status().Server)
		}
		s.ForgiveViolations()
	})
}

func TestAModernServerThatRefusesTheHandshakeByNameIsModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{
			Discover:   mcptest.Sequence(mcptest.Delay(time.Hour, nil), nil),
			Initialize: mcptest.Fail(-32601, "unknown method", supported("2026-07-28"), 404),
		}
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil || c.Status().Server.Era != mcpclient.EraModern {
			t.Errorf("%v %+v", err, c.Status())
		}
		s.ForgiveViolations()
	})
}

func TestOneBudgetBoundsTheWholeConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, Discover: mcptest.Silence(), Initialize: mcptest.Silence()}
		c := overHTTP(t, s, mcpclient.Options{Lazy: true})
		start := time.Now()
		err := c.Connect(t.Context())
		e := wantKind(t, err, mcpclient.KindUnavailable, "30s")
		if took := time.Since(start); took != 30*time.Second || e.RetryAfter <= 0 {
			t.Errorf("gave up after %v: %v", took, fmt.Sprintf("%+v", e))
		}
	})
}

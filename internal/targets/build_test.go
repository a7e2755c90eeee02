package targets

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func newBuilder(d Deps) *builder {
	d.Logger = slog.New(slog.DiscardHandler)
	return &builder{deps: d, info: config.ClientInfo{Name: "bridge", Title: "T", WebsiteURL: "https://x"}, gate: make(chan struct{}, maxEagerConnects), changed: func(*Target, pool.Status) {}}
}

func TestEverySettingReachesTheClient(t *testing.T) {
	c := config.NewTarget(config.TransportStdio)
	c.Timeouts = config.Timeouts{
		Tool: time.Second, Resource: 0, Prompt: 3 * time.Second, Completion: 4 * time.Second, Initialize: 0, Detect: 6 * time.Second, Max: 9 * time.Second,
		Tools: map[string]time.Duration{"slow": time.Hour, "endless": 0},
	}
	c.Health = config.Health{Enabled: false, Interval: 10 * time.Second, Timeout: 11 * time.Second, Failures: 12}
	c.Reconnect = config.Reconnect{Interval: 7 * time.Second, MaxInterval: 8 * time.Second, Multiplier: 1.5, MaxAttempts: 13}
	c.Cache = config.Cache{Resources: true, IgnoreTTL: true}
	c.Changes = config.Changes{Prompts: true}
	c.Input = config.Input{MaxRounds: 14}
	c.Tasks = config.Tasks{MaxStuckPolls: 15, PollInterval: 16 * time.Second}
	c.Dispatch = config.Dispatch{MaxInFlight: 17}
	c.ServerLogLevel = config.ServerLogNotice
	c.MaxListBytes = 18
	c.ProtocolVersion, c.MinimumProtocolVersion = config.Version20251125, config.MinimumVersion(config.Version20250618)
	c.Roots = []config.Root{{URI: "file:///a", Name: "a"}}
	got := newBuilder(Deps{Version: "1.2.3"}).options("x", c)
	want := mcpclient.Options{
		Key:     "x",
		Info:    mcpclient.Implementation{Name: "bridge - x", Version: "1.2.3", Title: "T", WebsiteURL: "https://x"},
		Version: mcpclient.VersionOptions{Pin: "2025-11-25", Minimum: "2025-06-18", DetectTimeout: 6 * time.Second, Timeout: mcpclient.NoTimeout},
		Timeouts: mcpclient.Timeouts{
			Tool: time.Second, Resource: mcpclient.NoTimeout, Prompt: 3 * time.Second, Completion: 4 * time.Second, Max: 9 * time.Second,
			Tools: map[string]time.Duration{"slow": time.Hour, "endless": mcpclient.NoTimeout},
		},
		Health:       mcpclient.HealthOptions{Disabled: true, Interval: 10 * time.Second, Timeout: 11 * time.Second, Failures: 12},
		Reconnect:    mcpclient.ReconnectOptions{Interval: 7 * time.Second, MaxInterval: 8 * time.Second, Multiplier: 1.5, MaxAttempts: 13},
		Cache:        mcpclient.CacheOptions{NoTools: true, NoPrompts: true, IgnoreTTL: true},
		Changes:      mcpclient.ChangeOptions{NoTools: true, NoResources: true},
		Rounds:       mcpclient.RoundOptions{MaxRetries: 14},
		Tasks:        mcpclient.TaskOptions{Disabled: true, MaxStuckPolls: 15, PollInterval: 16 * time.Second},
		Dispatch:     mcpclient.DispatchOptions{MaxInFlight: 17},
		LogLevel:     mcpclient.LogNotice,
		MaxListBytes: 18,
		Roots:        []mcpclient.Root{{URI: "file:///a", Name: "a"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(mcpclient.Options{}, "Logger")); diff != "" {
		t.Error(diff)
	}
}

func TestZeroMeansInTheClientWhatItMeansInTheConfiguration(t *testing.T) {
	c := config.NewTarget(config.TransportAuto)
	c.Timeouts = config.Timeouts{}
	c.Input.MaxRounds, c.Dispatch.MaxInFlight, c.Reconnect.MaxAttempts = 0, 0, 0
	got := newBuilder(Deps{}).options("x", c)
	want := mcpclient.Timeouts{
		Tool: mcpclient.NoTimeout, Resource: mcpclient.NoTimeout, Prompt: mcpclient.NoTimeout, Completion: mcpclient.NoTimeout, Max: mcpclient.NoTimeout,
		Tools: map[string]time.Duration{},
	}
	if diff := cmp.Diff(want, got.Timeouts); diff != "" {
		t.Error(diff)
	}
	if got.Rounds.MaxRetries >= 0 || got.Dispatch.MaxInFlight != mcpclient.Unlimited || got.Reconnect.MaxAttempts != 0 {
		t.Errorf("rounds %d, dispatch %d, attempts %d", got.Rounds.MaxRetries, got.Dispatch.MaxInFlight, got.Reconnect.MaxAttempts)
	}
	if got.LogLevel != "" || got.Handlers.Log != nil || got.Health.Disabled || got.Tasks.Disabled {
		t.Errorf("defaults: %+v", got)
	}
}

// What the configuration documents as a default is the client's own, so that
// both documents are true.
func TestTheDefaultsAreThoseOfTheClient(t *testing.T) {
	for _, tr := range []config.Transport{config.TransportAuto, config.TransportStdio} {
		got := newBuilder(Deps{}).options("x", config.NewTarget(tr))
		want := mcpclient.Options{
			Version: mcpclient.VersionOptions{DetectTimeout: 5 * time.Second, Timeout: 30 * time.Second},
			Timeouts: mcpclient.Timeouts{
				Tool: time.Minute, Resource: time.Minute, Prompt: time.Minute, Completion: time.Minute, Max: mcpclient.NoTimeout,
				Tools: map[string]time.Duration{},
			},
			Health:       mcpclient.HealthOptions{Interval: 30 * time.Second, Timeout: 10 * time.Second, Failures: 2},
			Reconnect:    mcpclient.ReconnectOptions{Interval: 5 * time.Second, MaxInterval: time.Minute, Multiplier: 2},
			Rounds:       mcpclient.RoundOptions{MaxRetries: 3},
			Tasks:        mcpclient.TaskOptions{MaxStuckPolls: 60, PollInterval: time.Second},
			Dispatch:     mcpclient.DispatchOptions{MaxInFlight: 1024},
			MaxListBytes: 64 << 20,
		}
		if tr == config.TransportStdio {
			want.Version = mcpclient.VersionOptions{DetectTimeout: 15 * time.Second, Timeout: time.Minute}
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(mcpclient.Options{}, "Logger", "Info", "Key")); diff != "" {
			t.Errorf("%s: %s", tr, diff)
		}
	}
}

func TestEverySettingReachesTheTransport(t *testing.T) {
	c := config.NewTarget(config.TransportStdio)
	c.Command, c.Cwd, c.MaxReplyBytes = []string{"prog", "-a"}, "/d", 5
	c.Env = map[string]config.Secret{"TOKEN": "s", "PATH": "/p"}
	tr, err := newBuilder(Deps{Environ: []string{"PATH=/bin", "USER=u", "X=y", "broken"}}).transport("x", c, nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd, ok := tr.(*transport.Command)
	if !ok {
		t.Fatalf("transport = %T", tr)
	}
	if cmd.Path != "prog" || cmd.Args[0] != "-a" || cmd.Dir != "/d" || cmd.MaxReplyBytes != 5 || cmd.StopTimeout != 10*time.Second {
		t.Errorf("command = %q %q %q %d %v", cmd.Path, cmd.Args, cmd.Dir, cmd.MaxReplyBytes, cmd.StopTimeout)
	}
	if diff := cmp.Diff([]string{"PATH=/p", "TOKEN=s", "USER=u"}, cmd.Env); diff != "" {
		t.Error(diff)
	}

	c = config.NewTarget(config.TransportAuto)
	c.URL, c.Headers = "https://x/mcp", map[string]config.Secret{"authorization": "Bearer s"}
	tr, err = newBuilder(Deps{}).transport("x", c, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, ok := tr.(*transport.HTTP)
	if !ok {
		t.Fatalf("transport = %T", tr)
	}
	if diff := cmp.Diff(http.Header{"Authorization": {"Bearer s"}}, h.Header); diff != "" || h.URL != "https://x/mcp" || h.MaxReplyBytes != 64<<20 {
		t.Errorf("http = %s %d %s", h.URL, h.MaxReplyBytes, diff)
	}
}

func TestTheURLAndTheTransportSayHowATargetIsReached(t *testing.T) {
	for _, tt := range []struct {
		url       string
		transport config.Transport
		name      string
	}{
		{"https://x/mcp", config.TransportAuto, transport.NameHTTP},
		{"https://x/mcp", config.TransportStreamableHTTP, transport.NameHTTP},
		{"https://x/sse", config.TransportSSE, transport.NameSSE},
		{"unix:///run/s.sock", config.TransportAuto, transport.NameUnix},
		{"tcp://[::1]:9000", config.TransportAuto, transport.NameTCP},
	} {
		c := config.NewTarget(config.TransportAuto)
		c.URL, c.Transport, c.MaxReplyBytes = tt.url, tt.transport, 7
		c.Headers = map[string]config.Secret{"x-a": "v"}
		tr, err := newBuilder(Deps{}).transport("x", c, nil)
		if err != nil || tr.Name() != tt.name {
			t.Errorf("%s %s: %v, %v", tt.url, tt.transport, tr, err)
			continue
		}
		switch tr := tr.(type) {
		case *transport.HTTP:
			if want := map[bool]transport.SSEFallback{true: transport.SSEAuto, false: transport.SSENever}[tt.transport == config.TransportAuto]; tr.SSEFallback != want || tr.MaxReplyBytes != 7 {
				t.Errorf("%s %s: fallback %v, limit %d", tt.url, tt.transport, tr.SSEFallback, tr.MaxReplyBytes)
			}
		case *transport.SSE:
			if tr.URL != tt.url || tr.Header.Get("X-A") != "v" || tr.MaxReplyBytes != 7 {
				t.Errorf("%s: %s %v %d", tt.url, tr.URL, tr.Header, tr.MaxReplyBytes)
			}
		case *transport.Socket:
			if got := tr.Network + ":" + tr.Address; tr.MaxReplyBytes != 7 || got != "unix:/run/s.sock" && got != "tcp:[::1]:9000" {
				t.Errorf("%s: %s %d", tt.url, got, tr.MaxReplyBytes)
			}
		default:
			t.Errorf("%s: %T", tt.url, tr)
		}
	}
	c := config.NewTarget(config.TransportAuto)
	c.URL = "ftp://x"
	if tr, err := newBuilder(Deps{}).transport("x", c, nil); err == nil || tr != nil {
		t.Errorf("an unusable URL gives %v, %v", tr, err)
	}
}

func TestThePoolFollowsTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		pool config.Pool
		want pool.Stat
	}{
		{config.Pool{MaxConnections: 2, MaxInFlight: 3, MaxQueue: 4}, pool.Stat{MaxConnections: 2, MaxInFlight: 3, MaxQueue: 4}},
		{config.Pool{MaxInFlight: 0, MaxQueue: 4}, pool.Stat{MaxConnections: 1, MaxInFlight: mcpclient.Unlimited, MaxQueue: 4}},
		{config.Pool{MaxInFlight: 3, MaxQueue: 0}, pool.Stat{MaxConnections: 1, MaxInFlight: 3, MaxQueue: mcpclient.Unlimited}},
		{config.Pool{Isolation: config.IsolationPerKey, MaxInFlight: 3}, pool.Stat{MaxConnections: 256, MaxInFlight: 3, MaxQueue: mcpclient.Unlimited}},
	} {
		c := httpTarget("http://127.0.0.1:1/")
		c.Pool = tt.pool
		s := newSet(t, Deps{}, map[string]*config.Target{"x": c})
		if diff := cmp.Diff(tt.want, s.All()[0].Stat()); diff != "" {
			t.Errorf("%+v: %s", tt.pool, diff)
		}
	}
}

func TestCallsAreSpreadOverTheReplicasOfATarget(t *testing.T) {
	var servers [2]*mcptest.Server
	c := config.NewTarget(config.TransportStreamableHTTP)
	c.Changes = config.Changes{} // a subscription makes a replica busy
	for i := range servers {
		servers[i] = &mcptest.Server{Tools: []mcptest.Tool{{Name: "hi"}}}
		c.URLs = append(c.URLs, mcptest.StartHTTP(t, servers[i]))
	}
	s := newSet(t, Deps{}, map[string]*config.Target{"a": c})
	for range 10 {
		if _, err := call(t, s, "a", "hi"); err != nil {
			t.Fatal(err)
		}
	}
	for i, server := range servers {
		if server.Count("tools/call") == 0 {
			t.Errorf("replica %d got no call", i)
		}
	}
	c = config.NewTarget(config.TransportAuto)
	c.URLs = []string{"http://a/x", "http://b/y"}
	if _, err := newBuilder(Deps{}).build("x", c); err == nil || !strings.Contains(err.Error(), "URL 2") {
		t.Errorf("replicas that are not: %v", err)
	}
}

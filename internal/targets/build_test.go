package targets

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func newBuilder(d Deps) *builder {
	d.Logger = slog.New(slog.DiscardHandler)
	return &builder{deps: d, info: config.ClientInfo{Name: "bridge", Title: "T", WebsiteURL: "https://x"}, gate: make(chan struct{}, maxEagerConnects), changed: func(*Target) {}}
}

func TestEverySettingReachesTheClient(t *testing.T) {
	c := config.NewTarget(config.TransportStdio)
	c.Timeouts = config.Timeouts{Tool: time.Second, Resource: 0, Prompt: 3 * time.Second, Completion: 4 * time.Second, Initialize: 0, Detect: 6 * time.Second, Tools: map[string]time.Duration{"slow": time.Hour, "endless": 0}}
	c.Reconnect = config.Reconnect{Interval: 7 * time.Second, MaxInterval: 8 * time.Second}
	c.Cache = config.Cache{Resources: true}
	c.ProtocolVersion = config.Version20251125
	c.Lazy = true
	c.Roots = []config.Root{{URI: "file:///a", Name: "a"}}
	got := newBuilder(Deps{Version: "1.2.3"}).options("x", c)
	want := mcpclient.Options{
		Info:    mcpclient.Implementation{Name: "bridge - x", Version: "1.2.3", Title: "T", WebsiteURL: "https://x"},
		Version: mcpclient.VersionOptions{Pin: "2025-11-25", DetectTimeout: 6 * time.Second, Timeout: mcpclient.NoTimeout},
		Timeouts: mcpclient.Timeouts{
			Tool: time.Second, Resource: mcpclient.NoTimeout, Prompt: 3 * time.Second, Completion: 4 * time.Second,
			Tools: map[string]time.Duration{"slow": time.Hour, "endless": mcpclient.NoTimeout},
		},
		Reconnect: mcpclient.ReconnectOptions{Interval: 7 * time.Second, MaxInterval: 8 * time.Second},
		Cache:     mcpclient.CacheOptions{NoTools: true, NoPrompts: true},
		Roots:     []mcpclient.Root{{URI: "file:///a", Name: "a"}},
		Lazy:      true,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(mcpclient.Options{}, "Logger")); diff != "" {
		t.Error(diff)
	}
}

func TestEverySettingReachesTheTransport(t *testing.T) {
	c := config.NewTarget(config.TransportStdio)
	c.Command, c.Cwd, c.MaxReplyBytes = []string{"prog", "-a"}, "/d", 5
	c.Env = map[string]config.Secret{"TOKEN": "s", "PATH": "/p"}
	tr, err := newBuilder(Deps{Environ: []string{"PATH=/bin", "USER=u", "X=y", "broken"}}).transport("x", c)
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
	tr, err = newBuilder(Deps{}).transport("x", c)
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

func TestPoolLimitsFollowTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		pool                  config.Pool
		maxInFlight, maxQueue int
	}{
		{config.Pool{MaxInFlight: 3, MaxQueue: 4}, 3, 4},
		{config.Pool{MaxInFlight: 0, MaxQueue: 4}, mcpclient.Unlimited, 4},
		{config.Pool{MaxInFlight: 3, MaxQueue: 0}, 3, mcpclient.Unlimited},
	} {
		c := httpTarget("http://127.0.0.1:1/")
		c.Pool = tt.pool
		s := newSet(t, Deps{}, map[string]*config.Target{"x": c})
		if got := s.All()[0].Stat(); got.MaxInFlight != tt.maxInFlight || got.MaxQueue != tt.maxQueue {
			t.Errorf("%+v: stat = %+v", tt.pool, got)
		}
	}
}

func TestOnlyFirstConnectsAreGated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuilder(Deps{})
		gates := make([]func(context.Context) (func(), error), maxEagerConnects+1)
		releases := make([]func(), len(gates))
		for i := range gates {
			gates[i] = b.firstConnect()
		}
		enter := func(i int) {
			release, err := gates[i](t.Context())
			if err != nil {
				t.Errorf("gate %d: %v", i, err)
			}
			releases[i] = release
		}
		for i := range maxEagerConnects {
			enter(i)
		}
		done := make(chan struct{})
		go func() { defer close(done); enter(maxEagerConnects) }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("one connect too many at the same time")
		default:
		}
		again, err := gates[0](t.Context()) // a reconnect is not held up
		if err != nil {
			t.Fatal(err)
		}
		again()
		releases[3]()
		<-done
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.firstConnect()(ctx); err == nil {
			t.Error("a full gate must let go of an ended context")
		}
	})
}

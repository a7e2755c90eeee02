package targets

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestAProfileHoldsWhatAConnectionDeclares(t *testing.T) {
	for profile, c := range map[string]mcpclient.Capabilities{
		"":                 {},
		"elicitation.form": {ElicitationForm: true},
		"elicitation.form elicitation.url roots sampling sampling.context sampling.tools": {ElicitationForm: true, ElicitationURL: true, Roots: true, Sampling: true, SamplingContext: true, SamplingTools: true},
		"roots sampling sampling.tools": {Roots: true, SamplingTools: true},
	} {
		got := profileOf(c)
		if got != profile {
			t.Errorf("%+v: %q, want %q", c, got, profile)
		}
		c.Sampling = c.Sampling || c.SamplingTools
		if diff := cmp.Diff(c, capabilitiesOf(got)); diff != "" {
			t.Errorf("%q: %s", got, diff)
		}
	}
	words, _ := capabilityWords(new(mcpclient.Capabilities))
	if !slices.IsSorted(words) {
		t.Errorf("the words are not sorted: %q", words)
	}
	extension := mcpclient.Capabilities{Extensions: map[string]jsontext.Value{"x": jsontext.Value("{}")}}
	if got := profileOf(extension); got != "" {
		t.Errorf("an extension makes the profile %q", got)
	}
}

// declared returns the capabilities of each initialize so far, and the probes.
func declared(t *testing.T, server *mcptest.Server) (out []string) {
	t.Helper()
	for _, e := range server.Entries("initialize") {
		var params struct{ Capabilities json.RawMessage }
		if err := json.Unmarshal(e.Params(), &params); err != nil {
			t.Fatal(err)
		}
		out = append(out, string(params.Capabilities))
	}
	return out
}

func TestAnInteractiveCallGetsTheConnectionThatItNeeds(t *testing.T) {
	const form = `{"elicitation":{"form":{}}}`
	asks := mcpclient.Capabilities{ElicitationForm: true}
	for name, c := range map[string]struct {
		era       mcptest.Era
		isolation config.Isolation
		declare   mcpclient.Capabilities
		calls     int
		want      []string // at initialize
	}{
		"modern":                      {mcptest.Modern, config.IsolationShared, asks, 2, nil},
		"legacy, nothing declared":    {mcptest.Legacy, config.IsolationShared, mcpclient.Capabilities{}, 2, []string{"{}"}},
		"legacy":                      {mcptest.Legacy, config.IsolationShared, asks, 3, []string{"{}", form}},
		"legacy, one caller of a key": {mcptest.Legacy, config.IsolationPerKey, asks, 2, []string{"{}", form}},
		"legacy, each call alone":     {mcptest.Legacy, config.IsolationPerCall, asks, 2, []string{"{}", form, form}},
	} {
		t.Run(name, func(t *testing.T) {
			server := &mcptest.Server{Era: c.era, Tools: []mcptest.Tool{{Name: "hi"}}}
			target := httpTarget(mcptest.StartHTTP(t, server))
			target.Pool.Isolation, target.Pool.MaxConnections = c.isolation, 0
			s := newSet(t, Deps{}, map[string]*config.Target{"a": target})
			s.Start()
			for range c.calls {
				lease, err := s.All()[0].AcquireInteractive(t.Context(), Caller{Affinity: "k"}, c.declare)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := lease.Client().CallTool(t.Context(), "hi", nil, nil); err != nil {
					t.Error(err)
				}
				lease.Release()
			}
			if diff := cmp.Diff(c.want, declared(t, server)); diff != "" {
				t.Errorf("capabilities at initialize (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInteractiveCallsToALegacyServerShareNoConnection(t *testing.T) {
	server := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "hi"}}}
	target := httpTarget(mcptest.StartHTTP(t, server))
	target.Pool.MaxInteractive = 2
	s := newSet(t, Deps{}, map[string]*config.Target{"a": target})
	s.Start()
	take := func() error {
		lease, err := s.All()[0].AcquireInteractive(t.Context(), Caller{}, mcpclient.Capabilities{Sampling: true})
		if err == nil {
			t.Cleanup(lease.Release)
			_, err = lease.Client().CallTool(t.Context(), "hi", nil, nil)
		}
		return err
	}
	for range 2 {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	if e, ok := errors.AsType[*mcpclient.Error](take()); !ok || e.Kind != mcpclient.KindOverloaded {
		t.Errorf("the third: %v", e)
	}
	if got := declared(t, server); len(got) != 3 {
		t.Errorf("connections declared %q", got)
	}
	if n := s.All()[0].Stat().Interactive; n != 2 {
		t.Errorf("%d interactive connections", n)
	}
}

func TestWithoutAConnectionAnInteractiveCallFailsAsOthersDo(t *testing.T) {
	server := &mcptest.Server{Discover: mcptest.Silence()}
	target := httpTarget(mcptest.StartHTTP(t, server))
	target.ProtocolVersion = config.Version20260728
	s := newSet(t, Deps{}, map[string]*config.Target{"a": target})
	s.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.All()[0].AcquireInteractive(ctx, Caller{}, mcpclient.Capabilities{Roots: true})
	if e, ok := errors.AsType[*mcpclient.Error](err); !ok || e.Kind != mcpclient.KindTimeout {
		t.Errorf("got %v, want the caller's deadline", err)
	}
	if n := s.All()[0].Stat().InFlight; n != 0 {
		t.Errorf("%d leases are left", n)
	}
	keyed := httpTarget("http://127.0.0.1:1/")
	keyed.Pool.Isolation, keyed.Pool.MaxConnections = config.IsolationPerKey, 0
	other := newSet(t, Deps{}, map[string]*config.Target{"a": keyed})
	if _, err := other.All()[0].AcquireInteractive(t.Context(), Caller{}, mcpclient.Capabilities{Roots: true}); !errors.Is(err, ErrAffinityRequired) {
		t.Errorf("got %v, want ErrAffinityRequired", err)
	}
}

func TestATargetTellsItsRootsAndItsPollInterval(t *testing.T) {
	c := httpTarget("http://127.0.0.1:1/")
	c.Roots, c.Tasks.PollInterval = []config.Root{{URI: "file:///a", Name: "a"}}, 3*time.Second
	target := newSet(t, Deps{}, map[string]*config.Target{"a": c}).All()[0]
	if diff := cmp.Diff([]mcpclient.Root{{URI: "file:///a", Name: "a"}}, target.Roots()); diff != "" || target.TaskPollInterval() != 3*time.Second {
		t.Errorf("%v %s", target.TaskPollInterval(), diff)
	}
}

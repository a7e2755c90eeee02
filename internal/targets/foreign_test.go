package targets

import (
	"slices"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestEveryTransportReplacesTheSecretsOfItsTarget(t *testing.T) {
	stdio := config.NewTarget(config.TransportStdio)
	stdio.Command, stdio.Env = []string{"x"}, map[string]config.Secret{"TOKEN": "top-secret"}
	for url, kind := range map[string]config.Transport{"https://x/mcp": config.TransportStreamableHTTP, "https://x/sse": config.TransportSSE, "https://x/": config.TransportAuto} {
		c := config.NewTarget(kind)
		c.URL, c.Headers = url, map[string]config.Secret{"X-Key": "top-secret"}
		wantRedact(t, c)
	}
	wantRedact(t, stdio)
}

func wantRedact(t *testing.T, c *config.Target) {
	t.Helper()
	tr, err := newBuilder(Deps{Supervisor: []string{"/bridge", "supervise"}}).transport("x", c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var redact func(string) string
	switch tr := tr.(type) {
	case *transport.Command:
		redact = tr.Redact
		if !slices.Equal(tr.Supervisor, []string{"/bridge", "supervise"}) {
			t.Errorf("supervisor %q", tr.Supervisor)
		}
	case *transport.HTTP:
		redact = tr.Redact
	case *transport.SSE:
		redact = tr.Redact
	}
	if redact == nil || redact("a top-secret b") != "a [redacted] b" {
		t.Errorf("%T does not redact", tr)
	}
}

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/server"
	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// Objects that the bridge may allocate for one call more than the floor does, which forwards the same call. The caller,
// the MCP server and net/http are in both and cancel out. Unlike times, these figures are the same on every machine.
// Lower a budget when the bridge needs less; raise it only for a reason.
const (
	textBudget   = 52
	structBudget = 64
)

func TestACallStaysWithinItsAllocationBudget(t *testing.T) {
	upstream := serveHere(t, lightmcp.New(lightmcp.JSON, 0))
	bridge := serveHere(t, bridgeHandler(t, "http://"+upstream))
	echo := work{Kind: "echo", Size: 1 << 10}
	least := allocations(t, serveHere(t, connectHandler(newPoster("http://"+upstream))), echo)
	for _, tt := range []struct {
		name   string
		work   work
		budget float64
	}{
		{"text", echo, textBudget},
		{"Struct", work{Kind: echo.Kind, Size: echo.Size, Struct: true}, structBudget},
	} {
		more := allocations(t, bridge, tt.work) - least
		if more > tt.budget {
			t.Errorf("arguments and result as %s: %.0f objects a call more than the floor's %.0f, the budget is %.0f", tt.name, more, least, tt.budget)
		}
	}
}

// allocations is the number of objects that a call allocates in this process, in which everything runs here.
func allocations(t *testing.T, address string, w work) float64 {
	t.Helper()
	job, err := w.prepare()
	if err != nil {
		t.Fatal(err)
	}
	over, err := newRemote(address)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	return testing.AllocsPerRun(500, func() {
		if err := job.do(t.Context(), over, 0); err != nil {
			t.Fatal(err)
		}
	})
}

// bridgeHandler is a bridge with one target and no telemetry, which has a budget of its own in package bridgeotel.
func bridgeHandler(t *testing.T, url string) http.Handler {
	t.Helper()
	cfg := config.Default()
	cfg.Targets[target] = config.NewTarget(config.TransportStreamableHTTP)
	cfg.Targets[target].URL = url
	set, err := targets.New(cfg, targets.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	set.Start()
	t.Cleanup(func() {
		if err := set.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	srv, err := server.New(server.Options{Targets: set})
	if err != nil {
		t.Fatal(err)
	}
	return srv.Handler()
}

// serveHere serves until the test ends and returns the address.
func serveHere(t *testing.T, handler http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = cleartext()
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

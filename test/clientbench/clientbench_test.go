package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// TestMain lets the test's own binary be the server on stdio.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestBothClientsGetTheSameResultOnEveryTransport(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]string{"stdio": self}
	for _, kind := range []string{"json", "sse"} {
		server := httptest.NewServer(lightmcp.New(lightmcp.Mode(kind), 0))
		defer server.Close()
		targets[kind] = server.URL
	}
	for kind, target := range targets {
		for _, tool := range []string{"small", "large"} {
			for name, connect := range map[string]connector{"ours": ours, "sdk": sdk} {
				c, err := connect(t.Context(), target, kind, tool)
				if err != nil {
					t.Fatalf("%s, %s: %v", name, kind, err)
				}
				text, err := c.call(t.Context())
				if err != nil || text != answer(tool) {
					t.Errorf("%s, %s, %s: got %d bytes, %v", name, kind, tool, len(text), err)
				}
				measured, err := spin(t.Context(), c, 2, 10*time.Millisecond)
				if err != nil || measured.Calls == 0 || measured.CPU <= 0 || measured.Allocs <= 0 {
					t.Errorf("%s, %s, %s: measured %+v, %v", name, kind, tool, measured, err)
				}
				if err := c.close(); err != nil {
					t.Errorf("%s, %s: close: %v", name, kind, err)
				}
			}
		}
	}
}

func TestResultsHaveTheSizeTheyAreNamedFor(t *testing.T) {
	if small, large := len(answer("small")), len(answer("large")); small != 1<<10 || large != 1<<20 {
		t.Errorf("small is %d bytes, large is %d", small, large)
	}
}

func TestMedianAndExtremes(t *testing.T) {
	samples := []sample{{CPU: 3}, {CPU: 1}, {CPU: 2}}
	least, most := extremes(samples, func(s sample) float64 { return s.CPU })
	if got := median(samples, func(s sample) float64 { return s.CPU }); got != 2 || least != 1 || most != 3 {
		t.Errorf("median %v, from %v to %v", got, least, most)
	}
}

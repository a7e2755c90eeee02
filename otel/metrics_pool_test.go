package bridgeotel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestFiguresOfPoolsAreReadAtEachScrape(t *testing.T) {
	m := measuring(t)
	stat := pool.Stat{
		Connections: 3, Interactive: 1, Closing: 17, Keys: 2, InFlight: 4, Queued: 5, MaxConnections: 6, MaxInFlight: 7, MaxQueue: 8,
		Waits: 9, Rejected: 10, Evicted: 11, Breaker: pool.BreakerHalfOpen,
		Clients: mcpclient.Stat{Connects: 12, Reconnects: 13, CacheHits: 14, CacheMisses: 15, Shed: 16},
	}
	now := []TargetFigures{
		{Name: "a", State: pool.StateReady, Stat: stat},
		{Name: "b", State: pool.StateReconnecting, Stat: pool.Stat{MaxInFlight: mcpclient.Unlimited, MaxQueue: mcpclient.Unlimited}},
	}
	if err := m.ObserveTargets(func() []TargetFigures { return now }); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m, "")
	for name, want := range map[string][]string{
		"mcpbridge_pool_connections":             {`mcpbridge_target="a" 3`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_connections_interactive": {`mcpbridge_target="a" 1`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_connections_closing":     {`mcpbridge_target="a" 17`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_keys":                    {`mcpbridge_target="a" 2`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_in_flight":               {`mcpbridge_target="a" 4`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_queued":                  {`mcpbridge_target="a" 5`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_connections_max":         {`mcpbridge_target="a" 6`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_in_flight_max":           {`mcpbridge_target="a" 7`},
		"mcpbridge_pool_queued_max":              {`mcpbridge_target="a" 8`},
		"mcpbridge_pool_waits_total":             {`mcpbridge_target="a" 9`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_rejections_total":        {`mcpbridge_target="a" 10`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_evictions_total":         {`mcpbridge_target="a" 11`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_connects_total":          {`mcpbridge_target="a" 12`, `mcpbridge_target="b" 0`},
		"mcpbridge_pool_reconnects_total":        {`mcpbridge_target="a" 13`, `mcpbridge_target="b" 0`},
		"mcpbridge_dispatch_shed_total":          {`mcpbridge_target="a" 16`, `mcpbridge_target="b" 0`},
		"mcpbridge_cache_lookups_total": {
			`mcpbridge_cache_result="hit" mcpbridge_target="a" 14`, `mcpbridge_cache_result="hit" mcpbridge_target="b" 0`,
			`mcpbridge_cache_result="miss" mcpbridge_target="a" 15`, `mcpbridge_cache_result="miss" mcpbridge_target="b" 0`,
		},
		"mcpbridge_pool_breaker_state": {
			`mcpbridge_state="closed" mcpbridge_target="a" 0`, `mcpbridge_state="closed" mcpbridge_target="b" 1`,
			`mcpbridge_state="half_open" mcpbridge_target="a" 1`, `mcpbridge_state="half_open" mcpbridge_target="b" 0`,
			`mcpbridge_state="open" mcpbridge_target="a" 0`, `mcpbridge_state="open" mcpbridge_target="b" 0`,
		},
	} {
		if diff := cmp.Diff(want, series(text, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var states []string
	for _, line := range series(text, "mcpbridge_target_state") {
		if line[len(line)-1] == '1' {
			states = append(states, line)
		}
	}
	if diff := cmp.Diff([]string{`mcpbridge_state="ready" mcpbridge_target="a" 1`, `mcpbridge_state="reconnecting" mcpbridge_target="b" 1`}, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}

	now = now[1:] // a reload removed it
	if got := series(scrape(t, m, ""), "mcpbridge_pool_connections"); !cmp.Equal(got, []string{`mcpbridge_target="b" 0`}) {
		t.Errorf("after a target is gone: %v", got)
	}
}

func TestLostSpansAreShown(t *testing.T) {
	m := measuring(t)
	if err := m.ObserveSpans(func() SpanStat { return SpanStat{Exported: 1, Failed: 2, Dropped: 3, Waiting: 4} }); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m, "")
	want := []string{`mcpbridge_span_outcome="dropped" 3`, `mcpbridge_span_outcome="exported" 1`, `mcpbridge_span_outcome="failed" 2`}
	if diff := cmp.Diff(want, series(text, "mcpbridge_spans_total")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := series(text, "mcpbridge_spans_waiting"); !cmp.Equal(got, []string{"4"}) {
		t.Errorf("waiting: %v", got)
	}
}

func TestTheProcessIsMeasured(t *testing.T) {
	found := families(scrape(t, measuring(t), ""))
	for name, kind := range map[string]string{
		"mcpbridge_build_info": "gauge", "target_info": "gauge",
		"go_goroutine_count": "gauge", "go_memory_used_bytes": "gauge", "go_schedule_duration_seconds": "histogram",
		"process_cpu_seconds_total": "counter", "process_resident_memory_bytes": "gauge",
	} {
		if found[name] != kind {
			t.Errorf("%s has the type %q, want %q; there are %v", name, found[name], kind, keysOf(found))
		}
	}
}

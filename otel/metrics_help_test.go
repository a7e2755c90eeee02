package bridgeotel

import (
	"context"
	"io"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// measuring returns metrics that are scraped.
func measuring(t testing.TB) *Metrics {
	t.Helper()
	m, err := SetupMetrics(t.Context(), MetricsOptions{Prometheus: true, Version: "1.2.3", Getenv: environment()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// scrape returns what Prometheus would see.
func scrape(t testing.TB, m *Metrics, accept string) string {
	t.Helper()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("code %d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

// sample is a line of a scrape.
var sample = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*?)\})? (\S+)$`)

// series returns the lines of a metric as "labels value", without the labels
// named.
func series(text, name string, without ...string) []string {
	found := []string{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if m[1] != name {
			continue
		}
		var labels []string
		for label := range strings.SplitSeq(m[2], ",") {
			key, _, _ := strings.Cut(label, "=")
			if label != "" && !slices.Contains(without, key) {
				labels = append(labels, label)
			}
		}
		found = append(found, strings.Join(append(labels, m[3]), " "))
	}
	slices.Sort(found)
	return found
}

// families returns the names of all metrics of a scrape with their types.
func families(text string) map[string]string {
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2]
	}
	return found
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// client connects to a scripted server under the eyes of a target's metrics.
func client(t *testing.T, measured *TargetMetrics, s *mcptest.Server, o mcpclient.Options) *mcpclient.Client {
	t.Helper()
	url, overMemory := mcptest.StartMemoryHTTP(t, s)
	o.Interceptors = append(o.Interceptors, measured.Interceptor())
	o.OnList, o.OnSessionEnd = measured.OnList(), measured.OnSessionEnd()
	c, err := mcpclient.New(&transport.HTTP{URL: url, Client: overMemory}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// anything is a server that serves tools that it does not list, too.
func anything(era mcptest.Era) *mcptest.Server {
	return &mcptest.Server{
		Era:     era,
		Tools:   []mcptest.Tool{{Name: "echo", Call: mcptest.Echo()}, {Name: "fail", Call: mcptest.Respond(mcptest.Raw(`{"content":[],"isError":true}`))}},
		Prompts: []mcptest.Prompt{{Name: "hi", Get: mcptest.Respond(mcptest.Raw(`{"messages":[]}`))}},
		TTLMs:   60_000,
	}
}

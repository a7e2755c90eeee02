package e2e

import (
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP/HTTP receiver that keeps the spans it gets, by span id.
type collector struct {
	url string

	mu    sync.Mutex
	spans map[string]span
}

func collect(t *testing.T) *collector {
	t.Helper()
	c := &collector{spans: map[string]span{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.receive)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) endpoint() string { return c.url }

// environment makes a process export to the collector soon after each span.
func (c *collector) environment() []string {
	return []string{
		"OTEL_TRACES_EXPORTER=otlp",
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url,
		"OTEL_BSP_SCHEDULE_DELAY=50",
	}
}

func (c *collector) find(spanID string) (span, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	span, ok := c.spans[spanID]
	return span, ok
}

func (c *collector) trace(_ *testing.T, traceID string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []span
	for _, s := range c.spans {
		if s.trace == traceID {
			found = append(found, s)
		}
	}
	return found
}

func (c *collector) traces(_ *testing.T, name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]bool{}
	for _, s := range c.spans {
		if s.name == name {
			found[s.trace] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (c *collector) receive(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	raw, err := io.ReadAll(body)
	var request coltrace.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(raw, &request) != nil {
		http.Error(w, "not an export request", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		var service string
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				service = attribute.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, raw := range scope.GetSpans() {
				s := newSpan(service, raw)
				c.spans[s.id] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

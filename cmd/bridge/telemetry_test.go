package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	bridgeotel "github.com/mcpbridge/mcpbridge/otel"
)

func TestAWrongVariableOfAnExporterEndsTheStartWithoutItsValue(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Bearer hunter2")
	code, _, stderr := bridge(t, "serve", "--demo", "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, "OTEL_EXPORTER_OTLP_HEADERS") || strings.Contains(stderr, "hunter2") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestWhatTheLibrariesReportAtTheStartIsInTheLog(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "a=%zzhunter2") // the resource detector tells the error handler alone
	_, _, stderr := bridge(t, "serve", "--demo", "--listen", taken(t))
	if !strings.Contains(stderr, "OpenTelemetry reports an error") || strings.Contains(stderr, "hunter2") {
		t.Errorf("the log says: %s", stderr)
	}
}

func TestTracesAndMetricsAreEndedAtOnce(t *testing.T) {
	came := map[string]chan struct{}{"/v1/traces": make(chan struct{}), "/v1/metrics": make(chan struct{})}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an end of the connection is seen only then
		close(came[r.URL.Path])
		for _, other := range came { // each is answered only when the other is there
			select {
			case <-other:
			case <-r.Context().Done():
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	var out bytes.Buffer
	telemetry, _, end, err := startTelemetry(t.Context(), t.Context(), config.Default(), slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	next := func(context.Context, *mcpclient.Call) (*mcpclient.Result, error) { return nil, nil }
	if _, err := telemetry.Target(bridgeotel.TargetOptions{}).Interceptor()(t.Context(), &mcpclient.Call{Method: "tools/call", Name: "x", ID: jsonrpc.IntID(1), Attempt: 1}, next); err != nil {
		t.Fatal(err)
	}
	end()
	if stat := telemetry.Spans(); stat.Exported != 1 || strings.Contains(out.String(), "level=WARN") {
		t.Errorf("%+v: %s", stat, out.String())
	}
}

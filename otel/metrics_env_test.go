package bridgeotel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func TestMetricsAreExportedOnlyWhenAskedFor(t *testing.T) {
	for _, tt := range []struct {
		name     string
		env      []string
		export   bool
		protocol string
	}{
		{name: "nothing set"},
		{name: "an endpoint, which may be that of traces", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}},
		{name: "none", env: []string{"OTEL_METRICS_EXPORTER", "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4318"}},
		{name: "disabled", env: []string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_SDK_DISABLED", "TRUE"}},
		{"otlp", []string{"OTEL_METRICS_EXPORTER", " OTLP "}, true, "http/protobuf"},
		{"gRPC's port", []string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"}, true, "grpc"},
		{"an endpoint of its own", []string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:4318/v1/metrics"}, true, "http/protobuf"},
		{"a protocol of its own", []string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"}, true, "grpc"},
	} {
		s, err := readMetricsEnv(environment(tt.env...))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if s.export != tt.export || s.protocol != tt.protocol {
			t.Errorf("%s: export %t by %q, want %t by %q", tt.name, s.export, s.protocol, tt.export, tt.protocol)
		}
	}
}

func TestWrongVariablesOfMetricsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		env  []string
		want []string
	}{
		{[]string{"OTEL_METRICS_EXPORTER", "console"}, []string{"OTEL_METRICS_EXPORTER", `"console"`, "otlp or none"}},
		{[]string{"OTEL_METRICS_EXPORTER", "prometheus"}, []string{"OTEL_METRICS_EXPORTER", "listen.admin.address"}},
		{[]string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"}, []string{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"}},
		{[]string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "localhost:4318"}, []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://localhost:4318"}},
	} {
		_, err := SetupMetrics(t.Context(), MetricsOptions{Getenv: environment(tt.env...)})
		for _, want := range append(tt.want, "metrics: ") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v does not contain %q", tt.env, err, want)
			}
		}
	}
}

// metricsSink is an OTLP receiver of both protocols.
type metricsSink struct {
	collector.UnimplementedMetricsServiceServer

	received chan []string // names of metrics
}

func (s *metricsSink) Export(_ context.Context, req *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error) {
	var names []string
	for _, r := range req.GetResourceMetrics() {
		for _, scope := range r.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				names = append(names, m.GetName())
			}
		}
	}
	s.received <- names
	return &collector.ExportMetricsServiceResponse{}, nil
}

func (s *metricsSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req collector.ExportMetricsServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &req)
	}
	if err != nil || r.URL.Path != "/v1/metrics" {
		http.Error(w, "unexpected request", http.StatusBadRequest)
		return
	}
	_, _ = s.Export(r.Context(), &req)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestMetricsArriveByOTLP(t *testing.T) {
	for protocol, start := range map[string]func(*testing.T, *metricsSink) string{
		"grpc": func(t *testing.T, s *metricsSink) string {
			return serveGRPC(t, func(server *grpc.Server) { collector.RegisterMetricsServiceServer(server, s) })
		},
		"http/protobuf": func(t *testing.T, s *metricsSink) string {
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			return server.URL
		},
	} {
		t.Run(protocol, func(t *testing.T) {
			s := &metricsSink{received: make(chan []string, 4)}
			t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", start(t, s))
			m, err := SetupMetrics(t.Context(), MetricsOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Handler() != nil {
				t.Error("it can be scraped, too")
			}
			_, _ = m.Target("a").Interceptor()(t.Context(), toolCall("x"), answer(nil, nil))
			if err := m.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(<-s.received, " ")
			for _, want := range []string{"mcp.client.operation.duration", "mcpbridge.build.info", "go.goroutine.count", "go.schedule.duration"} {
				if !strings.Contains(got, want) {
					t.Errorf("%s did not arrive; there are %s", want, got)
				}
			}
			if err := m.Shutdown(t.Context()); err != nil {
				t.Errorf("a second Shutdown returned %v", err)
			}
		})
	}
}

func TestACollectorThatIsDownEndsMetricsInTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	m, err := SetupMetrics(t.Context(), MetricsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown returned %v, want the context's end", err)
	}
}

// refusing is an exporter whose collector takes no metrics as long as err is set.
type refusing struct {
	sdkmetric.Exporter
	err error
}

func (r *refusing) Export(context.Context, *metricdata.ResourceMetrics) error { return r.err }

func TestFailuresOfMetricsExportAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := plainLog()
		real := &refusing{err: errors.New("404 page not found")}
		e := newMetricsExporter(real, logger)
		export := func() {
			if err := e.Export(t.Context(), nil); err != nil {
				t.Errorf("the SDK is told %v", err)
			}
			time.Sleep(20 * time.Second) // of the bubble's time
		}
		for range 5 { // at 0, 20, 40, 60 and 80 s
			export()
		}
		real.err = nil
		export()
		export()
		const line = `level=WARN msg="metrics export failed; check the OTEL_EXPORTER_OTLP_* variables and that the collector takes metrics" error="404 page not found"`
		if diff := cmp.Diff(line+"\n"+line+"\nlevel=INFO msg=\"metrics export works again\"\n", out.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

package bridgeotel

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// sink is an OTLP receiver of both protocols.
type sink struct {
	collector.UnimplementedTraceServiceServer
	received chan *tracepb.ResourceSpans
}

func newSink() *sink { return &sink{received: make(chan *tracepb.ResourceSpans, 16)} }

func (s *sink) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, spans := range req.GetResourceSpans() {
		s.received <- spans
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// overHTTP serves a collector by OTLP/HTTP.
func overHTTP(c collector.TraceServiceServer, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var unzipped *gzip.Reader
		if unzipped, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(unzipped)
		}
	}
	var req collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &req)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "unexpected request", http.StatusBadRequest)
		return
	}
	answer, err := c.Export(r.Context(), &req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	raw, err := proto.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(raw)
}

func startGRPC(t *testing.T, c collector.TraceServiceServer) string {
	t.Helper()
	return serveGRPC(t, func(server *grpc.Server) { collector.RegisterTraceServiceServer(server, c) })
}

// serveGRPC serves what register adds until the test ends, and returns its URL.
func serveGRPC(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func startHTTP(t *testing.T, c collector.TraceServiceServer) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { overHTTP(c, w, r) }))
	t.Cleanup(server.Close)
	return server.URL
}

// setup builds a Telemetry from the process's environment, which the exporters
// read too.
func setup(t *testing.T, logger *slog.Logger, pairs ...string) *Telemetry {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		t.Setenv(pairs[i], pairs[i+1])
	}
	tel, err := Setup(t.Context(), Options{Logger: logger, Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if !tel.Enabled() {
		t.Fatal("spans are not recorded")
	}
	return tel
}

func TestSpansArriveByOTLP(t *testing.T) {
	for protocol, start := range map[string]func(*testing.T, collector.TraceServiceServer) string{
		"grpc": startGRPC, "http/protobuf": startHTTP,
	} {
		t.Run(protocol, func(t *testing.T) {
			s := newSink()
			tel := setup(t, nil,
				"OTEL_EXPORTER_OTLP_ENDPOINT", start(t, s), "OTEL_EXPORTER_OTLP_PROTOCOL", protocol,
				"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test",
			)
			err := &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: &jsonrpc.Error{Code: -32602, Message: "not \xff UTF-8"}}
			_, _ = tel.Target(TargetOptions{}).Interceptor()(t.Context(), toolCall("get_weather"), answer(nil, err))
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-s.received
			res := texts(got.GetResource().GetAttributes())
			want := map[string]string{"service.name": "mcpbridge", "service.version": "1.2.3", "deployment.environment.name": "test", "telemetry.sdk.language": "go"}
			for key, value := range want {
				if res[key] != value {
					t.Errorf("resource attribute %s is %q, want %q", key, res[key], value)
				}
			}
			span := got.GetScopeSpans()[0].GetSpans()[0]
			if span.GetName() != "tools/call get_weather" || span.GetKind() != tracepb.Span_SPAN_KIND_CLIENT {
				t.Errorf("span %q of kind %v", span.GetName(), span.GetKind())
			}
			if got := span.GetStatus(); got.GetCode() != tracepb.Status_STATUS_CODE_ERROR || got.GetMessage() != "not \uFFFD UTF-8" {
				t.Errorf("status %v", got)
			}
			if got := texts(span.GetAttributes())["error.type"]; got != "-32602" {
				t.Errorf("error.type %q", got)
			}
		})
	}
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	s := newSink()
	tel := setup(t, nil, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", startHTTP(t, s)+"/v1/traces", "OTEL_SERVICE_NAME", "weather-bridge")
	_, _ = tel.Target(TargetOptions{}).Interceptor()(t.Context(), toolCall("x"), answer(nil, nil))
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := texts((<-s.received).GetResource().GetAttributes())["service.name"]; got != "weather-bridge" {
		t.Errorf("service.name %q", got)
	}
}

func TestTheEnvironmentsSamplerIsObeyed(t *testing.T) {
	s := newSink()
	tel := setup(t, nil, "OTEL_EXPORTER_OTLP_ENDPOINT", startHTTP(t, s), "OTEL_TRACES_SAMPLER", "parentbased_always_off")
	_, _ = tel.Target(TargetOptions{}).Interceptor()(t.Context(), toolCall("root"), answer(nil, nil))
	ctx, _ := remoteContext(t)
	_, _ = tel.Target(TargetOptions{}).Interceptor()(ctx, toolCall("sampled_caller"), answer(nil, nil))
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := (<-s.received).GetScopeSpans()[0].GetSpans()
	if len(spans) != 1 || spans[0].GetName() != "tools/call sampled_caller" {
		t.Errorf("spans %v, want the sampled caller's alone", spans)
	}
}

func TestBrokenResourceAttributesFailSetup(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no-equals-sign")
	if _, err := Setup(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES must be key=value") {
		t.Errorf("error %v", err)
	}
}

func TestACollectorThatIsDownHoldsNothingUp(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			tel := setup(t, nil,
				"OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL", protocol,
				"OTEL_BSP_MAX_QUEUE_SIZE", "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2",
			)
			intercept := tel.Target(TargetOptions{}).Interceptor()
			for range 1000 { // far more than the queue holds
				if _, err := intercept(t.Context(), toolCall("x"), answer(nil, nil)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			start := time.Now()
			if err := tel.Shutdown(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown returned %v, want the context's end", err)
			}
			if took := time.Since(start); took > abandonWait {
				t.Errorf("Shutdown took %v after its context had ended", took)
			}
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Errorf("a second Shutdown returned %v", err)
			}
			if _, err := intercept(t.Context(), toolCall("x"), answer(nil, nil)); err != nil {
				t.Errorf("after Shutdown a call returned %v", err)
			}
		})
	}
}

// flaky fails as long as err is set.
type flaky struct{ err error }

func (f *flaky) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f.err }
func (f *flaky) Shutdown(context.Context) error                             { return nil }

func TestExportFailuresAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := plainLog()
		real := &flaky{err: errors.New("connection refused")}
		e := newExporter(t.Context(), real, new(spanCounts), logger)
		export := func() {
			if err := e.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 10)); err != nil {
				t.Errorf("the processor is told %v", err)
			}
			time.Sleep(20 * time.Second) // of the bubble's time
		}
		for range 5 { // at 0, 20, 40, 60 and 80 s
			export()
		}
		real.err = nil
		export()
		export()
		const text = `trace export failed; check the OTEL_EXPORTER_OTLP_* variables and that the collector is up`
		want := `level=WARN msg="` + text + `" error="connection refused" lost_spans=10
level=WARN msg="` + text + `" error="connection refused" lost_spans=30
level=INFO msg="trace export works again" lost_spans=10
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func texts(attrs []*common.KeyValue) map[string]string {
	values := make(map[string]string)
	for _, kv := range attrs {
		values[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	return values
}

package bridgeotel

import (
	"context"
	"log/slog"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environment returns a Getenv over the given pairs of name and value.
func environment(pairs ...string) func(string) string {
	values := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

// recording returns a Telemetry whose spans end up in the recorder.
func recording(t testing.TB, sampler sdktrace.Sampler) (*Telemetry, *tracetest.SpanRecorder) {
	t.Helper()
	s, err := readEnv(environment())
	if err != nil {
		t.Fatal(err)
	}
	recorder := tracetest.NewSpanRecorder()
	tel := newTelemetry(slog.New(slog.DiscardHandler), s, sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sampler)),
	))
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel, recorder
}

// switchedOff returns a Telemetry without SDK.
func switchedOff(t testing.TB, pairs ...string) *Telemetry {
	t.Helper()
	tel, err := Setup(t.Context(), Options{Getenv: environment(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	if tel.Enabled() {
		t.Fatal("spans are recorded, want none")
	}
	return tel
}

// toolCall is a tools/call over HTTP.
func toolCall(name string) *mcpclient.Call {
	return &mcpclient.Call{
		Method: "tools/call", Name: name, ID: jsonrpc.IntID(7), Attempt: 1,
		Era: mcpclient.EraModern, ProtocolVersion: mcpclient.Version20260728,
		Transport: "streamable_http", Endpoint: "mcp.example:8443",
	}
}

// answer is the rest of a chain that returns what it was given.
func answer(result *mcpclient.Result, err error) mcpclient.Next {
	return func(context.Context, *mcpclient.Call) (*mcpclient.Result, error) { return result, err }
}

// attributesOf returns the attributes of a span as plain values.
func attributesOf(span sdktrace.ReadOnlySpan) map[string]any {
	return plain(span.Attributes())
}

func plain(attrs []attribute.KeyValue) map[string]any {
	values := make(map[string]any, len(attrs))
	for _, kv := range attrs {
		values[string(kv.Key)] = kv.Value.AsInterface()
	}
	return values
}

// newMeta builds a `_meta` object from pairs of key and JSON value.
func newMeta(pairs ...string) *mcpclient.Meta {
	var meta mcpclient.Meta
	for i := 0; i < len(pairs); i += 2 {
		meta.Set(pairs[i], jsontext.Value(pairs[i+1]))
	}
	return &meta
}

// metaValues returns the members of meta as JSON texts.
func metaValues(meta *mcpclient.Meta) map[string]string {
	values := make(map[string]string)
	for _, key := range meta.Keys() {
		raw, _ := meta.Get(key)
		values[key] = string(raw)
	}
	return values
}

// remoteContext returns a context inside a caller's sampled trace.
func remoteContext(t testing.TB) (context.Context, trace.SpanContext) {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6},
		TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	return trace.ContextWithRemoteSpanContext(t.Context(), sc), sc
}

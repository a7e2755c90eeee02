package bridgeotel

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// wholeCall returns what one MCP call does for tracing: a span and `_meta`.
func wholeCall(b testing.TB, tel *Telemetry) func() {
	ctx, _ := remoteContext(b)
	call := toolCall("get_weather")
	intercept, supply := tel.Interceptor(), tel.Meta()
	next := answer(&mcpclient.Result{}, nil)
	var meta mcpclient.Meta
	meta.SetString("traceparent", "x") // the members' storage is not tracing's cost
	meta.SetString("tracestate", "x")
	return func() {
		if _, err := intercept(ctx, call, next); err != nil {
			b.Fatal(err)
		}
		if err := supply(ctx, call, &meta); err != nil {
			b.Fatal(err)
		}
	}
}

func modes(t testing.TB) map[string]*Telemetry {
	t.Helper()
	s, err := readEnv(environment())
	if err != nil {
		t.Fatal(err)
	}
	processor := sdktrace.NewBatchSpanProcessor(nil) // without exporter it keeps no span
	provider := func(sampler sdktrace.Sampler) *sdktrace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor), sdktrace.WithSampler(sampler))
	}
	t.Cleanup(func() {
		if err := processor.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return map[string]*Telemetry{
		"off":       newTelemetry(nil, s, nil),
		"unsampled": newTelemetry(nil, s, provider(sdktrace.NeverSample())),
		"sampled":   newTelemetry(nil, s, provider(sdktrace.AlwaysSample())),
	}
}

func TestTracingAllocatesLittle(t *testing.T) {
	limits := map[string]float64{"off": 6, "unsampled": 9, "sampled": 17}
	for name, tel := range modes(t) {
		got := testing.AllocsPerRun(100, wholeCall(t, tel))
		t.Logf("%s: %v allocations per call", name, got)
		if got > limits[name] {
			t.Errorf("%s: %v allocations per call, want at most %v", name, got, limits[name])
		}
	}
}

func TestTheInterceptorAloneAllocatesNothingWhenOff(t *testing.T) {
	intercept, next, call, ctx := switchedOff(t).Interceptor(), answer(nil, nil), toolCall("x"), t.Context()
	if got := testing.AllocsPerRun(100, func() { _, _ = intercept(ctx, call, next) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func BenchmarkCall(b *testing.B) {
	for name, tel := range modes(b) {
		b.Run(name, func(b *testing.B) {
			call := wholeCall(b, tel)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

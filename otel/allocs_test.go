package bridgeotel

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect/v2"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// wholeCall returns what one call does for tracing: that of the RPC, of one MCP
// request, its `_meta` and its headers. With a nil tel it is the same call
// without any of it.
func wholeCall(b testing.TB, tel *Telemetry) func() {
	call := toolCall("get_weather")
	var meta mcpclient.Meta
	meta.SetString("traceparent", "x") // the members' storage is not tracing's cost
	meta.SetString("tracestate", "x")
	header := make(http.Header, 2)
	next := answer(&mcpclient.Result{}, nil)
	handler := func(ctx context.Context, _ connect.Spec, _ connect.ServerStream) error {
		_, err := next(ctx, call)
		return err
	}
	var interceptors []connect.ServerInterceptor
	if tel != nil {
		var err error
		if interceptors, err = tel.ServerInterceptors(nil); err != nil {
			b.Fatal(err)
		}
		target := tel.Target(TargetOptions{Name: "weather"})
		intercept, supply, headers := target.Interceptor(), target.Meta(), target.Headers()
		send := func(ctx context.Context, call *mcpclient.Call) (*mcpclient.Result, error) {
			headers(ctx, call, header)
			return &mcpclient.Result{}, supply(ctx, call, &meta)
		}
		handler = func(ctx context.Context, _ connect.Spec, _ connect.ServerStream) error {
			call.Trail = new(mcpclient.Trail) // as the client does
			_, err := intercept(ctx, call, send)
			return err
		}
	}
	const procedure = "/mcpbridge.v1.ToolsService/CallTool"
	server := connect.NewServer(interceptors...)
	server.Register(connect.Method{Spec: connect.Spec{Procedure: procedure}, Handler: handler})
	info := &connect.CallInfo{Protocol: connect.ProtocolNameGRPC}
	info.RequestHeader().Set("traceparent", callerParent)
	info.RequestHeader().Set("tracestate", "vendor=1")
	return func() {
		if err := server.Call(b.Context(), procedure, info, nil); err != nil {
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
	// The race detector adds the last few: without it there are 20, 26 and 43.
	limits := map[string]float64{"off": 21, "unsampled": 27, "sampled": 48}
	without := testing.AllocsPerRun(100, wholeCall(t, nil))
	for name, tel := range modes(t) {
		got := testing.AllocsPerRun(100, wholeCall(t, tel)) - without
		t.Logf("%s: %v allocations per call", name, got)
		if got > limits[name] {
			t.Errorf("%s: %v allocations per call, want at most %v", name, got, limits[name])
		}
	}
}

func TestTheInterceptorAloneAllocatesNothingWhenOff(t *testing.T) {
	intercept, next, call, ctx := switchedOff(t).Target(TargetOptions{}).Interceptor(), answer(nil, nil), toolCall("x"), t.Context()
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

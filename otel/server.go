package bridgeotel

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/otelconnect"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// ServerInterceptors returns the interceptors of the RPC server, outermost
// first; they belong outside all others, since they put the caller's trace
// context and baggage into ctx. Each RPC gets a span of kind SERVER in the
// caller's trace. Calls of grpc.health.v1 get none: probes come every few
// seconds and reach no MCP server.
func (t *Telemetry) ServerInterceptors() ([]connect.ServerInterceptor, error) {
	interceptor, err := otelconnect.NewServerInterceptor(
		otelconnect.WithTrustRemote(),
		otelconnect.WithPropagator(t.propagator),
		otelconnect.WithTracerProvider(t.provider),
		otelconnect.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelconnect.WithFilter(isTraced),
	)
	if err != nil {
		return nil, fmt.Errorf("RPC tracing: %w", err)
	}
	return []connect.ServerInterceptor{joinContextHeaders, interceptor}, nil
}

// joinContextHeaders makes one value of several tracestate or baggage headers,
// as W3C allows to send them; otelconnect sees only the first.
func joinContextHeaders(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if info, ok := connect.CallInfoForServerContext(ctx); ok {
			header := info.RequestHeader()
			for _, key := range []string{mcpclient.MetaTracestate, mcpclient.MetaBaggage} {
				if values := header.Values(key); len(values) > 1 {
					header.Set(key, strings.Join(values, ","))
				}
			}
		}
		return next(ctx, spec, stream)
	}
}

func isTraced(_ context.Context, spec connect.Spec) bool {
	return !strings.HasPrefix(spec.Procedure, "/grpc.health.v1.Health/")
}

// TraceID returns the trace id of ctx as 32 hexadecimal digits, "" when it has
// none. With the SDK off it is the caller's.
func (t *Telemetry) TraceID(ctx context.Context) string {
	id := trace.SpanContextFromContext(ctx).TraceID()
	if !id.IsValid() {
		return ""
	}
	return id.String()
}

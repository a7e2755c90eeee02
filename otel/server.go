package bridgeotel

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// ServerInterceptors returns the interceptors of the RPC server, outermost
// first; they belong outside all others, since they put the caller's trace
// context and baggage into ctx. Each RPC gets a span of kind SERVER in the
// caller's trace, or with Options.OwnTraces one in a trace of its own that is
// linked to the caller's. Calls of grpc.health.v1 get none: probes come every few
// seconds and reach no MCP server. The calls are measured, too; nil = they are
// not.
func (t *Telemetry) ServerInterceptors(metrics *Metrics) ([]connect.ServerInterceptor, error) {
	if t.sdk == nil && !metrics.Enabled() {
		return []connect.ServerInterceptor{joinContextHeaders, t.extract}, nil
	}
	options := []otelconnect.Option{
		otelconnect.WithPropagator(headerPropagator{t.propagator}),
		otelconnect.WithTracerProvider(t.provider),
		otelconnect.WithFilter(isTraced),
	}
	options = append(options, metrics.rpcOptions()...)
	if !t.ownTraces {
		options = append(options, otelconnect.WithTrustRemote())
	}
	interceptor, err := otelconnect.NewServerInterceptor(options...)
	if err != nil {
		return nil, fmt.Errorf("RPC tracing: %w", err)
	}
	return []connect.ServerInterceptor{joinContextHeaders, interceptor}, nil
}

// extract puts the caller's context into ctx, where there is nothing to record.
func (t *Telemetry) extract(next connect.ServerFunc) connect.ServerFunc {
	propagator := headerPropagator{t.propagator}
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if info, ok := connect.CallInfoForServerContext(ctx); ok && isTraced(ctx, spec) {
			ctx = propagator.Extract(ctx, rpcCarrier{info.RequestHeader()})
		}
		return next(ctx, spec, stream)
	}
}

// rpcCarrier is the metadata of an RPC.
type rpcCarrier struct{ *connect.Header }

// Keys returns the names of all metadata.
func (c rpcCarrier) Keys() []string {
	keys := make([]string, 0, c.Len())
	for key := range c.All() {
		keys = append(keys, key)
	}
	return keys
}

// joinContextHeaders makes one value of several tracestate or baggage headers,
// as W3C allows to send them; otelconnect sees only the first.
func joinContextHeaders(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if info, ok := connect.CallInfoForServerContext(ctx); ok {
			header := info.RequestHeader()
			for _, key := range []string{canonical(mcpclient.MetaTracestate), canonical(mcpclient.MetaBaggage)} {
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

// RPCEnded adds the target to the span of an RPC. ctx is that of the RPC, inside
// [Telemetry.ServerInterceptors]; target is "" for none.
func (t *Telemetry) RPCEnded(ctx context.Context, target string) {
	if span := trace.SpanFromContext(ctx); target != "" && span.IsRecording() {
		span.SetAttributes(keyTarget.String(clip(target)))
	}
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

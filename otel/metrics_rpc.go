package bridgeotel

import (
	"context"
	"strings"

	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// keyReason is ours: why a call failed, as its caller was told.
const keyReason = attribute.Key("mcpbridge.error.reason")

// rpcOptions has otelconnect measure rpc.server.call.duration. Streams last
// longer than the calls for which the conventions chose their buckets. A nil m
// measures nothing.
func (m *Metrics) rpcOptions() []otelconnect.Option {
	if m == nil {
		return []otelconnect.Option{otelconnect.WithMeterProvider(noop.NewMeterProvider())}
	}
	return []otelconnect.Option{
		otelconnect.WithMeterProvider(m.provider),
		otelconnect.WithDurationHistogramOptions(metric.WithExplicitBucketBoundaries(
			0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300,
		)),
	}
}

// RPCEnded adds the target to what is measured of an RPC, and counts it if it
// failed. ctx is that of the RPC, inside [Telemetry.ServerInterceptors].
// procedure is "" for one that does not exist, target "" for none; a target that
// was never configured is left out. reason is "" for success.
func (m *Metrics) RPCEnded(ctx context.Context, procedure, target, reason string) {
	if !m.Enabled() {
		return
	}
	known := target != "" && m.knows(target)
	if labeler, ok := otelconnect.LabelerFromContext(ctx); ok && known {
		labeler.Add(keyTarget.String(target))
	}
	if reason == "" {
		return
	}
	if procedure == "" {
		procedure = errorOther
	}
	attrs := []attribute.KeyValue{keyReason.String(reason), semconv.RPCMethod(strings.TrimPrefix(procedure, "/"))}
	if known {
		attrs = append(attrs, keyTarget.String(target))
	}
	m.failures.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(attrs...)))
}

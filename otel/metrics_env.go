package bridgeotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

const (
	envMetricsExporter = "OTEL_METRICS_EXPORTER"
	envMetricsEndpoint = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	envMetricsProtocol = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
)

// metricsSettings is what the environment asks for.
type metricsSettings struct {
	disabled    bool // OTEL_SDK_DISABLED
	export      bool
	protocol    string // one of the two constants, when export is set
	endpointSet bool   // false = the protocol's default on localhost
}

// readMetricsEnv reads and checks the variables; the error names each wrong
// one. An endpoint alone exports nothing: it is often that of a receiver of
// traces, which would refuse metrics every minute.
func readMetricsEnv(getenv func(string) string) (metricsSettings, error) {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	var s metricsSettings
	if strings.EqualFold(get(envDisabled), "true") {
		s.disabled = true
		return s, nil
	}
	switch exporter := get(envMetricsExporter); strings.ToLower(exporter) {
	case "", "none":
		return s, nil
	case "otlp":
	case "prometheus":
		return s, fmt.Errorf("%s: Prometheus scrapes the admin listener; set listen.admin.address (--admin), and use otlp or none here", envMetricsExporter)
	default:
		return s, fmt.Errorf("%s: %q is not supported; use otlp or none", envMetricsExporter, exporter)
	}
	s.export = true
	endpoint := cmp.Or(get(envMetricsEndpoint), get(envEndpoint))
	s.endpointSet = endpoint != ""
	var err error
	s.protocol, err = readProtocol(get, envMetricsProtocol, endpoint)
	return s, errors.Join(err,
		checkOTLP(get, "METRICS_", s.protocol),
		checkNumber(getenv, "OTEL_METRIC_EXPORT_INTERVAL", maxMillis),
		checkNumber(getenv, "OTEL_METRIC_EXPORT_TIMEOUT", maxMillis),
	)
}

// newMetricsOTLP builds the exporter, which connects later and reads what else
// it needs from OTEL_EXPORTER_OTLP_* itself.
func newMetricsOTLP(ctx context.Context, s metricsSettings) (sdkmetric.Exporter, error) {
	if s.protocol == protocolGRPC {
		var options []otlpmetricgrpc.Option
		if !s.endpointSet {
			options = append(options, otlpmetricgrpc.WithEndpointURL("http://localhost:4317"))
		}
		return otlpmetricgrpc.New(ctx, options...)
	}
	var options []otlpmetrichttp.Option
	if !s.endpointSet {
		options = append(options, otlpmetrichttp.WithEndpointURL("http://localhost:4318/v1/metrics"))
	}
	return otlpmetrichttp.New(ctx, options...)
}

// metricsExporter tells our logger of failures, not the SDK's process-wide
// handler.
type metricsExporter struct {
	sdkmetric.Exporter

	failures *failureLog
}

func newMetricsExporter(real sdkmetric.Exporter, logger *slog.Logger) *metricsExporter {
	return &metricsExporter{Exporter: real, failures: &failureLog{
		failed: func(ctx context.Context, attrs ...any) {
			logger.WarnContext(ctx, "metrics export failed; check the OTEL_EXPORTER_OTLP_* variables and that the collector takes metrics", attrs...)
		},
		works: func(ctx context.Context, attrs ...any) {
			logger.InfoContext(ctx, "metrics export works again", attrs...)
		},
	}}
}

// Export fails only when its context has ended, which Shutdown reports.
func (e *metricsExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	err := e.Exporter.Export(ctx, data)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, context.Canceled) {
		return cause // the exporter's error has the collector's URL
	}
	e.failures.report(ctx, 0, err)
	return nil
}

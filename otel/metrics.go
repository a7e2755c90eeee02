package bridgeotel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// maxScrapes is how many scrapes are answered at once.
const maxScrapes = 4

// MetricsOptions configures [SetupMetrics]. With the zero value nothing is
// measured unless the environment asks for an export.
type MetricsOptions struct {
	// Logger receives export failures; nil discards them.
	Logger *slog.Logger
	// Version is the service.version of the resource; "" leaves it out.
	Version string
	// Prometheus keeps the figures for [Metrics.Handler].
	Prometheus bool
	// Getenv reads the variables that decide what is exported; nil = os.Getenv.
	// The SDK and its exporters read theirs from the process's environment.
	Getenv func(string) string
}

// Metrics is what one bridge measures. Its methods are safe for concurrent use.
type Metrics struct {
	provider metric.MeterProvider
	meter    metric.Meter
	sdk      *sdkmetric.MeterProvider // nil = nothing is measured
	registry *prometheus.Registry     // nil = nothing is scraped
	logger   *slog.Logger

	operation, session metric.Float64Histogram
	failures           metric.Int64Counter

	mu      sync.RWMutex // guards the rest
	targets map[string]struct{}
}

// SetupMetrics builds what options and environment ask for; it does no network
// I/O. The error names every variable that is wrong and what it may be. The
// caller must call Shutdown in the end.
func SetupMetrics(ctx context.Context, o MetricsOptions) (*Metrics, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	s, err := readMetricsEnv(o.Getenv)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m := &Metrics{provider: noop.NewMeterProvider(), logger: o.Logger, targets: map[string]struct{}{}}
	if o.Prometheus && !s.disabled || s.export {
		if err := m.start(ctx, o, s); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	m.meter = m.provider.Meter(scopeName)
	if err := m.instruments(o.Version); err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), m.Shutdown(ctx))
	}
	return m, nil
}

// start makes the provider with one reader for each way out.
func (m *Metrics) start(ctx context.Context, o MetricsOptions, s metricsSettings) error {
	res, err := newResource(ctx, o.Version)
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(res)}
	if o.Prometheus {
		m.registry = prometheus.NewRegistry()
		reader := sdkmetric.NewManualReader(seriesLimit(), sdkmetric.WithProducer(runtimeProducer()))
		exporter, err := promexporter.New(
			promexporter.WithRegisterer(m.registry),
			promexporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
			promexporter.WithoutScopeInfo(), // the same few labels on every line
			promexporter.WithProducer(readThrough{reader}),
		)
		if err != nil {
			return fmt.Errorf("prometheus: %w", err)
		}
		sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(exporter)) // for target_info alone
		options = append(options, sdkmetric.WithReader(reader))
	}
	if s.export {
		real, err := newMetricsOTLP(ctx, s)
		if err != nil {
			return fmt.Errorf("OTLP exporter: %w", err)
		}
		// Interval and timeout are read from the environment by the SDK.
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(
			newMetricsExporter(real, o.Logger), sdkmetric.WithProducer(runtimeProducer()), seriesLimit(),
		)))
	}
	m.sdk = sdkmetric.NewMeterProvider(options...)
	m.provider = m.sdk
	return nil
}

// instruments makes what is measured.
func (m *Metrics) instruments(version string) error {
	var errs []error
	var err error
	m.operation, err = m.meter.Float64Histogram("mcp.client.operation.duration",
		metric.WithUnit("s"), metric.WithDescription("How long requests and notifications to MCP servers took."),
		metric.WithExplicitBucketBoundaries(durationBuckets()...))
	errs = append(errs, err)
	m.session, err = m.meter.Float64Histogram("mcp.client.session.duration",
		metric.WithUnit("s"), metric.WithDescription("How long sessions with MCP servers lasted; servers of 2026-07-28 have none."),
		metric.WithExplicitBucketBoundaries(durationBuckets()...))
	errs = append(errs, err)
	m.failures, err = m.meter.Int64Counter("mcpbridge.rpc.errors",
		metric.WithUnit("{error}"), metric.WithDescription("Calls that failed, by the reason that the caller was given."))
	errs = append(errs, err)
	if m.sdk != nil {
		errs = append(errs, m.observeProcess(version))
	}
	return errors.Join(errs...)
}

// durationBuckets are those of the MCP semantic conventions, in seconds.
func durationBuckets() []float64 {
	return []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}
}

// Enabled reports whether anything is measured; nothing is by a nil m.
func (m *Metrics) Enabled() bool { return m != nil && m.sdk != nil }

// Handler answers scrapes in Prometheus' text format, or in OpenMetrics with
// exemplars for those who accept it; nil without MetricsOptions.Prometheus, and
// with OTEL_SDK_DISABLED.
func (m *Metrics) Handler() http.Handler {
	if m.registry == nil {
		return nil
	}
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: maxScrapes,
		ErrorHandling:       promhttp.ContinueOnError, // what can be told is told
		ErrorLog:            scrapeLog{m.logger},
	})
}

// scrapeLog is the logger that promhttp expects.
type scrapeLog struct{ logger *slog.Logger }

func (l scrapeLog) Println(v ...any) {
	l.logger.Warn("a scrape of the metrics was not complete", "error", fmt.Sprint(v...))
}

// Shutdown exports what is left and stops, when ctx ends at the latest. Calling
// it again does nothing.
func (m *Metrics) Shutdown(ctx context.Context) error {
	if m.sdk == nil {
		return nil
	}
	if err := m.sdk.Shutdown(ctx); err != nil && !errors.Is(err, sdkmetric.ErrReaderShutdown) {
		return fmt.Errorf("metrics: the last figures were not exported: %w", err)
	}
	return nil
}

// Package bridgeotel gives the bridge OpenTelemetry tracing: W3C trace context
// and baggage from callers' metadata into `_meta` and HTTP headers, spans for
// RPCs and MCP requests, and their export by OTLP.
//
// It is configured by the OTEL_* variables. Propagation is always on; spans
// are recorded only when an exporter is asked for. It registers nothing
// globally.
package bridgeotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scopeName is the instrumentation scope of our own spans.
const scopeName = "github.com/mcpbridge/mcpbridge/otel"

// defaultServiceName is used unless OTEL_SERVICE_NAME or
// OTEL_RESOURCE_ATTRIBUTES names another.
const defaultServiceName = "mcpbridge"

// Options configures [Setup]. The zero value works.
type Options struct {
	// Logger receives export failures; nil discards them.
	Logger *slog.Logger
	// Version is the service.version of the resource; "" leaves it out.
	Version string
	// Getenv reads the variables that decide what is set up; nil = os.Getenv.
	// The SDK and its exporters read theirs (sampler, batch, limits, resource,
	// OTLP details) from the process's environment in any case.
	Getenv func(string) string
	// OwnTraces begins a trace for each RPC, sampled by our own sampler and linked
	// to the caller's trace, instead of continuing that. With nothing exported the
	// caller's context passes as it is in any case.
	OwnTraces bool
}

// Telemetry is the tracing of one bridge. Its methods are safe for concurrent
// use.
type Telemetry struct {
	logger     *slog.Logger
	propagator propagation.TextMapPropagator
	fields     []string
	provider   trace.TracerProvider
	tracer     trace.Tracer
	clientSpan []trace.SpanStartOption // built once, not per call
	ownTraces  bool
	earlier    *earlier

	sdk    *sdktrace.TracerProvider // nil = spans are not recorded
	intake *intake                  // nil = spans are not exported
	counts *spanCounts
	abort  context.CancelFunc // abandons exports under way
}

// Setup reads the environment and builds what it asks for; it does no network
// I/O. The error names every variable that is wrong and what it may be. The
// caller must call Shutdown in the end.
func Setup(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	s, err := readEnv(o.Getenv)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	if !s.export {
		why := cmp.Or(s.quiet, "no exporter is configured; set "+envEndpoint+", such as http://localhost:4317")
		o.Logger.InfoContext(ctx, "traces are not exported", "reason", why)
		return newTelemetry(o.Logger, s, nil), nil
	}
	res, err := newResource(ctx, o.Version)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	real, err := newOTLP(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("tracing: OTLP exporter: %w", err)
	}
	abortCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	counts := new(spanCounts)
	in := newProcessor(abortCtx, real, s.queue, counts, o.Logger)
	// Without WithSampler the SDK takes it from the environment.
	t := newTelemetry(o.Logger, s, sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSpanProcessor(in)))
	t.ownTraces, t.intake, t.counts, t.abort = o.OwnTraces, in, counts, abort
	o.Logger.InfoContext(ctx, "traces are exported", "collector", s.collector(), "protocol", s.protocol)
	return t, nil
}

// newTelemetry uses sdk, or records nothing when it is nil.
func newTelemetry(logger *slog.Logger, s settings, sdk *sdktrace.TracerProvider) *Telemetry {
	t := &Telemetry{
		logger:     logger,
		propagator: s.propagator,
		fields:     slices.Clone(s.fields),
		provider:   noop.NewTracerProvider(), // hands the caller's context on as it is
		clientSpan: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)},
		earlier:    newEarlier(),
		counts:     new(spanCounts),
		sdk:        sdk,
		abort:      func() {},
	}
	if sdk != nil {
		t.provider = sdk
	}
	t.tracer = t.provider.Tracer(scopeName)
	return t
}

// newResource describes this process; what the environment says wins.
func newResource(ctx context.Context, version string) (*resource.Resource, error) {
	own := []attribute.KeyValue{attribute.String("service.name", defaultServiceName)}
	if version != "" {
		own = append(own, attribute.String("service.version", version))
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(own...),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES must be key=value pairs separated by commas: %w", err)
	}
	return res, nil
}

// Enabled reports whether spans are recorded and exported.
func (t *Telemetry) Enabled() bool { return t.sdk != nil }

// Spans counts the spans that were to be exported; all zero with the SDK off.
func (t *Telemetry) Spans() SpanStat {
	return SpanStat{
		Exported: t.counts.exported.Load(), Failed: t.counts.failed.Load(),
		Dropped: t.counts.dropped.Load(), Waiting: max(t.counts.waiting.Load(), 0),
	}
}

// abandonWait is how long Shutdown waits for exports it has just abandoned.
const abandonWait = time.Second

// Shutdown exports what is left and stops, soon after ctx ends at the latest;
// the error says when spans were lost for lack of time, the log when the
// collector refused them. Call it after the last RPC is over. Calling it again
// does nothing.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.sdk == nil {
		return nil
	}
	defer t.abort()
	done := make(chan error, 1)
	// Not with ctx itself: when it is over, the SDK would leave its goroutines behind.
	go func() { done <- t.sdk.Shutdown(context.WithoutCancel(ctx)) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
		t.abort() // ends retries against a collector that is down
		timer := time.NewTimer(abandonWait)
		defer timer.Stop()
		select {
		case late := <-done:
			err = errors.Join(err, late)
		case <-timer.C:
			if t.intake != nil {
				t.intake.end() // its own end is still to come, and may be too late
			}
		}
	}
	if err != nil {
		return fmt.Errorf("tracing: the last spans were not exported: %w", err)
	}
	return nil
}

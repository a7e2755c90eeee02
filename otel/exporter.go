package bridgeotel

import (
	"context"
	"log/slog"
	"regexp"
	"strconv"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newOTLP builds the exporter; it connects later, so a collector that is down
// is no error. Everything but the choice of protocol and the default endpoint
// it reads from OTEL_EXPORTER_OTLP_* itself.
func newOTLP(ctx context.Context, s settings) (sdktrace.SpanExporter, error) {
	if s.protocol == protocolGRPC {
		var options []otlptracegrpc.Option
		if s.endpoint == "" {
			// The specification's default; the exporter's own would be https.
			options = append(options, otlptracegrpc.WithEndpointURL("http://"+defaultGRPC))
		}
		return otlptracegrpc.New(ctx, options...)
	}
	var options []otlptracehttp.Option
	if s.endpoint == "" {
		options = append(options, otlptracehttp.WithEndpointURL("http://"+defaultHTTP+"/v1/traces"))
	}
	return otlptracehttp.New(ctx, options...)
}

// newProcessor is the way of a span to the exporter. Calls never wait for it;
// exports end with abort.
func newProcessor(abort context.Context, real sdktrace.SpanExporter, queue int, counts *spanCounts, logger *slog.Logger) *intake {
	out := newExporter(abort, real, counts, logger)
	return &intake{
		// one place more than intake fills, for the SDK's own marker of a flush
		SpanProcessor: sdktrace.NewBatchSpanProcessor(out, sdktrace.WithMaxQueueSize(queue+1)),
		limit:         int64(queue), counts: counts, failures: out.failures, logger: logger,
	}
}

// exporter wraps the real one: failures go to our logger instead of the SDK's
// process-wide handler, and exports under way can be abandoned.
type exporter struct {
	sdktrace.SpanExporter

	counts   *spanCounts
	failures *failureLog
	abort    context.Context //nolint:containedctx // ends when exports must not go on
}

func newExporter(abort context.Context, real sdktrace.SpanExporter, counts *spanCounts, logger *slog.Logger) *exporter {
	return &exporter{SpanExporter: real, counts: counts, abort: abort, failures: &failureLog{
		failed: func(ctx context.Context, attrs ...any) {
			logger.WarnContext(ctx, "trace export failed; check the OTEL_EXPORTER_OTLP_* variables and that the collector is up", attrs...)
		},
		works: func(ctx context.Context, attrs ...any) {
			logger.InfoContext(ctx, "trace export works again", attrs...)
		},
		counts: "lost_spans",
	}}
}

// ExportSpans never fails: the processor could only report the error to the
// process-wide handler.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.counts.waiting.Add(-int64(len(spans)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.abort, cancel)()
	e.report(ctx, len(spans), e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

func (e *exporter) report(ctx context.Context, spans int, err error) {
	lost := lostOf(spans, err)
	e.counts.failed.Add(int64(lost))
	e.counts.exported.Add(int64(spans - lost))
	e.failures.report(ctx, lost, err)
}

// partly finds in the exporters' error how many spans of a batch the collector
// refused; the type of that error is internal to them.
var partly = regexp.MustCompile(`OTLP partial success: (?s:.*) \((\d+) spans rejected\)$`)

// lostOf is how many spans of a batch an export lost.
func lostOf(spans int, err error) int {
	if err == nil {
		return 0
	}
	if match := partly.FindStringSubmatch(err.Error()); match != nil {
		if n, err := strconv.Atoi(match[1]); err == nil && n <= spans {
			return n
		}
	}
	return spans
}

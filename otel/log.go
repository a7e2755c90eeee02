package bridgeotel

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// LogHandler wraps next so that records logged with a context inside a trace
// carry trace_id and span_id, always at the top level, also below groups.
func LogHandler(next slog.Handler) slog.Handler {
	return &logHandler{next: next, root: next}
}

type logHandler struct {
	next slog.Handler
	// root is the handler as it was before the first group was opened, and
	// inGroup what was added since.
	root    slog.Handler
	inGroup []func(slog.Handler) slog.Handler
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, record slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return h.next.Handle(ctx, record)
	}
	ids := []slog.Attr{
		slog.String("trace_id", span.TraceID().String()),
		slog.String("span_id", span.SpanID().String()),
	}
	if len(h.inGroup) == 0 {
		record = record.Clone() // copies of a record share their attributes
		record.AddAttrs(ids...)
		return h.next.Handle(ctx, record)
	}
	next := h.root.WithAttrs(ids)
	for _, add := range h.inGroup {
		next = add(next)
	}
	return next.Handle(ctx, record)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	if len(h.inGroup) == 0 {
		return LogHandler(h.next.WithAttrs(attrs))
	}
	return h.with(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *logHandler) with(add func(slog.Handler) slog.Handler) slog.Handler {
	return &logHandler{next: add(h.next), root: h.root, inGroup: append(slices.Clip(h.inGroup), add)}
}

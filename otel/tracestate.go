package bridgeotel

import (
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Bounds of a trace state, in bytes (W3C Trace Context, 3.3.1.5). Every span of
// a trace repeats it, so that a long one would make export batches larger than
// a collector takes.
const (
	maxTraceState  = 512
	maxStateMember = 128 // larger ones go first where the whole is too long
)

// bounded shortens the trace state of a span that others named to what is kept
// of it.
func bounded(sc trace.SpanContext) trace.SpanContext {
	if fits(sc.TraceState()) {
		return sc
	}
	return sc.WithTraceState(shortened(sc.TraceState()))
}

// fits reports whether a trace state may be kept as it is.
func fits(state trace.TraceState) bool {
	size := -1 // as many commas as members but one
	state.Walk(func(key, value string) bool {
		size += len(key) + len("=") + len(value) + len(",")
		return true
	})
	return size <= maxTraceState
}

// shortened keeps whole members, the leading ones, which are the newest.
func shortened(state trace.TraceState) trace.TraceState {
	var kept strings.Builder // a copy, so that the long text can be freed
	state.Walk(func(key, value string) bool {
		size := len(key) + len("=") + len(value)
		if size > maxStateMember {
			return true
		}
		if kept.Len()+len(",")+size > maxTraceState {
			return false
		}
		if kept.Len() > 0 {
			kept.WriteByte(',')
		}
		kept.WriteString(key + "=" + value)
		return true
	})
	short, err := trace.ParseTraceState(kept.String())
	if err != nil { // it cannot be: these are members of a valid one
		return trace.TraceState{}
	}
	return short
}

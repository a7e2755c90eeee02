package bridgeotel

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// Meta returns the supplier that puts the trace context and baggage of ctx
// into `_meta` (2026-07-28 basic/index: traceparent, tracestate, baggage). It
// replaces those keys of the caller, so that no stale tracestate or baggage
// stays beside a new traceparent; without a trace in ctx it leaves them alone.
// A caller's traceparent of another trace becomes a link of the span. Baggage is
// what the target may get, whether it came in headers or in the message.
func (t *Target) Meta() mcpclient.MetaSupplier {
	return func(ctx context.Context, _ *mcpclient.Call, meta *mcpclient.Meta) error {
		t.restrict(meta)
		if len(t.fields) == 0 {
			return nil
		}
		ctx = t.within(ctx)
		current := trace.SpanContextFromContext(ctx)
		if !current.IsValid() {
			// Only baggage can be in ctx now, and the caller's own wins over it.
			if _, ok := meta.Get(mcpclient.MetaBaggage); !ok && baggage.FromContext(ctx).Len() > 0 {
				t.propagator.Inject(ctx, metaCarrier{meta})
			}
			return nil
		}
		linkCaller(ctx, current, meta)
		for _, key := range t.fields {
			meta.Delete(key)
		}
		t.propagator.Inject(ctx, metaCarrier{meta})
		return nil
	}
}

// Headers returns the supplier that puts the same context into HTTP headers,
// for servers that look only there.
func (t *Target) Headers() mcpclient.HeaderSupplier {
	return func(ctx context.Context, _ *mcpclient.Call, header http.Header) {
		ctx = t.within(ctx)
		if trace.SpanContextFromContext(ctx).IsValid() {
			for _, key := range t.fields {
				header.Del(canonical(key))
			}
		} else if baggage.FromContext(ctx).Len() == 0 {
			return
		}
		t.propagator.Inject(ctx, canonicalCarrier{propagation.HeaderCarrier(header)})
	}
}

// linkCaller links the current span to the trace that the caller named in
// `_meta` when that is another one than its RPC belongs to.
func linkCaller(ctx context.Context, current trace.SpanContext, meta *mcpclient.Meta) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if _, ok := meta.Get(mcpclient.MetaTraceparent); !ok {
		return
	}
	if named := namedIn(meta); named.IsValid() && named.TraceID() != current.TraceID() {
		span.AddLink(trace.Link{SpanContext: named})
	}
}

// canonical is the form that http.Header keeps a key in. Asking for another one
// allocates each time.
func canonical(key string) string {
	switch key {
	case mcpclient.MetaTraceparent:
		return "Traceparent"
	case mcpclient.MetaTracestate:
		return "Tracestate"
	case mcpclient.MetaBaggage:
		return "Baggage"
	}
	return key
}

// canonicalCarrier spells keys as http.Header does.
type canonicalCarrier struct{ propagation.TextMapCarrier }

func (c canonicalCarrier) Get(key string) string { return c.TextMapCarrier.Get(canonical(key)) }
func (c canonicalCarrier) Set(key, value string) { c.TextMapCarrier.Set(canonical(key), value) }

// headerPropagator reads and writes headers in their canonical form.
type headerPropagator struct{ propagation.TextMapPropagator }

func (p headerPropagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	if carrier.Get(canonical(mcpclient.MetaTraceparent)) == "" && carrier.Get(canonical(mcpclient.MetaBaggage)) == "" {
		return ctx // as most calls have neither, and looking for them takes longer
	}
	ctx = p.TextMapPropagator.Extract(ctx, canonicalCarrier{carrier})
	named := trace.SpanContextFromContext(ctx)
	if !named.IsRemote() || fits(named.TraceState()) {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, bounded(named))
}

func (p headerPropagator) Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	p.TextMapPropagator.Inject(ctx, canonicalCarrier{carrier})
}

// metaCarrier writes into the `_meta` object itself, without a map between.
type metaCarrier struct{ meta *mcpclient.Meta }

func (c metaCarrier) Get(key string) string { return c.meta.GetString(key) }
func (c metaCarrier) Set(key, value string) { c.meta.SetString(key, value) }
func (c metaCarrier) Keys() []string        { return c.meta.Keys() }

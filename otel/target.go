package bridgeotel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// TargetOptions configures a [Target]. The zero value works.
type TargetOptions struct {
	// Name is that of the target in the configuration, the attribute
	// mcpbridge.target; "" leaves it out.
	Name string
	// Baggage restricts which of the callers' baggage reaches the target.
	Baggage BaggageRule
}

// BaggageRule says which members of W3C baggage pass. The zero value lets all
// of them pass.
type BaggageRule struct {
	// Restrict keeps back every member whose key is not in Keys.
	Restrict bool
	Keys     []string
}

// Target is the tracing of one target. Its methods, and what they return, are
// safe for concurrent use.
type Target struct {
	*Telemetry

	baggage BaggageRule
	known   []attribute.KeyValue // of every span; full, so that append copies
}

// Target returns what traces one target.
func (t *Telemetry) Target(o TargetOptions) *Target {
	target := &Target{Telemetry: t, baggage: BaggageRule{Restrict: o.Baggage.Restrict, Keys: slices.Clone(o.Baggage.Keys)}}
	if o.Name != "" {
		target.known = []attribute.KeyValue{keyTarget.String(clip(o.Name))}
	}
	return target
}

// Names of spans that are no MCP requests.
const (
	spanConnect   = "connect"
	spanReconnect = "reconnect"
	spanWait      = "wait for connection"
	spanQueue     = "wait for lease"
)

// OnConnect is for [mcpclient.Options].OnConnect: each connection attempt is a
// trace of its own, because it belongs to no caller, and the requests that find
// out the era and negotiate are spans in it. It is nil with the SDK off.
func (t *Target) OnConnect() func(context.Context, mcpclient.ConnectAttempt) (context.Context, func(*mcpclient.Server, error)) {
	if t.sdk == nil {
		return nil
	}
	return func(ctx context.Context, a mcpclient.ConnectAttempt) (context.Context, func(*mcpclient.Server, error)) {
		name := spanConnect
		if a.Again {
			name = spanReconnect
		}
		ctx, span := t.tracer.Start(ctx, name)
		if span.IsRecording() {
			span.SetAttributes(t.known...)
			if a.Number > 1 {
				span.SetAttributes(keyAttempt.Int(a.Number))
			}
		}
		return ctx, func(server *mcpclient.Server, err error) {
			if server != nil && span.IsRecording() {
				span.SetAttributes(keyProtocolVersion.String(clip(server.ProtocolVersion)))
			}
			finish(span, err)
		}
	}
}

// OnWait is for [mcpclient.Options].OnWait: the time that a call waits for a
// connection is a span in its trace, linked to the attempt that it waits for. It
// is nil with the SDK off.
func (t *Target) OnWait() func(context.Context) func(attempt context.Context, err error) {
	if t.sdk == nil {
		return nil
	}
	return func(ctx context.Context) func(context.Context, error) {
		span := t.waiting(ctx, spanWait)
		return func(attempt context.Context, err error) {
			if attempt != nil && span.IsRecording() {
				if link := trace.LinkFromContext(attempt); link.SpanContext.IsValid() {
					span.AddLink(link)
				}
			}
			finish(span, err)
		}
	}
}

// OnQueue is for the OnWait of a pool's options: the time that a call waits in
// the queue is a span in its trace. It is nil with the SDK off.
func (t *Target) OnQueue() func(context.Context) func(error) {
	if t.sdk == nil {
		return nil
	}
	return func(ctx context.Context) func(error) {
		span := t.waiting(ctx, spanQueue)
		return func(err error) { finish(span, err) }
	}
}

// waiting starts the span of a wait; what waits outside of any trace has none.
func (t *Target) waiting(ctx context.Context, name string) trace.Span {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return trace.SpanFromContext(context.Background())
	}
	_, span := t.tracer.Start(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(t.known...)
	}
	return span
}

func finish(span trace.Span, err error) {
	if f, failed := failureOf(nil, err); failed && span.IsRecording() {
		f.record(span)
	}
	span.End()
}

// within returns ctx with the baggage that the target gets.
func (t *Target) within(ctx context.Context) context.Context {
	if !t.baggage.Restrict {
		return ctx
	}
	bag := baggage.FromContext(ctx)
	passing := t.baggage.filter(bag)
	if passing.Len() == bag.Len() {
		return ctx
	}
	return baggage.ContextWithBaggage(ctx, passing)
}

// filter returns the members that pass.
func (r *BaggageRule) filter(bag baggage.Baggage) baggage.Baggage {
	for _, member := range bag.Members() {
		if !slices.Contains(r.Keys, member.Key()) {
			bag = bag.DeleteMember(member.Key())
		}
	}
	return bag
}

// restrict applies the rule to the baggage that a caller wrote into `_meta`.
func (t *Target) restrict(meta *mcpclient.Meta) {
	if !t.baggage.Restrict {
		return
	}
	if _, ok := meta.Get(mcpclient.MetaBaggage); !ok {
		return
	}
	bag, err := baggage.Parse(meta.GetString(mcpclient.MetaBaggage))
	if passing := t.baggage.filter(bag); err == nil && passing.Len() > 0 {
		meta.SetString(mcpclient.MetaBaggage, passing.String())
		return
	}
	meta.Delete(mcpclient.MetaBaggage)
}

package bridgeotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// OnRequest is for [mcpclient.Options].OnRequest: the time that a question of a
// legacy server takes to be answered is a span of kind SERVER in the trace of the
// call that it belongs to, below the server's own span if `_meta` names one of
// that trace. A question of no call has none. It is nil with the SDK off.
func (t *Target) OnRequest() func(context.Context, mcpclient.InboundRequest) (context.Context, func(error)) {
	if t.sdk == nil {
		return nil
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	return func(ctx context.Context, r mcpclient.InboundRequest) (context.Context, func(error)) {
		call := trace.SpanContextFromContext(ctx)
		if !call.IsValid() {
			return ctx, func(error) {}
		}
		parent := ctx
		if named := namedIn(r.Meta()); named.IsValid() && named.TraceID() == call.TraceID() {
			parent = trace.ContextWithRemoteSpanContext(ctx, named)
		}
		ctx, span := t.tracer.Start(parent, clip(r.Method), options...)
		if span.IsRecording() {
			span.SetAttributes(t.known...)
			span.SetAttributes(keyMethod.String(clip(r.Method)), keyRequestID.String(clip(r.ID.String())), keyProtocolVersion.String(clip(r.ProtocolVersion)))
		}
		return ctx, func(err error) {
			refused, ok := errors.AsType[*jsonrpc.Error](err)
			if ok && isAskersFault(refused.Code) {
				if span.IsRecording() {
					f, _ := failureOf(nil, err)
					span.SetAttributes(keyRPCStatus.String(f.code))
				}
				err = nil
			}
			finish(span, err)
		}
	}
}

// isAskersFault says that a code is no failure of the side that answers with it
// (MCP semantic conventions of semantic-conventions-genai, 389).
func isAskersFault(code int64) bool {
	switch code {
	case mcpclient.CodeParse, mcpclient.CodeInvalidRequest, mcpclient.CodeMethodNotFound, mcpclient.CodeInvalidParams, mcpclient.CodeResourceNotFound:
		return true
	}
	return false
}

// namedIn is the span that a `_meta` object names; its trace state is bounded.
func namedIn(meta *mcpclient.Meta) trace.SpanContext {
	return bounded(trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), metaCarrier{meta})))
}

package bridgeotel

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Interceptor returns the interceptor that records one span of kind CLIENT for
// each attempt of each MCP request (MCP semantic conventions v1.41.1), linked to
// the request that it continues. A notification has a span only inside a trace that already exists: those that
// the client sends on its own would be traces of one span each. With the SDK
// off it passes everything on untouched.
func (t *Target) Interceptor() mcpclient.Interceptor {
	if t.sdk == nil {
		return passThrough
	}
	return t.intercept
}

func passThrough(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
	return next(ctx, call)
}

func (t *Target) intercept(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
	if call.IsNotification() && !trace.SpanContextFromContext(ctx).IsValid() {
		return next(ctx, call)
	}
	ctx, span := t.tracer.Start(ctx, spanName(call), t.clientSpan...)
	defer span.End() // directly deferred, so that it also records a panic
	if !span.IsRecording() {
		return next(ctx, call)
	}
	var known [16]attribute.KeyValue
	span.SetAttributes(callAttributes(append(known[:0], t.known...), call)...)
	t.link(span, call)
	if call.Acknowledged != nil {
		return untilAcknowledged(ctx, span, call, next)
	}
	result, err := next(ctx, call)
	if f, failed := failureOf(result, err); failed {
		f.record(span)
	}
	t.remember(span, result)
	return result, err
}

// untilAcknowledged ends the span of a subscriptions/listen when the server has
// acknowledged it. Its answer comes only when the stream ends, perhaps after
// days, and a span is invisible before its end.
func untilAcknowledged(ctx context.Context, span trace.Span, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-call.Acknowledged:
			span.End()
		case <-over:
		}
	})
	defer watch.Wait()
	defer close(over)
	result, err := next(ctx, call)
	select {
	case <-call.Acknowledged: // how the stream ended is no failure of the request
		return result, err
	default:
	}
	if f, failed := failureOf(result, err); failed {
		f.record(span)
	}
	return result, err
}

// failure is what a span says about a request that did not succeed.
type failure struct {
	kind   string // error.type
	code   string // the JSON-RPC code, "" when the server answered with none
	status int    // the HTTP status where it decided the outcome, else 0
	text   string // safe to record; "" when nothing safe is known
}

// failureOf judges the outcome of one attempt.
func failureOf(result *mcpclient.Result, err error) (failure, bool) {
	if err == nil {
		if result != nil && result.IsError {
			return failure{kind: errorTool}, true // the text is content, so it stays out
		}
		return failure{}, false
	}
	if e, ok := errors.AsType[*mcpclient.Error](err); ok {
		f := failure{kind: e.Kind.String(), text: e.Message, status: e.Status}
		if e.RPC != nil {
			f.setRPC(e.RPC)
		}
		return f, true
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		var f failure
		f.setRPC(e)
		return f, true
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return failure{kind: errorTimeout}, true
	case errors.Is(err, context.Canceled):
		return failure{kind: errorCanceled}, true
	}
	return failure{kind: errorOther}, true
}

func (f *failure) setRPC(e *jsonrpc.Error) {
	f.code = strconv.FormatInt(e.Code, 10)
	f.kind = f.code
	f.text = e.Message
}

func (f *failure) record(span trace.Span) {
	var known [3]attribute.KeyValue
	attrs := append(known[:0], keyErrorType.String(f.kind))
	if f.code != "" {
		attrs = append(attrs, keyRPCStatus.String(f.code))
	}
	if f.status != 0 {
		attrs = append(attrs, keyHTTPStatus.Int(f.status))
	}
	span.SetAttributes(attrs...)
	span.SetStatus(codes.Error, clip(f.text))
}

package bridgeotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func TestEveryAttemptHasItsOwnClientSpanBelowTheCaller(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	ctx, caller := remoteContext(t)
	intercept := tel.Target(TargetOptions{}).Interceptor()
	want := &mcpclient.Result{Type: mcpclient.ResultComplete}
	for attempt := range 2 {
		call := toolCall("get_weather")
		call.Attempt = attempt + 1
		var inside trace.SpanContext
		got, err := intercept(ctx, call, func(ctx context.Context, c *mcpclient.Call) (*mcpclient.Result, error) {
			inside = trace.SpanContextFromContext(ctx)
			if c != call {
				t.Error("next got another call")
			}
			return want, nil
		})
		if got != want || err != nil {
			t.Fatalf("got %v, %v", got, err)
		}
		if inside.TraceID() != caller.TraceID() || inside.SpanID() == caller.SpanID() {
			t.Errorf("next runs in span %v of trace %v", inside.SpanID(), inside.TraceID())
		}
	}
	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want 2", len(spans))
	}
	for _, span := range spans {
		if span.Name() != "tools/call get_weather" || span.SpanKind() != trace.SpanKindClient || span.Parent().SpanID() != caller.SpanID() {
			t.Errorf("span %q of kind %v below %v", span.Name(), span.SpanKind(), span.Parent().SpanID())
		}
		if span.Status().Code != codes.Unset {
			t.Errorf("status %v, want unset", span.Status())
		}
	}
}

func TestFailuresAreNamedByTheConventions(t *testing.T) {
	rpc := &jsonrpc.Error{Code: -32602, Message: "city is missing"}
	for _, tt := range []struct {
		name   string
		result *mcpclient.Result
		err    error
		status sdktrace.Status
		want   map[string]any // attributes beyond those of a success
	}{
		{"a result", &mcpclient.Result{}, nil, sdktrace.Status{}, nil},
		{"a result that asks for input", &mcpclient.Result{Type: mcpclient.ResultInputRequired}, nil, sdktrace.Status{}, nil},
		{"no result and no error", nil, nil, sdktrace.Status{}, nil},
		{
			"a tool's own error", &mcpclient.Result{IsError: true}, nil,
			sdktrace.Status{Code: codes.Error}, map[string]any{"error.type": "tool_error"},
		},
		{
			"a JSON-RPC error", nil, &mcpclient.Error{Kind: mcpclient.KindRPC, Message: "the server refused", RPC: rpc},
			sdktrace.Status{Code: codes.Error, Description: "city is missing"},
			map[string]any{"error.type": "-32602", "rpc.response.status_code": "-32602"},
		},
		{
			"a wrapped JSON-RPC error", nil, fmt.Errorf("outer: %w", &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: rpc}),
			sdktrace.Status{Code: codes.Error, Description: "city is missing"},
			map[string]any{"error.type": "-32602", "rpc.response.status_code": "-32602"},
		},
		{
			"a JSON-RPC error not yet classified", nil, rpc,
			sdktrace.Status{Code: codes.Error, Description: "city is missing"},
			map[string]any{"error.type": "-32602", "rpc.response.status_code": "-32602"},
		},
		{
			"a JSON-RPC error inside an HTTP status", nil,
			&mcpclient.Error{Kind: mcpclient.KindUnauthorized, Status: 401, RPC: &jsonrpc.Error{Code: -32001, Message: "no token"}},
			sdktrace.Status{Code: codes.Error, Description: "no token"},
			map[string]any{"error.type": "-32001", "rpc.response.status_code": "-32001", "http.response.status_code": int64(401)},
		},
		{
			"a timeout", nil, &mcpclient.Error{Kind: mcpclient.KindTimeout, Message: "no answer in 60s", Err: context.DeadlineExceeded},
			sdktrace.Status{Code: codes.Error, Description: "no answer in 60s"}, map[string]any{"error.type": "timeout"},
		},
		{
			"a caller that left", nil, &mcpclient.Error{Kind: mcpclient.KindCanceled, Message: "the caller went away"},
			sdktrace.Status{Code: codes.Error, Description: "the caller went away"}, map[string]any{"error.type": "canceled"},
		},
		{
			"an HTTP status", nil, &mcpclient.Error{Kind: mcpclient.KindHTTP, Status: 503, Message: "the server answered 503"},
			sdktrace.Status{Code: codes.Error, Description: "the server answered 503"},
			map[string]any{"error.type": "http", "http.response.status_code": int64(503)},
		},
		{
			"a lost connection, with its private cause kept out", nil,
			&mcpclient.Error{Kind: mcpclient.KindLost, Message: "connection lost", Err: errors.New("token=secret")},
			sdktrace.Status{Code: codes.Error, Description: "connection lost"}, map[string]any{"error.type": "lost"},
		},
		{
			"a plain deadline", nil, fmt.Errorf("waiting: %w", context.DeadlineExceeded),
			sdktrace.Status{Code: codes.Error}, map[string]any{"error.type": "timeout"},
		},
		{
			"a plain cancellation", nil, fmt.Errorf("waiting: %w", context.Canceled),
			sdktrace.Status{Code: codes.Error}, map[string]any{"error.type": "canceled"},
		},
		{
			"an unknown error, with its text kept out", nil, errors.New("token=secret"),
			sdktrace.Status{Code: codes.Error}, map[string]any{"error.type": "_OTHER"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tel, recorder := recording(t, sdktrace.AlwaysSample())
			call := toolCall("get_weather")
			result, err := tel.Target(TargetOptions{}).Interceptor()(t.Context(), call, answer(tt.result, tt.err))
			if result != tt.result || err != tt.err { //nolint:errorlint // the very same error must come back
				t.Errorf("the chain's outcome became %v, %v", result, err)
			}
			span := recorder.Ended()[0]
			if diff := cmp.Diff(tt.status, span.Status()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			want := plain(callAttributes(nil, call))
			maps.Copy(want, tt.want)
			if diff := cmp.Diff(want, attributesOf(span)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTextsOfForeignPeersAreBoundedInSpans(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	huge := strings.Repeat("x", 1<<20)
	err := &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: &jsonrpc.Error{Code: 1, Message: huge + "\xff"}}
	_, _ = tel.Target(TargetOptions{}).Interceptor()(t.Context(), toolCall(huge), answer(nil, err))
	span := recorder.Ended()[0]
	if n := len(span.Name()); n > maxText+len("tools/call ") {
		t.Errorf("the name has %d bytes", n)
	}
	if n := len(span.Status().Description); n > maxText {
		t.Errorf("the description has %d bytes", n)
	}
	if name, ok := attributesOf(span)["gen_ai.tool.name"].(string); !ok || len(name) > maxText {
		t.Errorf("the tool name is %T of %d bytes", name, len(name))
	}
}

func TestNotificationsHaveSpansOnlyInsideATrace(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	notification := &mcpclient.Call{Method: "notifications/cancelled", Attempt: 1, Transport: "stdio"}
	passed := 0
	next := func(context.Context, *mcpclient.Call) (*mcpclient.Result, error) { passed++; return nil, nil }
	if _, err := tel.Target(TargetOptions{}).Interceptor()(t.Context(), notification, next); err != nil {
		t.Fatal(err)
	}
	if n := len(recorder.Ended()); n != 0 {
		t.Errorf("%d spans without a trace, want 0", n)
	}
	ctx, caller := remoteContext(t)
	if _, err := tel.Target(TargetOptions{}).Interceptor()(ctx, notification, next); err != nil {
		t.Fatal(err)
	}
	spans := recorder.Ended()
	if len(spans) != 1 || spans[0].Name() != "notifications/cancelled" || spans[0].Parent().SpanID() != caller.SpanID() {
		t.Errorf("spans inside a trace: %v", spans)
	}
	if passed != 2 {
		t.Errorf("%d notifications passed, want 2", passed)
	}
}

func TestAPanicEndsTheSpanAndGoesOn(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = tel.Target(TargetOptions{}).Interceptor()(t.Context(), toolCall("boom"), func(context.Context, *mcpclient.Call) (*mcpclient.Result, error) {
			panic("boom")
		})
	}()
	spans := recorder.Ended()
	if len(spans) != 1 || len(spans[0].Events()) != 1 || spans[0].Events()[0].Name != "exception" {
		t.Errorf("spans after a panic: %v", spans)
	}
}

func TestWithoutSDKTheInterceptorOnlyPassesOn(t *testing.T) {
	tel := switchedOff(t)
	ctx, caller := remoteContext(t)
	want := &mcpclient.Result{}
	got, err := tel.Target(TargetOptions{}).Interceptor()(ctx, toolCall("x"), func(ctx context.Context, _ *mcpclient.Call) (*mcpclient.Result, error) {
		if !trace.SpanContextFromContext(ctx).Equal(caller) {
			t.Error("the caller's context was changed")
		}
		return want, nil
	})
	if got != want || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

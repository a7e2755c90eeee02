package bridgeotel

import (
	"context"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// elicitation is a question of a server with this `_meta`.
func elicitation(meta string) mcpclient.InboundRequest {
	return mcpclient.InboundRequest{
		Method: "elicitation/create", ID: jsonrpc.IntID(3), ProtocolVersion: "2025-11-25",
		Params: jsontext.Value(`{"message":"Where?","_meta":` + meta + `}`),
	}
}

func TestAQuestionOfAServerIsASpanOfTheCallThatItBelongsTo(t *testing.T) {
	const serversSpan = "00-01020300000000000000000000000000-00000000000000aa-01"
	for name, tt := range map[string]struct{ meta, parent string }{
		"without a trace":      {`{}`, "0405060000000000"},
		"below its own span":   {`{"traceparent":"` + serversSpan + `"}`, "00000000000000aa"},
		"of another trace":     {`{"traceparent":"` + otherParent + `"}`, "0405060000000000"},
		"with broken contexts": {`{"traceparent":7,"tracestate":{}}`, "0405060000000000"},
		"with no object":       {`[1]`, "0405060000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			tel, recorder := recording(t, sdktrace.AlwaysSample())
			ctx, _ := remoteContext(t)
			inside, done := tel.Target(TargetOptions{Name: "weather"}).OnRequest()(ctx, elicitation(tt.meta))
			done(nil)
			spans := recorder.Ended()
			if len(spans) != 1 {
				t.Fatalf("%d spans, want one", len(spans))
			}
			span := spans[0]
			if span.Name() != "elicitation/create" || span.SpanKind() != trace.SpanKindServer || span.Parent().SpanID().String() != tt.parent || span.Status().Code != codes.Unset {
				t.Errorf("span %q of kind %v below %v, status %v", span.Name(), span.SpanKind(), span.Parent().SpanID(), span.Status())
			}
			if got := trace.SpanContextFromContext(inside); !got.Equal(span.SpanContext()) {
				t.Errorf("the answer is made in span %v", got.SpanID())
			}
			want := map[string]any{"mcpbridge.target": "weather", "mcp.method.name": "elicitation/create", "jsonrpc.request.id": "3", "mcp.protocol.version": "2025-11-25"}
			if diff := cmp.Diff(want, attributesOf(span)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARefusedQuestionFailsUnlessTheServerIsAtFault(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		kind   any
		code   any
		status codes.Code
	}{
		"rejected":              {&jsonrpc.Error{Code: -1, Message: "no"}, "-1", "-1", codes.Error},
		"unknown to the client": {&jsonrpc.Error{Code: -32601, Message: "no"}, nil, "-32601", codes.Unset},
		"the call ended first":  {context.Canceled, "canceled", nil, codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			tel, recorder := recording(t, sdktrace.AlwaysSample())
			ctx, _ := remoteContext(t)
			_, done := tel.Target(TargetOptions{}).OnRequest()(ctx, elicitation(`{}`))
			done(tt.err)
			span := recorder.Ended()[0]
			got := attributesOf(span)
			if got["error.type"] != tt.kind || got["rpc.response.status_code"] != tt.code || span.Status().Code != tt.status {
				t.Errorf("%v and status %v", got, span.Status())
			}
		})
	}
}

func TestAQuestionOfNoCallHasNoSpan(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	ctx, done := tel.Target(TargetOptions{}).OnRequest()(t.Context(), elicitation(`{"traceparent":"`+callerParent+`"}`))
	done(nil)
	if len(recorder.Ended()) != 0 || trace.SpanContextFromContext(ctx).IsValid() {
		t.Errorf("spans %v", recorder.Ended())
	}
}

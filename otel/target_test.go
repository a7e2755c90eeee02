package bridgeotel

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

func TestBaggageReachesATargetByItsRule(t *testing.T) {
	bag, err := baggage.Parse("tenant=acme,user=Ada%20L,plan=gold;since=2026")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		rule BaggageRule
		want []string // keys that arrive
	}{
		"forward":             {want: []string{"plan", "tenant", "user"}},
		"drop":                {rule: BaggageRule{Restrict: true}},
		"allow":               {rule: BaggageRule{Restrict: true, Keys: []string{"plan", "tenant"}}, want: []string{"plan", "tenant"}},
		"allow what is not":   {rule: BaggageRule{Restrict: true, Keys: []string{"other"}}},
		"allow all there are": {rule: BaggageRule{Restrict: true, Keys: []string{"plan", "tenant", "user"}}, want: []string{"plan", "tenant", "user"}},
	} {
		t.Run(name, func(t *testing.T) {
			target := switchedOff(t).Target(TargetOptions{Baggage: tt.rule})
			inTrace, _ := remoteContext(t)
			for where, outer := range map[string]context.Context{"in a trace": inTrace, "outside of a trace": t.Context()} {
				meta, header := newMeta(), http.Header{}
				ctx := baggage.ContextWithBaggage(outer, bag)
				if err := target.Meta()(ctx, toolCall("x"), meta); err != nil {
					t.Fatal(err)
				}
				target.Headers()(ctx, toolCall("x"), header)
				own := newMeta("baggage", `"`+bag.String()+`"`) // from the message instead
				if err := target.Meta()(t.Context(), toolCall("x"), own); err != nil {
					t.Fatal(err)
				}
				for carrier, got := range map[string]string{"_meta": meta.GetString("baggage"), "header": header.Get("Baggage"), "own _meta": own.GetString("baggage")} {
					if diff := cmp.Diff(tt.want, baggageKeys(t, got)); diff != "" {
						t.Errorf("%s, %s (-want +got):\n%s", where, carrier, diff)
					}
				}
			}
		})
	}
}

// baggageKeys returns the sorted keys of baggage as it is sent.
func baggageKeys(t *testing.T, text string) []string {
	t.Helper()
	bag, err := baggage.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, key := range []string{"other", "plan", "tenant", "user"} {
		if bag.Member(key).Key() != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestBaggageThatIsNoneIsKeptBackWhereItIsRestricted(t *testing.T) {
	for _, propagators := range []string{"tracecontext,baggage", "none"} {
		target := switchedOff(t, "OTEL_PROPAGATORS", propagators).Target(TargetOptions{Baggage: BaggageRule{Restrict: true, Keys: []string{"a"}}})
		for _, value := range []string{`7`, `"a=1=2,;"`, `{"a":"1"}`} {
			meta := newMeta("baggage", value, "x", `1`)
			if err := target.Meta()(t.Context(), toolCall("x"), meta); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"x": `1`}, metaValues(meta)); diff != "" {
				t.Errorf("propagators %s, baggage %s (-want +got):\n%s", propagators, value, diff)
			}
		}
	}
}

func TestAConnectionAttemptIsATraceOfItsOwn(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	target := tel.Target(TargetOptions{Name: "weather"})
	connect := target.OnConnect()

	ctx, done := connect(t.Context(), mcpclient.ConnectAttempt{Number: 1})
	if _, err := target.Interceptor()(ctx, &mcpclient.Call{Method: "server/discover", Attempt: 1}, answer(&mcpclient.Result{}, nil)); err != nil {
		t.Fatal(err)
	}
	done(&mcpclient.Server{ProtocolVersion: "2026-07-28"}, nil)
	_, done = connect(t.Context(), mcpclient.ConnectAttempt{Number: 2, Again: true})
	done(nil, &mcpclient.Error{Kind: mcpclient.KindUnavailable, Message: "nothing listens there"})

	spans := recorder.Ended()
	if len(spans) != 3 {
		t.Fatalf("%d spans, want 3", len(spans))
	}
	discover, first, second := spans[0], spans[1], spans[2]
	if discover.Name() != "server/discover" || discover.Parent().SpanID() != first.SpanContext().SpanID() || attributesOf(discover)["mcpbridge.target"] != "weather" {
		t.Errorf("span %q of %v is not inside the attempt", discover.Name(), attributesOf(discover))
	}
	if first.Name() != "connect" || first.SpanKind() != trace.SpanKindInternal || first.Parent().IsValid() || first.Status().Code != codes.Unset {
		t.Errorf("first attempt: %q of kind %v below %v, status %v", first.Name(), first.SpanKind(), first.Parent(), first.Status())
	}
	if diff := cmp.Diff(map[string]any{"mcpbridge.target": "weather", "mcp.protocol.version": "2026-07-28"}, attributesOf(first)); diff != "" {
		t.Errorf("first attempt (-want +got):\n%s", diff)
	}
	if second.Name() != "reconnect" || second.Status().Code != codes.Error || second.Status().Description != "nothing listens there" {
		t.Errorf("second attempt: %q, status %v", second.Name(), second.Status())
	}
	want := map[string]any{"mcpbridge.target": "weather", "mcpbridge.attempt": int64(2), "error.type": "unavailable"}
	if diff := cmp.Diff(want, attributesOf(second)); diff != "" {
		t.Errorf("second attempt (-want +got):\n%s", diff)
	}
}

func TestWaitsAreSpansOfTheCallThatWaits(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	target := tel.Target(TargetOptions{Name: "weather"})
	ctx, caller := remoteContext(t)
	attempt, connected := target.OnConnect()(t.Context(), mcpclient.ConnectAttempt{Number: 1})
	target.OnWait()(ctx)(attempt, nil)
	target.OnWait()(ctx)(nil, &mcpclient.Error{Kind: mcpclient.KindTimeout, Message: "too late"})
	target.OnQueue()(ctx)(nil)
	connected(nil, nil)
	// what waits outside of a trace would be a trace of nothing but a wait
	target.OnWait()(t.Context())(attempt, nil)
	target.OnQueue()(t.Context())(nil)

	spans := recorder.Ended()
	if len(spans) != 4 {
		t.Fatalf("%d spans, want 4", len(spans))
	}
	for i, want := range []string{"wait for connection", "wait for connection", "wait for lease"} {
		span := spans[i]
		if span.Name() != want || span.Parent().SpanID() != caller.SpanID() || span.SpanKind() != trace.SpanKindInternal || attributesOf(span)["mcpbridge.target"] != "weather" {
			t.Errorf("span %d: %q of kind %v below %v", i, span.Name(), span.SpanKind(), span.Parent().SpanID())
		}
	}
	if links := spans[0].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != spans[3].SpanContext().SpanID() {
		t.Errorf("the wait has the links %v, want the attempt", links)
	}
	if len(spans[1].Links()) != 0 || attributesOf(spans[1])["error.type"] != "timeout" {
		t.Errorf("a wait in vain has the links %v and %v", spans[1].Links(), attributesOf(spans[1]))
	}
}

func TestWithoutSDKNothingIsObserved(t *testing.T) {
	target := switchedOff(t).Target(TargetOptions{Name: "weather"})
	if target.OnConnect() != nil || target.OnWait() != nil || target.OnQueue() != nil || target.OnRequest() != nil {
		t.Error("there are hooks that would cost something")
	}
}

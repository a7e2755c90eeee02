package bridgeotel

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

const (
	callerParent = "00-01020300000000000000000000000000-0405060000000000-01"
	otherParent  = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
)

func TestMetaReplacesTheCallersTraceKeys(t *testing.T) {
	tel := switchedOff(t)
	ctx, _ := remoteContext(t)
	for _, tt := range []struct {
		name         string
		before, want map[string]string
	}{
		{
			name: "nothing there",
			want: map[string]string{"traceparent": `"` + callerParent + `"`, "tracestate": `"vendor=1"`},
		},
		{
			name:   "stale baggage and other members",
			before: map[string]string{"progressToken": `1`, "baggage": `"stale=1"`, "tracestate": `"stale=1"`, "traceparent": `"` + otherParent + `"`, "x": `null`},
			want:   map[string]string{"progressToken": `1`, "x": `null`, "traceparent": `"` + callerParent + `"`, "tracestate": `"vendor=1"`},
		},
		{
			name:   "a traceparent that is no string",
			before: map[string]string{"traceparent": `{"a":1}`},
			want:   map[string]string{"traceparent": `"` + callerParent + `"`, "tracestate": `"vendor=1"`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			meta := newMeta()
			for key, value := range tt.before {
				meta.Set(key, []byte(value))
			}
			if err := tel.Target(TargetOptions{}).Meta()(ctx, toolCall("x"), meta); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, metaValues(meta)); diff != "" {
				t.Errorf("_meta (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetaLeavesTheCallersKeysAloneOutsideATrace(t *testing.T) {
	tel := switchedOff(t)
	meta := newMeta("traceparent", `7`, "tracestate", `"a=b"`, "baggage", `"k=v"`)
	want := metaValues(meta)
	bag, err := baggage.Parse("other=1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tel.Target(TargetOptions{}).Meta()(baggage.ContextWithBaggage(t.Context(), bag), toolCall("x"), meta); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, metaValues(meta)); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
}

func TestBaggageTravelsWithoutATrace(t *testing.T) {
	tel := switchedOff(t)
	bag, err := baggage.Parse("tenant=acme")
	if err != nil {
		t.Fatal(err)
	}
	ctx := baggage.ContextWithBaggage(t.Context(), bag)
	meta, header := newMeta(), http.Header{}
	if err := tel.Target(TargetOptions{}).Meta()(ctx, toolCall("x"), meta); err != nil {
		t.Fatal(err)
	}
	tel.Target(TargetOptions{}).Headers()(ctx, toolCall("x"), header)
	if diff := cmp.Diff(map[string]string{"baggage": `"tenant=acme"`}, metaValues(meta)); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(http.Header{"Baggage": {"tenant=acme"}}, header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestHeadersReplaceTraceHeaders(t *testing.T) {
	tel := switchedOff(t)
	ctx, _ := remoteContext(t)
	header := http.Header{"Baggage": {"stale=1"}, "Traceparent": {otherParent}, "X-Other": {"1"}}
	tel.Target(TargetOptions{}).Headers()(ctx, toolCall("x"), header)
	want := http.Header{"Traceparent": {callerParent}, "Tracestate": {"vendor=1"}, "X-Other": {"1"}}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestOnlyTheConfiguredPropagatorsTouchMeta(t *testing.T) {
	ctx, _ := remoteContext(t)
	bag, err := baggage.Parse("tenant=acme")
	if err != nil {
		t.Fatal(err)
	}
	ctx = baggage.ContextWithBaggage(ctx, bag)
	own := []string{"traceparent", `"` + otherParent + `"`, "tracestate", `"a=b"`, "baggage", `"k=v"`}
	for propagators, want := range map[string]map[string]string{
		"none":         metaValues(newMeta(own...)),
		"tracecontext": {"traceparent": `"` + callerParent + `"`, "tracestate": `"vendor=1"`, "baggage": `"k=v"`},
		"baggage":      {"traceparent": `"` + otherParent + `"`, "tracestate": `"a=b"`, "baggage": `"tenant=acme"`},
	} {
		t.Run(propagators, func(t *testing.T) {
			tel := switchedOff(t, "OTEL_PROPAGATORS", propagators)
			meta := newMeta(own...)
			if err := tel.Target(TargetOptions{}).Meta()(ctx, toolCall("x"), meta); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, metaValues(meta)); diff != "" {
				t.Errorf("_meta (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATraceNamedInMetaBecomesALink(t *testing.T) {
	for _, tt := range []struct {
		name, parent string
		links        int
	}{
		{"another trace", otherParent, 1},
		{"the same trace", callerParent, 0},
		{"nonsense", "nonsense", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tel, recorder := recording(t, sdktrace.AlwaysSample())
			ctx, caller := remoteContext(t)
			var sent trace.SpanContext
			_, err := tel.Target(TargetOptions{}).Interceptor()(ctx, toolCall("x"), sendMeta(tel, newMeta("traceparent", `"`+tt.parent+`"`), &sent))
			if err != nil {
				t.Fatal(err)
			}
			span := recorder.Ended()[0]
			if len(span.Links()) != tt.links {
				t.Errorf("links %v, want %d", span.Links(), tt.links)
			}
			if sent.TraceID() != caller.TraceID() || sent.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("sent %v of trace %v, want the client span", sent.SpanID(), sent.TraceID())
			}
		})
	}
}

func TestMetaCarrierReadsOnlyStrings(t *testing.T) {
	carrier := metaCarrier{newMeta("progressToken", `7`, "baggage", `"a=b"`)}
	if got := carrier.Get("progressToken"); got != "" {
		t.Errorf("a number reads as %q", got)
	}
	if got := carrier.Get("baggage"); got != "a=b" {
		t.Errorf("baggage reads as %q", got)
	}
	if diff := cmp.Diff([]string{"progressToken", "baggage"}, carrier.Keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	carrier.Set("baggage", "c=\"d\"")
	if got, _ := carrier.meta.Get(mcpclient.MetaBaggage); string(got) != `"c=\"d\""` {
		t.Errorf("baggage became %s", got)
	}
}

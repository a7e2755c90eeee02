package bridgeotel

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// longState is a valid trace state of 32 members, each as long as one may be.
func longState() string {
	members := make([]string, 32)
	for i := range members {
		members[i] = fmt.Sprintf("m%02d=%s", i, strings.Repeat("v", 256))
	}
	return strings.Join(members, ",")
}

func TestTraceStatesAreShortenedByWholeMembers(t *testing.T) {
	member := func(key string, size int) string { return key + "=" + strings.Repeat("v", size-len(key)-1) }
	list := func(members ...string) string { return strings.Join(members, ",") }
	a, b, c, d := member("a", 127), member("b", 128), member("c", 128), member("d", 126)
	large := member("large", 129)
	for _, tt := range []struct{ name, in, want string }{
		{"none", "", ""},
		{"as long as may be", list(a, b, c, d), list(a, b, c, d)},
		{"one byte more", list(a, b, c, d+"v"), list(a, b, c)},
		{"a large member that fits", list(large, a), list(large, a)},
		{"large members go first", list(large, a, b, c), list(a, b, c)},
		{"nothing but large members", longState(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, err := trace.ParseTraceState(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if got := bounded(trace.SpanContext{}.WithTraceState(state)).TraceState().String(); got != tt.want {
				t.Errorf("%d bytes, want %d: %s", len(got), len(tt.want), got)
			}
		})
	}
}

func TestALongTraceStateGoesNowhere(t *testing.T) {
	const kept = "vendor=1"
	header := http.Header{"Traceparent": {callerParent}, "Tracestate": {kept + "," + longState()[:31*261-1]}}
	t.Run("recorded", func(t *testing.T) {
		tel, recorder := recording(t, sdktrace.AlwaysSample())
		b := newBridge(t, tel, nil, "traceparent", `"`+otherParent+`"`, "tracestate", `"`+longState()+`"`)
		b.call(t, procedure, header)
		links := 0
		for _, span := range recorder.Ended() {
			if got := span.SpanContext().TraceState().String(); got != kept {
				t.Errorf("%s has a trace state of %d bytes", span.Name(), len(got))
			}
			for _, link := range span.Links() {
				links++
				if n := link.SpanContext.TraceState().Len(); n != 0 {
					t.Errorf("a link of %s has %d members", span.Name(), n)
				}
			}
		}
		if links != 1 || b.meta["tracestate"] != `"`+kept+`"` {
			t.Errorf("%d links; sent on: %s", links, b.meta["tracestate"])
		}
	})
	t.Run("passed on", func(t *testing.T) {
		b := newBridge(t, switchedOff(t), nil)
		b.call(t, procedure, header)
		if b.meta["traceparent"] != `"`+callerParent+`"` || b.meta["tracestate"] != `"`+kept+`"` {
			t.Errorf("_meta %v", b.meta)
		}
	})
}

func TestWhatIsRememberedHasNoTraceState(t *testing.T) {
	_, sc := remoteContext(t)
	e := newEarlier()
	e.add("task", "1", sc)
	got, ok := e.find("task", "1")
	if !ok || got.TraceState().Len() != 0 || got.TraceID() != sc.TraceID() || got.SpanID() != sc.SpanID() || !got.IsSampled() {
		t.Errorf("remembered: %t, %v", ok, got)
	}
}

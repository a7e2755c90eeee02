package bridgeotel

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// sendMeta is the end of an interceptor chain: it builds `_meta` as the client
// does and stores the span context it sends.
func sendMeta(tel *Telemetry, meta *mcpclient.Meta, sent *trace.SpanContext) mcpclient.Next {
	return func(ctx context.Context, call *mcpclient.Call) (*mcpclient.Result, error) {
		if err := tel.Target(TargetOptions{}).Meta()(ctx, call, meta); err != nil {
			return nil, err
		}
		*sent = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), metaCarrier{meta}))
		return &mcpclient.Result{}, nil
	}
}

// bridge is an RPC server whose one method makes one MCP call with the given
// `_meta` of the caller and remembers what went out.
type bridge struct {
	*httptest.Server
	meta   map[string]string
	header http.Header
}

func newBridge(t *testing.T, tel *Telemetry, fail error, callerMeta ...string) *bridge {
	t.Helper()
	interceptors, err := tel.ServerInterceptors(nil)
	if err != nil {
		t.Fatal(err)
	}
	traceID := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			if info, ok := connect.CallInfoForServerContext(ctx); ok {
				info.ResponseHeader().Set("trace-id", tel.TraceID(ctx))
			}
			return next(ctx, spec, stream)
		}
	}
	b := &bridge{header: http.Header{}}
	send := func(ctx context.Context, call *mcpclient.Call) (*mcpclient.Result, error) {
		meta := newMeta(callerMeta...)
		if err := tel.Target(TargetOptions{}).Meta()(ctx, call, meta); err != nil {
			return nil, err
		}
		tel.Target(TargetOptions{}).Headers()(ctx, call, b.header)
		b.meta = metaValues(meta)
		return &mcpclient.Result{}, fail
	}
	handler := func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
		if err := stream.Receive(&emptypb.Empty{}); err != nil {
			return err
		}
		if _, err := tel.Target(TargetOptions{}).Interceptor()(ctx, toolCall("get_weather"), send); err != nil {
			return connect.NewError(connect.CodeInvalidArgument, "refused")
		}
		return stream.Send(&emptypb.Empty{})
	}
	server := connect.NewServer(append(interceptors, traceID)...)
	for _, procedure := range []string{"/test.v1.Bridge/CallTool", "/grpc.health.v1.Health/Check"} {
		server.Register(connect.Method{Spec: connect.Spec{Procedure: procedure}, Handler: handler})
	}
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	b.Server = httptest.NewServer(mux)
	t.Cleanup(b.Close)
	return b
}

// call makes a Connect call and returns the response's trace id.
func (b *bridge) call(t *testing.T, procedure string, header http.Header) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+procedure, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := b.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.Header.Get("Trace-Id")
}

const procedure = "/test.v1.Bridge/CallTool"

func TestACallersTraceGoesThroughTheBridge(t *testing.T) {
	tel, recorder := recording(t, sdktrace.NeverSample()) // the caller's decision wins over the root's
	b := newBridge(t, tel, nil, "progressToken", `1`, "baggage", `"stale=1"`)
	id := b.call(t, procedure, http.Header{"Traceparent": {callerParent}, "Tracestate": {"vendor=1"}, "Baggage": {"tenant=acme"}})

	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want 2", len(spans))
	}
	client, server := spans[0], spans[1]
	if client.Name() != "tools/call get_weather" || client.SpanKind() != trace.SpanKindClient || client.Parent().SpanID() != server.SpanContext().SpanID() {
		t.Errorf("MCP span %q of kind %v is not a client span below the RPC", client.Name(), client.SpanKind())
	}
	if server.Name() != "test.v1.Bridge/CallTool" || server.SpanKind() != trace.SpanKindServer || server.Parent().SpanID().String() != "0405060000000000" {
		t.Errorf("RPC span %q of kind %v is not a server span below the caller", server.Name(), server.SpanKind())
	}
	parent := "00-01020300000000000000000000000000-" + client.SpanContext().SpanID().String() + "-01"
	want := map[string]string{"progressToken": `1`, "traceparent": `"` + parent + `"`, "tracestate": `"vendor=1"`, "baggage": `"tenant=acme"`}
	if diff := cmp.Diff(want, b.meta); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(http.Header{"Traceparent": {parent}, "Tracestate": {"vendor=1"}, "Baggage": {"tenant=acme"}}, b.header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if id != "01020300000000000000000000000000" {
		t.Errorf("the response names trace %q", id)
	}
}

func TestTheSpanOfAnRPCNamesItsTarget(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	for _, target := range []string{"shop", ""} {
		ctx, span := tel.tracer.Start(t.Context(), "rpc")
		tel.RPCEnded(ctx, target)
		span.End()
	}
	tel.RPCEnded(t.Context(), "shop") // a call without a span
	spans := recorder.Ended()
	if got := attributesOf(spans[0])["mcpbridge.target"]; got != "shop" {
		t.Errorf("the target is %v", got)
	}
	if got, ok := attributesOf(spans[1])["mcpbridge.target"]; ok {
		t.Errorf("a call without a target has %v", got)
	}
}

func TestACallerThatIsNotTrustedIsLinkedTo(t *testing.T) {
	for flags, sampler := range map[string]sdktrace.Sampler{"00": sdktrace.AlwaysSample(), "01": sdktrace.NeverSample()} {
		tel, recorder := recording(t, sampler)
		tel.ownTraces = true
		b := newBridge(t, tel, nil)
		id := b.call(t, procedure, http.Header{"Traceparent": {strings.TrimSuffix(callerParent, "01") + flags}, "Tracestate": {"vendor=1"}, "Baggage": {"tenant=acme"}})
		sent := b.header.Get("Traceparent")
		if strings.Contains(sent, "01020300000000000000000000000000") || !strings.Contains(sent, id) || id == "" {
			t.Errorf("the server was told %q, the caller %q; want a trace of the bridge's own", sent, id)
		}
		if b.header.Get("Tracestate") != "" || b.header.Get("Baggage") != "tenant=acme" {
			t.Errorf("tracestate %q, baggage %q; want the baggage alone", b.header.Get("Tracestate"), b.header.Get("Baggage"))
		}
		spans := recorder.Ended()
		if flags == "01" { // the caller asks to be recorded, our sampler does not
			if len(spans) != 0 {
				t.Errorf("%d spans, want none", len(spans))
			}
			continue
		}
		if len(spans) != 2 || spans[1].Parent().IsValid() || len(spans[1].Links()) != 1 || spans[1].Links()[0].SpanContext.SpanID().String() != "0405060000000000" {
			t.Errorf("spans %v, want a root that is linked to the caller", spans)
		}
	}
}

func TestAnUnsampledCallerIsObeyedAndPassedOn(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	b := newBridge(t, tel, nil)
	b.call(t, procedure, http.Header{"Traceparent": {strings.TrimSuffix(callerParent, "01") + "00"}, "Tracestate": {"vendor=1"}})
	if n := len(recorder.Ended()); n != 0 {
		t.Errorf("%d spans recorded, want 0", n)
	}
	sent := b.header.Get("Traceparent")
	if !strings.HasPrefix(sent, "00-01020300000000000000000000000000-") || strings.Contains(sent, "0405060000000000") || !strings.HasSuffix(sent, "-00") {
		t.Errorf("sent %q, want the same trace, another span, not sampled", sent)
	}
	if got := b.meta["tracestate"]; got != `"vendor=1"` {
		t.Errorf("tracestate %s", got)
	}
}

func TestWithoutACallerTheBridgeStartsATrace(t *testing.T) {
	for name, header := range map[string]http.Header{
		"no context":               {},
		"an upper-case trace id":   {"Traceparent": {"00-ABCDEF00000000000000000000000000-0405060000000000-01"}},
		"tracestate without trace": {"Tracestate": {"vendor=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			tel, recorder := recording(t, sdktrace.AlwaysSample())
			b := newBridge(t, tel, nil)
			id := b.call(t, procedure, header)
			spans := recorder.Ended()
			if len(spans) != 2 || spans[1].Parent().IsValid() {
				t.Fatalf("spans %v, want a new root and its child", spans)
			}
			if want := spans[1].SpanContext().TraceID().String(); id != want || !strings.Contains(b.meta["traceparent"], want) {
				t.Errorf("response %q and _meta %s, want trace %s", id, b.meta["traceparent"], want)
			}
			if got, ok := b.meta["tracestate"]; ok {
				t.Errorf("tracestate %s, want none", got)
			}
		})
	}
}

func TestWithoutSDKTheCallersContextPassesUnchanged(t *testing.T) {
	tel := switchedOff(t)
	for name, tt := range map[string]struct {
		header http.Header
		meta   []string
		want   map[string]string
		id     string
	}{
		"from metadata": {
			header: http.Header{"Traceparent": {callerParent}, "Tracestate": {"a=1,b=2"}, "Baggage": {"tenant=acme%20corp;ttl=1"}},
			want:   map[string]string{"traceparent": `"` + callerParent + `"`, "tracestate": `"a=1,b=2"`, "baggage": `"tenant=acme%20corp;ttl=1"`},
			id:     "01020300000000000000000000000000",
		},
		"an unsampled one": {
			header: http.Header{"Traceparent": {strings.TrimSuffix(callerParent, "01") + "00"}},
			want:   map[string]string{"traceparent": `"` + strings.TrimSuffix(callerParent, "01") + `00"`},
			id:     "01020300000000000000000000000000",
		},
		"from the message's own _meta": {
			meta: []string{"traceparent", `"` + callerParent + `"`, "baggage", `"k=v"`},
			want: map[string]string{"traceparent": `"` + callerParent + `"`, "baggage": `"k=v"`},
		},
		"none, and none is invented": {want: map[string]string{}},
		"one that is not W3C": {
			header: http.Header{"Traceparent": {"00-ABCDEF00000000000000000000000000-0405060000000000-01"}},
			want:   map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t, tel, nil, tt.meta...)
			if tt.header == nil {
				tt.header = http.Header{}
			}
			if id := b.call(t, procedure, tt.header); id != tt.id {
				t.Errorf("the response names trace %q, want %q", id, tt.id)
			}
			if diff := cmp.Diff(tt.want, b.meta); diff != "" {
				t.Errorf("_meta (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeveralHeadersOfOneKindAreJoined(t *testing.T) {
	b := newBridge(t, switchedOff(t), nil)
	b.call(t, procedure, http.Header{"Traceparent": {callerParent}, "Tracestate": {"a=1", "b=2"}, "Baggage": {"k1=1", "k2=2"}})
	if got := b.meta["tracestate"]; got != `"a=1,b=2"` {
		t.Errorf("tracestate %s", got)
	}
	if got := b.meta["baggage"]; !strings.Contains(got, "k1=1") || !strings.Contains(got, "k2=2") {
		t.Errorf("baggage %s", got)
	}
}

func TestBaggageBeyondTheLimitIsDroppedAndTheTraceKept(t *testing.T) {
	b := newBridge(t, switchedOff(t), nil)
	b.call(t, procedure, http.Header{"Traceparent": {callerParent}, "Baggage": {"k=" + strings.Repeat("x", 8192)}})
	if diff := cmp.Diff(map[string]string{"traceparent": `"` + callerParent + `"`}, b.meta); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
}

func TestPropagatorsNonePropagatesNothing(t *testing.T) {
	b := newBridge(t, switchedOff(t, "OTEL_PROPAGATORS", "none"), nil)
	b.call(t, procedure, http.Header{"Traceparent": {callerParent}, "Baggage": {"k=v"}})
	if len(b.meta) != 0 || len(b.header) != 0 {
		t.Errorf("_meta %v and headers %v, want none", b.meta, b.header)
	}
}

func TestACallersFaultFailsTheMCPSpanNotTheRPCSpan(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	b := newBridge(t, tel, &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: &jsonrpc.Error{Code: -32602, Message: "no city"}})
	b.call(t, procedure, http.Header{})
	spans := recorder.Ended()
	if got := spans[0].Status(); got.Code != codes.Error || got.Description != "no city" {
		t.Errorf("MCP span's status %v", got)
	}
	if got := spans[1].Status().Code; got != codes.Unset {
		t.Errorf("RPC span's status %v, want unset", got)
	}
	if got := attributesOf(spans[1])["rpc.response.status_code"]; got != "INVALID_ARGUMENT" {
		t.Errorf("RPC span's code %v", got)
	}
}

func TestHealthProbesHaveNoRPCSpan(t *testing.T) {
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	b := newBridge(t, tel, nil)
	b.call(t, "/grpc.health.v1.Health/Check", http.Header{})
	for _, span := range recorder.Ended() {
		if span.SpanKind() == trace.SpanKindServer {
			t.Errorf("span %q, want none", span.Name())
		}
	}
}

func TestTraceIDIsEmptyOutsideATrace(t *testing.T) {
	if got := switchedOff(t).TraceID(t.Context()); got != "" {
		t.Errorf("got %q", got)
	}
}

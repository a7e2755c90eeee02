package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestWhatIsRefusedBeforeItIsACallIsSeenByTelemetry(t *testing.T) {
	var mu sync.Mutex // guards seen
	var seen []string
	telemetry := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			info, _ := connect.CallInfoForServerContext(ctx)
			err := next(context.WithValue(ctx, traceKey{}, "trace of "+info.RequestHeader().Get("traceparent")), spec, stream)
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%s %s %v", spec.Procedure, info.Protocol, connect.CodeOf(err)))
			return err
		}
	}
	traceID := func(ctx context.Context) string {
		id, _ := ctx.Value(traceKey{}).(string)
		return id
	}
	b := start(t, Options{Interceptors: []connect.ServerInterceptor{telemetry}, TraceID: traceID}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
	for _, tt := range []struct {
		name, path, contentType, header, value string
		want                                   string
	}{
		{"an unknown procedure", "/shop.v1.Other/Chosen-by-the-caller", "application/grpc", "", "", "/_OTHER grpc unimplemented"},
		{"an unknown method", "/mcpbridge.v1.ToolsService/Nope", "application/json", "", "", "/_OTHER connect unimplemented"},
		{"a bad timeout", "/mcpbridge.v1.ToolsService/ListTools", "application/grpc", "Grpc-Timeout", "soon", "/mcpbridge.v1.ToolsService/ListTools grpc invalid_argument"},
		{"a content type that is none", "/mcpbridge.v1.ToolsService/ListTools", "text/plain", "", "", "/mcpbridge.v1.ToolsService/ListTools unknown invalid_argument"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen = nil
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+tt.path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", tt.contentType)
			req.Header.Set("Traceparent", "the caller")
			if tt.header != "" {
				req.Header.Set(tt.header, tt.value)
			}
			res, _ := do(t, req)
			if got := res.Header.Get(HeaderTraceID); got != "trace of the caller" {
				t.Errorf("%s: %q", HeaderTraceID, got)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff([]string{tt.want}, seen); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestARefusalIsAnsweredWhateverAnInterceptorDoes(t *testing.T) {
	for name, interceptor := range map[string]connect.ServerInterceptor{
		"it fails": func(connect.ServerFunc) connect.ServerFunc {
			return func(context.Context, connect.Spec, connect.ServerStream) error { return errors.New("no") }
		},
		"it reads the stream": func(next connect.ServerFunc) connect.ServerFunc {
			return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
				if stream.Receive(nil) == nil || stream.Send(nil) == nil || stream.SendHeaders() == nil {
					t.Error("a call that is over has a stream")
				}
				return next(ctx, spec, stream)
			}
		},
		"it has a context of its own": func(next connect.ServerFunc) connect.ServerFunc {
			return func(_ context.Context, spec connect.Spec, stream connect.ServerStream) error {
				return next(context.Background(), spec, stream)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, Options{Interceptors: []connect.ServerInterceptor{interceptor}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
			code, reason, _ := answerOf(t, b, "/shop.v1.Other/Do", "application/json", nil, "{}")
			if code != "unimplemented" || reason != string(reasonMethodNotSupported) {
				t.Errorf("%s %s", code, reason)
			}
		})
	}
}

func TestWhatTheFastListenerRefusesIsSeenToo(t *testing.T) {
	const lists = "/mcpbridge.v1.ToolsService/ListTools"
	var seen []string
	telemetry := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			info, _ := connect.CallInfoForServerContext(ctx)
			err := next(ctx, spec, stream)
			seen = append(seen, fmt.Sprintf("%s %s %s %v", spec.Procedure, info.Protocol, info.RequestHeader().Get("traceparent"), connect.CodeOf(err)))
			return err
		}
	}
	var observed []Outcome
	b := start(t, Options{
		Interceptors: []connect.ServerInterceptor{telemetry},
		TraceID:      func(context.Context) string { return "trace-1" },
		Observe:      func(_ context.Context, o Outcome) { observed = append(observed, o) },
	}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
	for _, contentType := range []string{"application/grpc", "application/grpc+thrift"} {
		for _, procedure := range []string{"/shop.v1.Other/Do", lists} {
			if contentType == "application/grpc" && procedure == lists {
				continue // a call
			}
			res, _ := b.exchangeGRPC(overFastGRPC, procedure, map[string]string{"Content-Type": contentType, "Traceparent": "the caller"}, strings.NewReader(frame(0, "")))
			if got := res.Header.Get(HeaderTraceID); got != "trace-1" {
				t.Errorf("%s: %q", HeaderTraceID, got)
			}
		}
	}
	if diff := cmp.Diff([]string{"/_OTHER grpc the caller unimplemented", "/_OTHER grpc the caller unimplemented", lists + " grpc the caller invalid_argument"}, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	unknown := Outcome{Reason: string(reasonMethodNotSupported)}
	if diff := cmp.Diff([]Outcome{unknown, unknown, {Procedure: lists, Reason: string(reasonInvalidParams)}}, observed); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, want := range []string{"procedure=/shop.v1.Other/Do", "protocol=grpc", "reason=METHOD_NOT_SUPPORTED", "code=unimplemented"} {
		if !strings.Contains(b.logs.String(), want) {
			t.Errorf("the log does not hold %s:\n%s", want, b.logs)
		}
	}
}

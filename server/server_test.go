package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectinprocess"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestOptionsAreChecked(t *testing.T) {
	for names, opts := range map[string]Options{
		"Targets":         {},
		"MaxRequestBytes": {Targets: &targets.Set{}, MaxRequestBytes: -1},
		"ListBudget":      {Targets: &targets.Set{}, ListBudget: -1},
	} {
		if _, err := New(opts); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("got %v, want an error that names %s", err, names)
		}
	}
}

// get and post are plain HTTP, as curl does it.
func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, req)
}

func post(t *testing.T, url, contentType, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := httpClient(t, false).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestOtherPathsSayWhatThePortServes(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for _, path := range []string{"/", "/favicon.ico", "/mcpbridge.v1.ToolsService/", "/mcpbridge.v1.ToolsService", "/a/b/c"} {
		res, body := get(t, b.url+path)
		if res.StatusCode != http.StatusNotFound || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("GET %s: %s %s", path, res.Status, res.Header.Get("Content-Type"))
		}
		for _, name := range []string{"gRPC, gRPC-Web and Connect", "mcpbridge.v1.ToolsService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} {
			if !strings.Contains(body, name) {
				t.Errorf("GET %s does not name %s: %s", path, name, body)
			}
		}
	}
	if res, _ := post(t, b.url+"/", "application/json", "{}"); res.StatusCode != http.StatusNotFound {
		t.Errorf("POST /: %s, want 404", res.Status)
	}
}

func TestUnknownProceduresAreUnimplementedInTheCallersProtocol(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for _, procedure := range []string{"/mcpbridge.v1.ToolsService/Nope", "/shop.v1.Other/Do"} {
		for _, protocol := range []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect, overConnectJSON} {
			spec := connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: procedure}
			err := b.client(protocol).CallUnary(t.Context(), spec, &emptypb.Empty{}, &emptypb.Empty{})
			wantError(t, err, connect.CodeUnimplemented, reasonMethodNotSupported, strings.TrimPrefix(procedure, "/"), "reflection")
		}
	}
}

func TestAHandlerCanBeServedByAnotherServer(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	other := &http.Server{Handler: b.Handler(), ReadHeaderTimeout: time.Second}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- other.Serve(l) }()
	t.Cleanup(func() {
		other.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	client := connect.NewClient(connecthttp.NewTransport(httpClient(t, false), "http://"+l.Addr().String()))
	if _, err := mcpbridgev1connect.NewToolsServiceClient(client).ListTools(t.Context(), &pb.ListToolsRequest{}); err != nil {
		t.Error(err)
	}
}

func TestARequestOverTheLimitNamesItsSetting(t *testing.T) {
	b := start(t, Options{MaxRequestBytes: 10_000}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	big := &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"x":"` + strings.Repeat("y", 20_000) + `"}`)}
	for _, protocol := range protocols() {
		t.Run(protocol, func(t *testing.T) {
			_, err := b.tools(protocol).CallTool(t.Context(), big)
			wantError(t, err, connect.CodeResourceExhausted, reasonTooLarge, "listen.max_request_bytes", "10000")
		})
		t.Run(protocol+"/gzip", func(t *testing.T) {
			_, err := mcpbridgev1connect.NewToolsServiceClient(b.client(protocol, connecthttp.WithSendGzip())).CallTool(t.Context(), big)
			wantError(t, err, connect.CodeResourceExhausted, reasonTooLarge, "listen.max_request_bytes")
		})
	}
}

func TestASlowBodyIsNotWaitedFor(t *testing.T) {
	b := start(t, Options{limits: limits{body: 100 * time.Millisecond}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "h2c": true} {
		t.Run(name, func(t *testing.T) {
			body, stall := io.Pipe()
			defer stall.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/mcpbridge.v1.ToolsService/CallTool", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			go func() { _, _ = stall.Write([]byte(`{"name":`)) }() // ends when the body is closed
			res, err := httpClient(t, h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(text), "did not arrive within 100ms") {
				t.Errorf("%s %s", res.Status, text)
			}
			if strings.Contains(string(text), "127.0.0.1") {
				t.Errorf("the answer shows addresses: %s", text)
			}
		})
	}
}

func TestASlowCallOutlivesTheBodyTimeout(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Delay(300*time.Millisecond, mcptest.Echo())
	b := start(t, Options{limits: limits{body: 50 * time.Millisecond}}, map[string]targetConfig{"shop": {server: server}}).ready()
	for _, protocol := range protocols() {
		if _, err := b.tools(protocol).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"}); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

func TestJSONMistakesAreNamedOnTheWire(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for body, names := range map[string][]string{
		`{"nam":"echo"}`: {"nam", "no such field", "JSON_INVALID"},
		`{"name":"echo","arguments":{"id":9007199254740993}}`: {"arguments.id", "arguments_json"},
		`{"name":`: {"ends too early"},
		``:         {"empty"},
	} {
		res, text := post(t, b.url+"/mcpbridge.v1.ToolsService/CallTool", "application/json", body)
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", body, res.Status)
		}
		for _, name := range names {
			if !strings.Contains(text, name) {
				t.Errorf("the answer to %s does not say %q: %s", body, name, text)
			}
		}
	}
	message := url.QueryEscape(`{"page_sizes":3}`)
	res, text := get(t, b.url+"/mcpbridge.v1.ToolsService/ListTools?encoding=json&message="+message)
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(text, "page_sizes") || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("GET: %s %s %s", res.Status, res.Header.Get("Cache-Control"), text)
	}
}

func TestProtobufMistakesAreNamedOnTheWire(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	_, text := post(t, b.url+"/mcpbridge.v1.ToolsService/CallTool", "application/proto", "\xff\xff\xff")
	if !strings.Contains(text, "could not be decoded as mcpbridge.v1.CallToolRequest") || strings.Contains(text, "proto:") {
		t.Errorf("got %s", text)
	}
}

func TestSmallAnswersAreNotCompressed(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = func(_ context.Context, r *mcptest.Request) (any, error) {
		if r.Param("arguments") == nil {
			return mcptest.Text("small"), nil
		}
		return mcptest.Text(strings.Repeat("large ", 1000)), nil
	}
	b := one(t, server)
	for body, want := range map[string]string{`{"name":"echo"}`: "", `{"name":"echo","arguments":{}}`: "gzip"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/mcpbridge.v1.ToolsService/CallTool", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept-Encoding", "gzip")
		res, text := do(t, req)
		if got := res.Header.Get("Content-Encoding"); got != want {
			t.Errorf("%s: Content-Encoding %q, want %q", body, got, want)
		}
		if want == "gzip" {
			unpacked, err := gzip.NewReader(bytes.NewReader([]byte(text)))
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := io.ReadAll(unpacked); err != nil || !strings.Contains(string(plain), "large large") {
				t.Errorf("unpacked %.50s, %v", plain, err)
			}
		}
	}
}

func TestResponsesCarryTheTraceAndTheLogTheCall(t *testing.T) {
	order := ""
	outer := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			order += "in "
			err := next(context.WithValue(ctx, traceKey{}, "trace-1"), spec, stream)
			order += "out"
			return err
		}
	}
	server := shop(mcptest.Modern)
	server.Tools[1].Call = mcptest.Fail(-31000, "sold out", nil, 0)
	b := start(t, Options{Interceptors: []connect.ServerInterceptor{outer}, TraceID: func(ctx context.Context) string {
		id, _ := ctx.Value(traceKey{}).(string)
		return id
	}}, map[string]targetConfig{"shop": {server: server}})
	ctx, info := connect.NewClientContext(t.Context())
	_, err := b.tools(overGRPC).CallTool(ctx, &pb.CallToolRequest{Name: "fail"})
	wantError(t, err, connect.CodeUnknown, reasonMCPError)
	if got := info.ResponseHeader().Get(HeaderTraceID); got != "trace-1" {
		t.Errorf("%s: %q, want trace-1", HeaderTraceID, got)
	}
	if order != "in out" {
		t.Errorf("interceptors ran as %q", order)
	}
	for _, want := range []string{"procedure=/mcpbridge.v1.ToolsService/CallTool", "target=shop", "code=unknown", "protocol=grpc", "peer=127.0.0.1:", "cause="} {
		if !strings.Contains(b.logs.String(), want) {
			t.Errorf("the log does not hold %s:\n%s", want, b.logs)
		}
	}
}

type traceKey struct{}

func TestAPanicIsAnErrorThatSaysNothing(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	var seen error
	observe := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			seen = next(ctx, spec, stream)
			return seen
		}
	}
	server := connect.NewServer(observe, b.report, b.drain, b.recoverPanics, b.author)
	spec := connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: "/test.v1.Test/Panic"}
	server.Register(connect.Method{Spec: spec, Handler: func(context.Context, connect.Spec, connect.ServerStream) error { panic("secret value") }})
	err := connect.NewClient(connectinprocess.New(server)).CallUnary(t.Context(), spec, &emptypb.Empty{}, &emptypb.Empty{})
	if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want INTERNAL without the panic's value", err)
	}
	wantError(t, seen, connect.CodeInternal, reasonInternal, "log")
	if !strings.Contains(b.logs.String(), "secret value") || !strings.Contains(b.logs.String(), "server_test.go") {
		t.Errorf("the log lacks the panic and its place:\n%s", b.logs)
	}
}

func TestHandlersCannotLeakGoErrors(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	server := connect.NewServer(b.author)
	spec := connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: "/test.v1.Test/Fail"}
	var fail error
	server.Register(connect.Method{Spec: spec, Handler: func(context.Context, connect.Spec, connect.ServerStream) error { return fail }})
	client := connect.NewClient(connectinprocess.New(server))
	for _, c := range []struct {
		err  error
		code connect.Code
	}{
		{errors.New("dial tcp 10.0.0.1: secret"), connect.CodeInternal},
		{fmt.Errorf("secret: %w", context.Canceled), connect.CodeCanceled},
		{fmt.Errorf("secret: %w", context.DeadlineExceeded), connect.CodeDeadlineExceeded},
		{refuse(reasonPolicyDenied, "no entry"), connect.CodePermissionDenied},
	} {
		fail = c.err
		err := client.CallUnary(t.Context(), spec, &emptypb.Empty{}, &emptypb.Empty{})
		if connect.CodeOf(err) != c.code || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v became %v, want %v", c.err, err, c.code)
		}
		if detail[*errdetails.ErrorInfo](t, err) == nil {
			t.Errorf("%v has no ErrorInfo", err)
		}
	}
}

package bridgeotel

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestRPCsAreMeasuredWithTheirTarget(t *testing.T) {
	m := measuring(t)
	m.Target("known")
	interceptors, err := switchedOff(t).ServerInterceptors(m)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if err := stream.Receive(&emptypb.Empty{}); err != nil {
			return err
		}
		info, _ := connect.CallInfoForServerContext(ctx)
		target := info.RequestHeader().Get("target")
		if info.RequestHeader().Get("fail") != "" {
			m.RPCEnded(ctx, spec.Procedure, target, "TIMEOUT")
			return connect.NewError(connect.CodeDeadlineExceeded, "too slow")
		}
		m.RPCEnded(ctx, spec.Procedure, target, "")
		return stream.Send(&emptypb.Empty{})
	}
	server := connect.NewServer(interceptors...)
	for _, procedure := range []string{procedure, "/grpc.health.v1.Health/Check"} {
		server.Register(connect.Method{Spec: connect.Spec{Procedure: procedure}, Handler: handler})
	}
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	b := &bridge{Server: httptest.NewServer(mux)}
	defer b.Close()
	b.call(t, procedure, http.Header{"Target": {"known"}})
	b.call(t, procedure, http.Header{"Target": {"known"}, "Fail": {"1"}})
	b.call(t, procedure, http.Header{"Target": {"made up"}, "Fail": {"1"}})
	b.call(t, procedure, http.Header{})
	b.call(t, "/grpc.health.v1.Health/Check", http.Header{"Target": {"known"}})
	m.RPCEnded(t.Context(), "", "", "METHOD_NOT_SUPPORTED")

	text := scrape(t, m, "")
	want := []string{
		`error_type="DEADLINE_EXCEEDED" mcpbridge_target="known" rpc_method="test.v1.Bridge/CallTool" rpc_response_status_code="DEADLINE_EXCEEDED" rpc_system_name="connectrpc" 1`,
		`error_type="DEADLINE_EXCEEDED" rpc_method="test.v1.Bridge/CallTool" rpc_response_status_code="DEADLINE_EXCEEDED" rpc_system_name="connectrpc" 1`,
		`mcpbridge_target="known" rpc_method="test.v1.Bridge/CallTool" rpc_response_status_code="OK" rpc_system_name="connectrpc" 1`,
		`rpc_method="test.v1.Bridge/CallTool" rpc_response_status_code="OK" rpc_system_name="connectrpc" 1`,
	}
	if diff := cmp.Diff(want, series(text, "rpc_server_call_duration_seconds_count")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	want = []string{
		`mcpbridge_error_reason="METHOD_NOT_SUPPORTED" rpc_method="_OTHER" 1`,
		`mcpbridge_error_reason="TIMEOUT" mcpbridge_target="known" rpc_method="test.v1.Bridge/CallTool" 1`,
		`mcpbridge_error_reason="TIMEOUT" rpc_method="test.v1.Bridge/CallTool" 1`,
	}
	if diff := cmp.Diff(want, series(text, "mcpbridge_rpc_errors_total")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	for _, bucket := range []string{`le="0.005"`, `le="10"`, `le="300"`} {
		if !strings.Contains(text, bucket) {
			t.Errorf("there is no bucket %s", bucket)
		}
	}
}

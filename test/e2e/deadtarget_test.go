package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func TestFault18ADeadTargetAmongThreeIsReportedAndTheOthersServe(t *testing.T) {
	first, _ := gosdkHTTP(t, "-stateless")
	third, _ := gosdkStdio(t)
	b := serve(t, map[string]target{
		"a-http":  first,
		"b-dead":  {"url": fmt.Sprintf("http://127.0.0.1:%d/mcp", freePort(t))},
		"c-stdio": third,
	})
	c := b.clients(t)

	for _, name := range []string{"a-http", "c-stdio"} {
		result := c.result(t, &pb.CallToolRequest{Target: name, Name: "echo", ArgumentsJson: new(`{"text":"alive"}`)})
		if firstText(t, result) != "alive" {
			t.Errorf("%s returned %v", name, result)
		}
	}

	list, err := c.tools.ListTools(t.Context(), &pb.ListToolsRequest{})
	if err != nil {
		t.Fatal(describe(err))
	}
	targets := slices.Compact(names(list.GetTools(), (*pb.Tool).GetTarget))
	if !slices.Equal(targets, []string{"a-http", "c-stdio"}) {
		t.Errorf("tools of %q, want those of a-http, then those of c-stdio", targets)
	}
	if dead := list.GetUnreachable(); len(dead) != 1 || dead[0].GetTarget() != "b-dead" || dead[0].GetReason() != "TARGET_UNAVAILABLE" || dead[0].GetCode() != 14 || dead[0].GetMessage() == "" {
		t.Errorf("unreachable is %v, want b-dead with TARGET_UNAVAILABLE", dead)
	}

	health := healthpb.NewHealthClient(b.grpc(t))
	for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{
		"":                          healthpb.HealthCheckResponse_SERVING,
		"mcpbridge.v1.ToolsService": healthpb.HealthCheckResponse_SERVING,
		"target/a-http":             healthpb.HealthCheckResponse_SERVING,
		"target/b-dead":             healthpb.HealthCheckResponse_NOT_SERVING,
		"target/c-stdio":            healthpb.HealthCheckResponse_SERVING,
	} {
		response, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || response.GetStatus() != want {
			t.Errorf("health of %q is %v, %v, want %v", service, response.GetStatus(), err, want)
		}
	}
	if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "target/none"}); err == nil {
		t.Error("health of a target that does not exist has no error")
	}

	response, err := c.health.ListTargets(t.Context(), &pb.ListTargetsRequest{})
	if err != nil {
		t.Fatal(describe(err))
	}
	for i, name := range []string{"a-http", "b-dead", "c-stdio"} {
		if i >= len(response.GetTargets()) || response.GetTargets()[i].GetName() != name {
			t.Fatalf("targets are %v, want all three sorted", response.GetTargets())
		}
		target := response.GetTargets()[i]
		ready := target.GetState() == pb.TargetState_TARGET_STATE_READY
		if ready != (name != "b-dead") || target.GetSince() == nil {
			t.Errorf("%s is %v since %v", name, target.GetState(), target.GetSince())
		}
		if name == "b-dead" && target.GetLastError().GetMessage() == "" {
			t.Errorf("b-dead has no last error: %v", target)
		}
	}
}

func TestAChildThatEndsIsExplained(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{
		"prints": {"command": []string{"echo", "hello there"}},
		"fails":  {"command": []string{"sh", "-c", "echo oops >&2; exit 3"}},
	})
	c := b.clients(t)
	for name, want := range map[string]string{
		"prints": " after it wrote to stdout what is no JSON-RPC message: hello there",
		"fails":  "has ended (exit status 3); HealthService.GetTarget shows its last lines on stderr",
	} {
		_, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: name, Name: "x"})
		if got, _ := wantError(t, err, connect.CodeUnavailable, "TARGET_UNAVAILABLE"); !strings.Contains(got.Message(), want) || strings.Contains(got.Message(), "EOF") {
			t.Errorf("%s: %s", name, got.Message())
		}
	}
	response, err := c.health.GetTarget(t.Context(), &pb.GetTargetRequest{Target: "fails"})
	if err != nil || !slices.Equal(response.GetTarget().GetStderrTail(), []string{"oops"}) {
		t.Errorf("%v, %v", response, err)
	}
}

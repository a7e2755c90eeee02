package server

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// deadURL refuses connections.
const deadURL = "http://127.0.0.1:1/mcp"

func TestHealthOfTheBridgeAndOfItsTargets(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{
		"up":   {server: shop(mcptest.Modern)},
		"down": {url: deadURL},
		"lazy": {url: deadURL, change: func(c *config.Target) { c.Lazy = true }},
	})
	lease, err := b.set.All()[2].Acquire(t.Context(), targets.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if err := lease.Client().Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect} {
		health := b.health(protocol)
		for service, want := range map[string]protoreflect.EnumNumber{
			"": healthServing, "mcpbridge.v1.ToolsService": healthServing, "grpc.health.v1.Health": healthServing,
			"target/up": healthServing, "target/down": healthNotServing, "target/lazy": healthServing,
		} {
			if got, err := health.check(t.Context(), service); err != nil || got != want {
				t.Errorf("%s: Check %q: %v, %v; want %v", protocol, service, got, err, want)
			}
		}
		for _, service := range []string{"target/other", "target/", "other.v1.Service"} {
			_, err := health.check(t.Context(), service)
			wantError(t, err, connect.CodeNotFound, reasonServiceNotFound, service, "target/NAME")
		}
	}
}

func TestHealthList(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"up": {server: shop(mcptest.Modern)}, "down": {url: deadURL}}).connected("up")
	health := b.health(overGRPC)
	out := dynamicpb.NewMessage(health.file.Messages().ByName("HealthListResponse"))
	in := dynamicpb.NewMessage(health.file.Messages().ByName("HealthListRequest"))
	if err := health.client.CallUnary(t.Context(), health.spec("List", connect.StreamTypeUnary), in, out); err != nil {
		t.Fatal(err)
	}
	got := map[string]protoreflect.EnumNumber{}
	out.Get(out.Descriptor().Fields().ByNumber(1)).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		message := value.Message()
		got[key.String()] = message.Get(message.Descriptor().Fields().ByNumber(1)).Enum()
		return true
	})
	for service, want := range map[string]protoreflect.EnumNumber{"": healthServing, "mcpbridge.v1.PromptsService": healthServing, "target/up": healthServing, "target/down": healthNotServing} {
		if got[service] != want {
			t.Errorf("%q: %v, want %v", service, got[service], want)
		}
	}
}

func TestHealthWatchFollowsATarget(t *testing.T) {
	gate := make(chan struct{})
	server := shop(mcptest.Modern)
	server.Discover = mcptest.After(gate, nil)
	b := one(t, server)
	next, err := b.health(overGRPC).watch(t.Context(), "target/shop")
	if err != nil {
		t.Fatal(err)
	}
	if status, err := next(); err != nil || status != healthNotServing {
		t.Fatalf("first status %v, %v; want NOT_SERVING while connecting", status, err)
	}
	close(gate)
	if status, err := next(); err != nil || status != healthServing {
		t.Fatalf("second status %v, %v; want SERVING once connected", status, err)
	}
}

func TestHealthWatchOfAnUnknownServiceStaysOpen(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	next, err := b.health(overGRPC).watch(t.Context(), "other.v1.Service")
	if err != nil {
		t.Fatal(err)
	}
	if status, err := next(); err != nil || status != healthServiceUnknown {
		t.Fatalf("got %v, %v; want SERVICE_UNKNOWN", status, err)
	}
}

// connected waits for one target.
func (b *bridge) connected(name string) *bridge {
	b.t.Helper()
	target, err := b.set.Get(name)
	if err != nil {
		b.t.Fatal(err)
	}
	lease, err := target.Acquire(b.t.Context(), targets.Caller{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer lease.Release()
	if err := lease.Client().Connect(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return b
}

func TestTargetsAreDescribed(t *testing.T) {
	server := shop(mcptest.Legacy)
	server.Name, server.Instructions = "acme", "be kind"
	b := start(t, Options{}, map[string]targetConfig{"down": {url: deadURL}, "up": {server: server}}).connected("up")
	client := mcpbridgev1connect.NewHealthServiceClient(b.client(overGRPC))
	down, err := b.set.Get("down")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := down.Acquire(t.Context(), targets.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Client().Connect(t.Context()); err == nil {
		t.Fatal("the dead target connected")
	}
	lease.Release()
	all, err := client.ListTargets(t.Context(), &pb.ListTargetsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, target := range all.GetTargets() {
		names = append(names, target.GetName())
	}
	if !slices.Equal(names, []string{"down", "up"}) {
		t.Fatalf("targets %v", names)
	}
	dead := all.GetTargets()[0]
	if dead.GetState() != pb.TargetState_TARGET_STATE_RECONNECTING && dead.GetState() != pb.TargetState_TARGET_STATE_CONNECTING {
		t.Errorf("state of the dead target: %v", dead.GetState())
	}
	if last := dead.GetLastError(); last.GetCode() != int32(connect.CodeUnavailable) || last.GetReason() != string(reasonTargetUnavailable) || last.GetMessage() == "" || last.GetTarget() != "down" {
		t.Errorf("last_error %v", last)
	}
	got, err := client.GetTarget(t.Context(), &pb.GetTargetRequest{Target: "up"})
	if err != nil {
		t.Fatal(err)
	}
	up := got.GetTarget()
	if up.GetState() != pb.TargetState_TARGET_STATE_READY || up.GetEra() != pb.Era_ERA_LEGACY || up.GetProtocolVersion() != "2025-11-25" ||
		up.GetServerInfo().GetName() != "acme" || up.GetInstructions() != "be kind" || up.GetTransport() != pb.Transport_TRANSPORT_STREAMABLE_HTTP ||
		up.GetCapabilities().GetFields()["tools"] == nil || up.GetPool().GetConnections() != 1 || up.GetLastError() != nil {
		t.Errorf("got %v", up)
	}
	if age := time.Since(up.GetSince().AsTime()); age < 0 || age > time.Minute {
		t.Errorf("since %v", up.GetSince().AsTime())
	}
	text, err := client.GetTarget(t.Context(), &pb.GetTargetRequest{Target: "up", JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT})
	if err != nil || text.GetTarget().GetCapabilities() != nil || !strings.Contains(text.GetTarget().GetCapabilitiesJson(), `"tools"`) {
		t.Errorf("as text: %v, %v", text, err)
	}
	_, err = client.GetTarget(t.Context(), &pb.GetTargetRequest{Target: "other"})
	wantError(t, err, connect.CodeNotFound, reasonTargetNotFound, `"other"`)
	_, err = client.GetTarget(t.Context(), &pb.GetTargetRequest{})
	wantError(t, err, connect.CodeInvalidArgument, reasonTargetRequired, "target")
	res, _ := get(t, b.url+"/mcpbridge.v1.HealthService/ListTargets?encoding=json&message=%7B%7D")
	if res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("GET: %s, Cache-Control %q, want 200 and no-store", res.Status, res.Header.Get("Cache-Control"))
	}
}

func TestASuspectTargetStillServes(t *testing.T) {
	if got := targetState(pool.StateSuspect); got != pb.TargetState_TARGET_STATE_SUSPECT {
		t.Errorf("state %v", got)
	}
	if !callable(pool.StateSuspect) || callable(pool.StateReconnecting) {
		t.Errorf("suspect is callable: %v, reconnecting: %v", callable(pool.StateSuspect), callable(pool.StateReconnecting))
	}
}

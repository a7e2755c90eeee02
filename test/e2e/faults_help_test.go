package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// fake serves a script on a real socket and configures it as a target.
func fake(t *testing.T, s *mcptest.Server) target {
	t.Helper()
	return target{"url": mcptest.StartHTTP(t, s)}
}

// fakeBehind is fake with a handler of the test's own before it. It counts the TCP connections.
func fakeBehind(t *testing.T, s *mcptest.Server, wrap func(http.Handler) http.Handler) (target, *atomic.Int64) {
	t.Helper()
	var connections atomic.Int64
	ts := httptest.NewUnstartedServer(wrap(s))
	ts.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	ts.Start()
	mcptest.Check(t, s)
	t.Cleanup(func() {
		s.Close() // first, since ts.Close waits for open exchanges
		ts.Close()
	})
	return target{"url": ts.URL + "/mcp"}, &connections
}

func bare(h http.Handler) http.Handler { return h }

// faultScripts are the servers that run as children of the bridge; TestMain serves them.
var faultScripts = map[string]func() *mcptest.Server{
	"counter":          counting,
	"gated":            func() *mcptest.Server { return gated(mcptest.Modern) },
	"gated-legacy":     func() *mcptest.Server { return gated(mcptest.Legacy) },
	"late":             func() *mcptest.Server { return late(mcptest.Modern) },
	"late-legacy":      func() *mcptest.Server { return late(mcptest.Legacy) },
	"process":          ownPID,
	"silent":           func() *mcptest.Server { return silent(mcptest.Legacy) },
	"slow":             func() *mcptest.Server { return slowTools(mcptest.Modern) },
	"stubborn":         stubborn,
	"traceable":        func() *mcptest.Server { return traceable(mcptest.Modern) },
	"traceable-legacy": func() *mcptest.Server { return traceable(mcptest.Legacy) },
	"inquiring":        func() *mcptest.Server { return inquiring(mcptest.Modern) },
	"inquiring-legacy": func() *mcptest.Server { return inquiring(mcptest.Legacy) },
	"talking":          func() *mcptest.Server { return talking(mcptest.Modern) },
	"talking-legacy":   func() *mcptest.Server { return talking(mcptest.Legacy) },
	"deaf":             deaf,
	"floods":           floods,
	"again":            again,
	"foreign":          foreign,
}

// fakeChild configures a script as a child of the bridge.
func fakeChild(t *testing.T, script string) (target, *mcptest.Child) {
	t.Helper()
	if faultScripts[script] == nil {
		t.Fatalf("there is no script %q", script)
	}
	child := mcptest.StartChild(t, script)
	return target{"command": []string{child.Path}}.with(child.Env...), child
}

// echoTool returns its arguments.
func echoTool() mcptest.Tool { return mcptest.Tool{Name: "echo", Call: mcptest.Echo()} }

// ownPID tells which process it is.
func ownPID() *mcptest.Server {
	return &mcptest.Server{Tools: []mcptest.Tool{{Name: "pid", Call: mcptest.Respond(mcptest.Text(strconv.Itoa(os.Getpid())))}}}
}

// stubs are the grpc-go clients of one connection.
type stubs struct {
	tools      mcpbridgegrpc.ToolsServiceClient
	resources  mcpbridgegrpc.ResourcesServiceClient
	prompts    mcpbridgegrpc.PromptsServiceClient
	completion mcpbridgegrpc.CompletionServiceClient
	targets    mcpbridgegrpc.HealthServiceClient
	health     healthpb.HealthClient
}

func (b *bridge) stubs(t *testing.T) stubs {
	t.Helper()
	conn := b.grpc(t)
	return stubs{
		tools: mcpbridgegrpc.NewToolsServiceClient(conn), resources: mcpbridgegrpc.NewResourcesServiceClient(conn),
		prompts: mcpbridgegrpc.NewPromptsServiceClient(conn), completion: mcpbridgegrpc.NewCompletionServiceClient(conn),
		targets: mcpbridgegrpc.NewHealthServiceClient(conn), health: healthpb.NewHealthClient(conn),
	}
}

// call calls a tool whose outcome is a text or an error. Arguments are JSON.
func (s stubs) call(ctx context.Context, target, tool, arguments string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	response, err := s.tools.CallTool(ctx, &pb.CallToolRequest{Target: target, Name: tool, ArgumentsJson: &arguments})
	if err != nil {
		return "", err
	}
	content := response.GetResult().GetContent()
	if len(content) == 0 || response.GetResult().GetIsError() {
		return "", fmt.Errorf("%s returned %v", tool, response)
	}
	return content[0].GetText().GetText(), nil
}

// must is call without an error.
func (s stubs) must(t *testing.T, target, tool, arguments string) string {
	t.Helper()
	text, err := s.call(t.Context(), target, tool, arguments)
	if err != nil {
		t.Fatalf("%s of %s: %s", tool, target, explain(err))
	}
	return text
}

// target tells how a target is.
func (s stubs) target(t *testing.T, name string) *pb.Target {
	t.Helper()
	response, err := s.targets.GetTarget(t.Context(), &pb.GetTargetRequest{Target: name})
	if err != nil {
		t.Fatal(explain(err))
	}
	return response.GetTarget()
}

// watch follows the health of a target; the channel closes when that ends.
func (s stubs) watch(t *testing.T, name string) <-chan healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := s.health.Watch(ctx, &healthpb.HealthCheckRequest{Service: "target/" + name})
	if err != nil {
		t.Fatal(explain(err))
	}
	states := make(chan healthpb.HealthCheckResponse_ServingStatus, 100)
	go func() { // until the test ends
		defer close(states)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			states <- response.GetStatus()
		}
	}()
	return states
}

// wantState checks the next state of a watched target.
func wantState(t *testing.T, states <-chan healthpb.HealthCheckResponse_ServingStatus, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	select {
	case got, ok := <-states:
		if !ok || got != want {
			t.Fatalf("the watched health became %v, want %v", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("the watched health did not become %v", want)
	}
}

// explain shows an error of grpc-go with its details.
func explain(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprint(err, status.Convert(err).Details())
}

// wantReason checks code and reason of an error of grpc-go.
func wantReason(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	if problem := otherThan(err, code, reason); problem != "" {
		t.Errorf("%s, want %v %s", problem, code, reason)
	}
}

// otherThan returns "" for an error of this code and reason, else what it is.
func otherThan(err error, code codes.Code, reason string) string {
	s := status.Convert(err)
	if s.Code() == code {
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == reason {
				return ""
			}
		}
	}
	return explain(err)
}

// affine sets the key by which calls of targets with isolation per_key are kept apart.
func affine(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "mcp-bridge-affinity", key)
}

// perKey gives each affinity key connections of its own, at most so many in all.
func (c target) perKey(connections int) target {
	c["pool"] = map[string]any{"isolation": "per_key", "max_connections": connections}
	return c
}

// quick makes a target try again soon.
func (c target) quick() target {
	c["reconnect"] = map[string]string{"interval": "100ms", "max_interval": "1s"}
	return c
}

// each runs f for every one of n at the same time and waits for them. f must not end the test.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// arrived waits until a method reached the server n times.
func arrived(t *testing.T, log *mcptest.Log, method string, n int) mcptest.Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	entry, err := log.WaitFor(ctx, method, n)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// wantCount checks how often a method reached the server.
func wantCount(t *testing.T, log *mcptest.Log, method string, want int) {
	t.Helper()
	if got := log.Count(method); got != want {
		t.Errorf("%s reached the server %d times, want %d; it got %q", method, got, want, log.Methods())
	}
}

// member returns one member of a JSON object, nil when it is absent.
func member(raw json.RawMessage, name string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return object[name]
}

// median of an odd number of values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
)

// bridge is a running bridge.
type bridge struct {
	*process
	addr     string // 127.0.0.1:PORT
	grpcAddr string // the same, where the tests' gRPC clients connect; see grpcListener
}

// grpcListener is "grpc" when gRPC clients are to connect to the listener that is for gRPC alone (listen.grpc), not to
// the one that serves every protocol.
var grpcListener = os.Getenv("BRIDGE_LISTENER")

// address finds where the bridge listens in what it prints.
var address = regexp.MustCompile(`listens on http://(127\.0\.0\.1:[0-9]+)(?:, and for gRPC alone on (127\.0\.0\.1:[0-9]+))?`)

// serve starts a bridge with these targets and waits until it listens. Options change the configuration or the
// environment.
func serve(t *testing.T, targets map[string]target, options ...func(config map[string]any, cmd *exec.Cmd)) *bridge {
	t.Helper()
	config := map[string]any{"targets": targets, "log": map[string]any{"level": "debug"}}
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	cmd := exec.Command(bridgeBinary, "serve", "--config", file, "--listen", "127.0.0.1:0")
	cmd.Env = cleanEnv()
	for _, option := range options {
		option(config, cmd)
	}
	if grpcListener == "grpc" {
		where, _ := config["listen"].(map[string]any)
		if where == nil {
			where = map[string]any{}
		}
		where["grpc"], config["listen"] = map[string]any{"address": "127.0.0.1:0"}, where
	}
	raw, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return listen(t, cmd)
}

// demo starts the bridge on its built-in target.
func demo(t *testing.T) *bridge {
	t.Helper()
	cmd := exec.Command(bridgeBinary, "serve", "--demo", "--listen", "127.0.0.1:0")
	cmd.Env = cleanEnv()
	return listen(t, cmd)
}

func listen(t *testing.T, cmd *exec.Cmd) *bridge {
	t.Helper()
	p := start(t, "bridge", cmd)
	t.Cleanup(func() {
		p.stop(t) // before the servers behind it
		if out := p.out.String(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic: ") {
			t.Error("the bridge has a data race or panicked; see its output")
		}
	})
	printed := p.waitOutput(t, address)
	return &bridge{process: p, addr: printed[1], grpcAddr: cmp.Or(printed[2], printed[1])}
}

// at is where clients of a protocol connect: grpc, or another one.
func (b *bridge) at(protocol string) string {
	if protocol == "grpc" {
		return b.grpcAddr
	}
	return b.addr
}

// environment adds variables to the bridge's environment.
func environment(variables ...string) func(map[string]any, *exec.Cmd) {
	return func(_ map[string]any, cmd *exec.Cmd) { cmd.Env = append(cmd.Env, variables...) }
}

// cleanEnv is the environment without OTEL settings of the machine. A program with the race detector ends at once.
func cleanEnv() []string {
	env := []string{"GORACE=atexit_sleep_ms=0"}
	otel := regexp.MustCompile(`^OTEL_`)
	for _, variable := range os.Environ() {
		if !otel.MatchString(variable) {
			env = append(env, variable)
		}
	}
	return env
}

// clients are the generated clients over one transport.
type clients struct {
	tools      mcpbridgev1connect.ToolsServiceClient
	resources  mcpbridgev1connect.ResourcesServiceClient
	prompts    mcpbridgev1connect.PromptsServiceClient
	completion mcpbridgev1connect.CompletionServiceClient
	health     mcpbridgev1connect.HealthServiceClient
	tasks      mcpbridgev1connect.TasksServiceClient
}

// clients calls the bridge over cleartext HTTP/2; gRPC unless options say otherwise.
func (b *bridge) clients(t *testing.T, options ...connecthttp.Option) clients {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	if len(options) == 0 {
		return clientsOver(transport, b.grpcAddr, connecthttp.WithGRPC())
	}
	return clientsOver(transport, b.addr, options...)
}

// clientsOver calls the bridge at an address by way of an HTTP transport.
func clientsOver(transport *http.Transport, address string, options ...connecthttp.Option) clients {
	options = append(options, connecthttp.WithReadMaxBytes(64<<20))
	client := connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, "http://"+address, options...))
	return clients{
		tools:      mcpbridgev1connect.NewToolsServiceClient(client),
		resources:  mcpbridgev1connect.NewResourcesServiceClient(client),
		prompts:    mcpbridgev1connect.NewPromptsServiceClient(client),
		completion: mcpbridgev1connect.NewCompletionServiceClient(client),
		health:     mcpbridgev1connect.NewHealthServiceClient(client),
		tasks:      mcpbridgev1connect.NewTasksServiceClient(client),
	}
}

// grpc dials the bridge with grpc-go.
func (b *bridge) grpc(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+b.grpcAddr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// result calls a tool whose outcome must be a result.
func (c clients) result(t *testing.T, request *pb.CallToolRequest) *pb.ToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := c.tools.CallTool(ctx, request)
	if err != nil {
		t.Fatalf("CallTool %s: %v", request.GetName(), describe(err))
	}
	if response.GetResult() == nil {
		t.Fatalf("CallTool %s: outcome %T, want a result", request.GetName(), response.GetOutcome())
	}
	return response.GetResult()
}

// wantError checks code and reason of an error and returns it with its ErrorInfo.
func wantError(t *testing.T, err error, code connect.Code, reason string) (*connect.Error, *errdetails.ErrorInfo) {
	t.Helper()
	got := asConnect(err)
	if got == nil {
		t.Fatalf("error %v, want %v %s", err, code, reason)
	}
	info := detail[*errdetails.ErrorInfo](t, got)
	if got.Code() != code || info.GetReason() != reason || info.GetDomain() != "mcpbridge" {
		t.Fatalf("error %s, want %v %s of mcpbridge", describe(err), code, reason)
	}
	return got, info
}

// detail returns the detail of one type, nil if there is none.
func detail[T any](t *testing.T, err *connect.Error) (found T) {
	t.Helper()
	for _, d := range err.Details() {
		message, decodeErr := connectproto.UnmarshalErrorDetail(d)
		if decodeErr != nil {
			t.Fatalf("error detail: %v", decodeErr)
		}
		if match, ok := message.(T); ok {
			found = match
		}
	}
	return found
}

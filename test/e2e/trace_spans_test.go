package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// onceFile names the file that a child makes before it ends under its first resources/read.
const onceFile = "TRACE_ONCE_FILE"

// traceable is a server for everything that a trace can show. Its first resources/read ends in a broken connection, over
// stdio with the process.
func traceable(era mcptest.Era) *mcptest.Server {
	var broken atomic.Bool
	read := func(ctx context.Context, r *mcptest.Request) (any, error) {
		if path := os.Getenv(onceFile); path != "" {
			if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				f.Close()
				return mcptest.Exit(1)(ctx, r)
			}
		} else if !broken.Swap(true) {
			return nil, mcptest.ErrHangup
		}
		return mcptest.Raw(`{"contents":[{"uri":"demo://a","text":"A"}]}`), nil
	}
	return &mcptest.Server{
		Era: era, TTLMs: 60_000,
		Tools: []mcptest.Tool{
			echoTool(),
			{Name: "fail", Call: mcptest.Respond(mcptest.Raw(`{"content":[{"type":"text","text":"no"}],"isError":true}`))},
			{Name: "refuse", Call: mcptest.Fail(-32000, "not today", nil, 0)},
			{Name: "stuck", Call: mcptest.Silence()},
			{Name: "late", Call: mcptest.Silence()}, // for which carriers sets a timeout
			{Name: "ask", Call: mcptest.Rounds(mcptest.Respond(mcptest.Text("done")), mcptest.Round{Requests: oneQuestion, State: `"s"`})},
		},
		Resources: []mcptest.Resource{{URI: "demo://a", Name: "a", Text: "A"}},
		Handle:    map[string]mcptest.Handler{"resources/read": read},
	}
}

// carriers are the targets of the tests, with what reached them.
func carriers(t *testing.T) (map[string]target, map[string]*mcptest.Log) {
	t.Helper()
	modernHTTP, legacyHTTP := traceable(mcptest.Modern), traceable(mcptest.Legacy)
	modernChild, modernLog := fakeChild(t, "traceable")
	legacyChild, legacyLog := fakeChild(t, "traceable-legacy")
	targets := map[string]target{
		"http-modern": fake(t, modernHTTP), "http-legacy": fake(t, legacyHTTP),
		"stdio-modern": modernChild, "stdio-legacy": legacyChild,
	}
	for name, c := range targets {
		if env, ok := c["env"].(map[string]string); ok {
			env[onceFile] = filepath.Join(t.TempDir(), name)
		}
		c.quick()["timeouts"] = map[string]any{"tools": map[string]string{"late": "300ms"}}
	}
	return targets, map[string]*mcptest.Log{
		"http-modern": &modernHTTP.Log, "http-legacy": &legacyHTTP.Log,
		"stdio-modern": &modernLog.Log, "stdio-legacy": &legacyLog.Log,
	}
}

var callers atomic.Int64

// asCaller returns a context with a trace of its own, and the trace's id.
func asCaller(t *testing.T) (context.Context, string) {
	t.Helper()
	id := fmt.Sprintf("%030x%02x", time.Now().UnixNano(), callers.Add(1)&0xff)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+id+"-"+callerSpan+"-01", "baggage", callerBaggage)
	return ctx, id
}

const (
	callRPC = "mcpbridge.v1.ToolsService/CallTool server"
	readRPC = "mcpbridge.v1.ResourcesService/ReadResource server"
)

func TestEveryKindOfCallIsOneTrace(t *testing.T) {
	everyKindOfCallIsOneTrace(t, collect(t))
}

func everyKindOfCallIsOneTrace(t *testing.T, to tracer) {
	targets, logs := carriers(t)
	s := serve(t, targets, environment(to.environment()...)).stubs(t)
	for name, log := range logs {
		t.Run(name, func(t *testing.T) {
			cancels := name != "http-modern" // there the closed stream says it
			s.must(t, name, "echo", "{}")
			if _, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: name}); err != nil { // now they are known
				t.Fatal(explain(err))
			}

			t.Run("success", func(t *testing.T) {
				ctx, id := asCaller(t)
				if _, err := s.call(ctx, name, "echo", `{"n":1}`); err != nil {
					t.Fatal(explain(err))
				}
				spans := wantTree(t, to, id, callRPC, "  tools/call echo client")
				calls := log.Entries("tools/call")
				meta := calls[len(calls)-1].Meta
				var parent, baggage string
				if json.Unmarshal(meta("traceparent"), &parent) != nil || parent != "00-"+id+"-"+spans[1].id+"-01" {
					t.Errorf("the server's traceparent is %s, want that of span %s", parent, spans[1].id)
				}
				if json.Unmarshal(meta("baggage"), &baggage) != nil || !strings.Contains(baggage, "tenant=acme") {
					t.Errorf("the server's baggage is %s, want that of the caller", baggage)
				}
				if spans[0].parent != callerSpan || spans[0].tags["mcpbridge.target"] != name || spans[1].tags["mcpbridge.target"] != name || spans[1].tags["gen_ai.tool.name"] != "echo" {
					t.Errorf("spans %+v", spans)
				}
			})
			t.Run("tool error", func(t *testing.T) {
				ctx, id := asCaller(t)
				if _, err := s.call(ctx, name, "fail", "{}"); err == nil {
					t.Error("the tool did not fail")
				}
				wantTree(t, to, id, callRPC, "  tools/call fail client error=tool_error FAILED")
			})
			t.Run("server error", func(t *testing.T) {
				ctx, id := asCaller(t)
				_, err := s.call(ctx, name, "refuse", "{}")
				wantReason(t, err, codes.Unknown, "MCP_ERROR")
				spans := wantTree(t, to, id, callRPC+" error=UNKNOWN FAILED", "  tools/call refuse client error=-32000 FAILED")
				if spans[1].description != "not today" || spans[1].tags["rpc.response.status_code"] != "-32000" {
					t.Errorf("span %+v", spans[1])
				}
			})
			t.Run("cancelled", func(t *testing.T) {
				ctx, id := asCaller(t)
				ctx, cancel := context.WithCancel(ctx)
				seen := log.Count("tools/call")
				failed := make(chan error, 1)
				go func() {
					_, err := s.call(ctx, name, "stuck", "{}")
					failed <- err
				}()
				arrived(t, log, "tools/call", seen+1)
				cancel()
				if err := <-failed; status.Code(err) != codes.Canceled {
					t.Errorf("error %s", explain(err))
				}
				want := []string{callRPC + " error=CANCELED", "  tools/call stuck client error=canceled FAILED"}
				if cancels {
					want = append(want, "    notifications/cancelled client")
				}
				wantTree(t, to, id, want...)
			})
			t.Run("timed out", func(t *testing.T) {
				ctx, id := asCaller(t)
				if _, err := s.call(ctx, name, "late", "{}"); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("error %s", explain(err))
				}
				want := []string{callRPC + " error=DEADLINE_EXCEEDED FAILED", "  tools/call late client error=timeout FAILED"}
				if cancels {
					want = append(want, "    notifications/cancelled client")
				}
				wantTree(t, to, id, want...)
			})
			t.Run("retried", func(t *testing.T) {
				ctx, id := asCaller(t)
				if _, err := s.resources.ReadResource(ctx, &pb.ReadResourceRequest{Target: name, Uri: "demo://a"}); err != nil {
					t.Fatal(explain(err))
				}
				want := []string{readRPC, "  resources/read client error=lost FAILED"}
				if strings.HasPrefix(name, "stdio") { // the process is gone
					want = append(want, "  wait for connection internal after another trace")
				}
				want = append(want, "  resources/read client after line 2")
				spans := wantTree(t, to, id, want...)
				if reads := named(spans, "resources/read"); reads[1].tags["mcpbridge.attempt"] != "2" || reads[1].tags["mcp.resource.uri"] != "demo://a" {
					t.Errorf("the second attempt is %+v", reads[1])
				}
			})
			if strings.HasSuffix(name, "modern") {
				t.Run("continued", func(t *testing.T) {
					ctx, id := asCaller(t)
					call := &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()}
					response, err := s.tools.CallTool(ctx, call)
					answerTo(t, call, response, err)
					later, another := asCaller(t)
					if response, err := s.tools.CallTool(later, call); err != nil || response.GetResult() == nil {
						t.Fatalf("%v, %s", response, explain(err))
					}
					first := wantTree(t, to, id, callRPC, "  tools/call ask client")
					second := wantTree(t, to, another, callRPC, "  tools/call ask client after another trace")
					if links := second[1].links; len(links) != 1 || links[0] != first[1].id {
						t.Errorf("it is linked to %v, want %s", links, first[1].id)
					}
				})
			}
		})
	}
}

func TestConnectingQueueingAndUnknownProceduresAreTraced(t *testing.T) {
	connectingQueueingAndUnknownProceduresAreTraced(t, collect(t))
}

func connectingQueueingAndUnknownProceduresAreTraced(t *testing.T, to tracer) {
	gate := make(chan struct{})
	server := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{echoTool(), {Name: "gated", Call: mcptest.After(gate, mcptest.Echo())}}}
	c := fake(t, server)
	c["pool"] = map[string]any{"max_in_flight": 1}
	b := serve(t, map[string]target{"one": c}, environment(to.environment()...))
	s := b.stubs(t)
	s.must(t, "one", "echo", "{}")

	var connects []string
	eventually(t, "the trace of the connection", func() string {
		if connects = to.traces(t, "connect"); len(connects) != 1 {
			return fmt.Sprint("traces ", connects)
		}
		return ""
	})
	spans := wantTree(t, to, connects[0],
		"connect internal",
		"  server/discover client error=-32000 FAILED",
		"  initialize client",
		"  notifications/initialized client")
	if spans[0].tags["mcpbridge.target"] != "one" || spans[0].tags["mcp.protocol.version"] != legacy {
		t.Errorf("the attempt is %+v", spans[0])
	}

	ctx, first := asCaller(t)
	ended := make(chan error, 2)
	go func() { _, err := s.call(ctx, "one", "gated", "{}"); ended <- err }()
	arrived(t, &server.Log, "tools/call", 2)
	ctx, second := asCaller(t)
	go func() { _, err := s.call(ctx, "one", "echo", "{}"); ended <- err }()
	eventually(t, "a queued call", func() string {
		if queued := s.target(t, "one").GetPool().GetQueued(); queued != 1 {
			return fmt.Sprint(queued, " calls are queued")
		}
		return ""
	})
	close(gate)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(explain(err))
		}
	}
	wantTree(t, to, first, callRPC, "  tools/call gated client")
	wantTree(t, to, second, callRPC, "  wait for lease internal", "  tools/call echo client")

	server.ExpireSessions()
	ctx, third := asCaller(t)
	if _, err := s.call(ctx, "one", "echo", "{}"); err != nil {
		t.Error(explain(err))
	}
	spans = wantTree(t, to, third, callRPC, "  tools/call echo client error=unavailable FAILED", "  wait for connection internal after another trace", "  tools/call echo client after line 2")
	reconnects := to.traces(t, "reconnect")
	if len(reconnects) != 1 {
		t.Fatalf("the traces of reconnections are %v, want one", reconnects)
	}
	attempt := named(to.trace(t, reconnects[0]), "reconnect")[0]
	if wait := named(spans, "wait for connection")[0]; wait.links[0] != attempt.id {
		t.Errorf("the wait is linked to %v, want %s", wait.links, attempt.id)
	}

	ctx, unknown := asCaller(t)
	err := b.grpc(t).Invoke(ctx, "/shop.v1.Shop/Name-of-the-caller", &pb.ListToolsRequest{}, &pb.ListToolsResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Error(explain(err))
	}
	spans = wantTree(t, to, unknown, "_OTHER server error=UNIMPLEMENTED FAILED")
	if spans[0].parent != callerSpan || spans[0].tags["rpc.method"] != "_OTHER" {
		t.Errorf("the span is %+v", spans[0])
	}
}

func TestBaggageReachesTargetsByTheirPolicy(t *testing.T) {
	policies := map[string]map[string]any{"all": nil, "none": {"policy": "drop"}, "some": {"policy": "allow", "keys": []string{"tenant"}}}
	want := map[string]string{"all": callerBaggage, "none": "", "some": "tenant=acme"}
	for mode, options := range map[string][]string{"traced": collect(t).environment(), "passed on": nil} {
		targets, logs := map[string]target{}, map[string]*mcptest.Log{}
		for name, policy := range policies {
			server := traceable(mcptest.Modern)
			targets[name], logs[name] = fake(t, server), &server.Log
			if policy != nil {
				targets[name]["baggage"] = policy
			}
		}
		s := serve(t, targets, environment(options...)).stubs(t)
		for name, log := range logs {
			t.Run(mode+" "+name, func(t *testing.T) {
				ctx, _ := asCaller(t)
				if _, err := s.call(ctx, name, "echo", "{}"); err != nil {
					t.Fatal(explain(err))
				}
				call := log.Entries("tools/call")[0]
				var inMeta string
				if raw := call.Meta("baggage"); raw != nil && json.Unmarshal(raw, &inMeta) != nil {
					t.Errorf("_meta.baggage is %s", raw)
				}
				for where, got := range map[string]string{"_meta": inMeta, "the header": call.Header.Get("Baggage")} {
					if !sameMembers(got, want[name]) {
						t.Errorf("the baggage in %s is %q, want %q", where, got, want[name])
					}
				}
			})
		}
	}
}

func TestWithoutTrustEachCallIsATraceOfItsOwn(t *testing.T) {
	server := traceable(mcptest.Modern)
	to := collect(t)
	distrust := func(config map[string]any, _ *exec.Cmd) { config["telemetry"] = map[string]any{"trust_remote": false} }
	s := serve(t, map[string]target{"one": fake(t, server)}, environment(to.environment()...), distrust).stubs(t)
	s.must(t, "one", "echo", "{}")
	ctx, callers := asCaller(t)
	var header metadata.MD
	if _, err := s.tools.CallTool(ctx, &pb.CallToolRequest{Target: "one", Name: "echo"}, grpc.Header(&header)); err != nil {
		t.Fatal(explain(err))
	}
	own := strings.Join(header.Get("mcp-bridge-trace-id"), " ")
	if own == callers || len(own) != 32 {
		t.Fatalf("the call is in trace %q, that of the caller is %s", own, callers)
	}
	spans := wantTree(t, to, own, callRPC+" after another trace", "  tools/call echo client")
	if spans[0].links[0] != callerSpan {
		t.Errorf("it is linked to %v, want the caller", spans[0].links)
	}
}

func TestAllThatIsConfiguredAboutTracesIsSaidAtTheStart(t *testing.T) {
	to := collect(t)
	for want, options := range map[string][]string{
		`msg="traces are not exported" reason="no exporter is configured; set OTEL_EXPORTER_OTLP_ENDPOINT`: nil,
		`msg="traces are exported" collector=` + strings.TrimPrefix(to.url, "http://"):                     to.environment(),
	} {
		b := serve(t, map[string]target{"one": fake(t, traceable(mcptest.Modern))}, environment(options...))
		if n := strings.Count(b.out.String(), want); n != 1 {
			t.Errorf("the log says %d times %q:\n%s", n, want, b.out.String())
		}
	}
}

func TestACollectorThatIsDownCostsSpansOnly(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			dead := freeAddress(t)
			b := serve(t, map[string]target{"one": fake(t, traceable(mcptest.Modern))}, environment(
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+dead, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol,
				"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_BSP_MAX_QUEUE_SIZE=16",
			))
			s := b.stubs(t)
			each(8, func(int) {
				for range 20 {
					if _, err := s.call(t.Context(), "one", "echo", "{}"); err != nil {
						t.Errorf("a call failed: %s", explain(err))
						return
					}
				}
			})
			began := time.Now()
			b.stop(t)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the bridge took %v to end", took)
			}
			out := b.out.String()
			if !strings.Contains(out, "dropped_spans=") || !strings.Contains(out, "trace export failed") {
				t.Errorf("the log does not say that spans were lost:\n%s", tail(out, 4000))
			}
			for _, text := range []string{"dropped_spans=", "trace export failed"} {
				if n := strings.Count(out, text); n > 2 { // one while it runs, one at the end
					t.Errorf("the log says %d times %q", n, text)
				}
			}
		})
	}
}

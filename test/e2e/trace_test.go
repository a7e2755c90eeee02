package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

const (
	callerTrace   = "0af7651916cd43dd8448eb211c80319c"
	callerSpan    = "b7ad6b7169203331"
	callerParent  = "00-" + callerTrace + "-" + callerSpan + "-01"
	callerState   = "vendor=value,other=2"
	callerBaggage = "tenant=acme,user=Ada%20L"
)

// traced are the servers that show the _meta they got, by target name. The value says whether they see HTTP headers.
func traced(t *testing.T) (map[string]target, map[string]bool) {
	t.Helper()
	first := func(config target, _ events) target { return config }
	targets := map[string]target{
		"go-http-modern":  first(gosdkHTTP(t, "-stateless")),
		"go-http-legacy":  first(gosdkHTTP(t)),
		"go-stdio-modern": first(gosdkStdio(t)),
		"go-stdio-legacy": first(gosdkStdio(t)).pin(legacy),
	}
	if hasPython(t) {
		targets["py-http-modern"] = first(pythonHTTP(t))
		targets["py-http-legacy"] = first(pythonHTTP(t)).pin(legacy)
		targets["py-stdio-modern"] = first(pythonStdio(t))
		targets["py-stdio-legacy"] = first(pythonStdio(t)).pin(legacy)
	}
	overHTTP := map[string]bool{}
	for name, config := range targets {
		overHTTP[name] = config["url"] != nil
	}
	return targets, overHTTP
}

// seen is what the tool meta of the fixtures returns.
type seen struct {
	Meta   map[string]any `json:"meta"`
	Header http.Header    `json:"header"`
}

// callMeta calls the tool meta as a caller that has a trace.
func callMeta(t *testing.T, tools mcpbridgegrpc.ToolsServiceClient, target string) seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", callerParent, "tracestate", callerState, "baggage", callerBaggage)
	response, err := tools.CallTool(ctx, &pb.CallToolRequest{Target: target, Name: "meta"})
	if err != nil {
		t.Fatal(err)
	}
	var got seen
	if err := json.Unmarshal([]byte(firstText(t, response.GetResult())), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// wantBaggage checks the members of the caller's baggage. Their order means nothing.
func wantBaggage(t *testing.T, got seen) {
	t.Helper()
	baggage, _ := got.Meta["baggage"].(string)
	if !sameMembers(baggage, callerBaggage) {
		t.Errorf("_meta.baggage is %q, want the members of %q", baggage, callerBaggage)
	}
}

func sameMembers(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.SplitSeq(a, ",")), slices.Sorted(strings.SplitSeq(b, ",")))
}

func TestWithoutTelemetryTheCallersTraceReachesTheServerUnchanged(t *testing.T) {
	targets, overHTTP := traced(t)
	tools := mcpbridgegrpc.NewToolsServiceClient(serve(t, targets).grpc(t))
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			got := callMeta(t, tools, name)
			want := map[string]string{"traceparent": callerParent, "tracestate": callerState}
			for key, value := range want {
				if got.Meta[key] != value {
					t.Errorf("_meta.%s is %v, want %s", key, got.Meta[key], value)
				}
			}
			wantBaggage(t, got)
			if header := got.Header.Get("Traceparent"); overHTTP[name] && header != callerParent {
				t.Errorf("traceparent header is %q, want %q", header, callerParent)
			}
			for key := range got.Meta {
				if !strings.Contains(key, "/") && want[key] == "" && key != "baggage" && key != "progressToken" {
					t.Errorf("_meta has the key %q that nobody sent", key)
				}
			}
		})
	}
}

var traceparent = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

func TestWithTelemetryTheServerIsInTheCallersTraceBelowTheBridgesSpan(t *testing.T) {
	targets, overHTTP := traced(t)
	spans := collect(t)
	b := serve(t, targets, environment(spans.environment()...))
	tools := mcpbridgegrpc.NewToolsServiceClient(b.grpc(t))
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			got := callMeta(t, tools, name)
			parent, _ := got.Meta["traceparent"].(string)
			match := traceparent.FindStringSubmatch(parent)
			if match == nil || match[1] != callerTrace || match[2] == callerSpan || match[3] != "01" {
				t.Fatalf("_meta.traceparent is %q, want trace %s, another span than %s, sampled", parent, callerTrace, callerSpan)
			}
			if got.Meta["tracestate"] != callerState {
				t.Errorf("_meta.tracestate is %v, want %s", got.Meta["tracestate"], callerState)
			}
			wantBaggage(t, got)
			if header := traceparent.FindStringSubmatch(got.Header.Get("Traceparent")); overHTTP[name] && (header == nil || header[1] != callerTrace) {
				t.Errorf("traceparent header is %q, want trace %s", got.Header.Get("Traceparent"), callerTrace)
			}
			eventually(t, "spans of the bridge", func() string {
				client, ok := spans.find(match[2])
				if !ok {
					return "span " + match[2] + ", which the server saw, was not exported"
				}
				server, ok := spans.find(client.parent)
				if !ok {
					return "the parent of " + client.name + " was not exported"
				}
				if client.name != "tools/call meta" || server.parent != callerSpan {
					return fmt.Sprintf("chain is caller %s, %s, %s", server.parent, server.name, client.name)
				}
				return ""
			})
		})
	}
}

func TestThousandTracedCallsShareOneConnection(t *testing.T) {
	const calls, workers = 1000, 16
	for name, start := range map[string]func(t *testing.T) (target, events){
		"HTTP modern":                   func(t *testing.T) (target, events) { return gosdkHTTP(t, "-stateless") },
		"HTTP modern with JSON replies": func(t *testing.T) (target, events) { return gosdkHTTP(t, "-stateless", "-json") },
		"HTTP legacy":                   func(t *testing.T) (target, events) { return gosdkHTTP(t) },
		"stdio modern":                  gosdkStdio,
		"stdio legacy":                  func(t *testing.T) (target, events) { c, e := gosdkStdio(t); return c.pin(legacy), e },
	} {
		t.Run(name, func(t *testing.T) {
			config, log := start(t)
			b := serve(t, map[string]target{"one": config}, environment(collect(t).environment()...))
			tools := mcpbridgegrpc.NewToolsServiceClient(b.grpc(t))
			var workersDone sync.WaitGroup
			for worker := range workers {
				workersDone.Go(func() {
					for i := worker; i < calls; i += workers {
						ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", fmt.Sprintf("00-%032x-%016x-01", i+1, i+1))
						text := fmt.Sprint("call ", i)
						response, err := tools.CallTool(ctx, &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"text":"` + text + `"}`)})
						if content := response.GetResult().GetContent(); err != nil || len(content) != 1 || content[0].GetText().GetText() != text {
							t.Errorf("call %d: %v, %v", i, response, err)
							return
						}
					}
				})
			}
			workersDone.Wait()

			traces, spans, sessions := map[string]bool{}, map[string]bool{}, map[string]bool{}
			handshakes, connections, processes := 0, 0, 0
			for _, e := range log.all(t) {
				switch {
				case e.Method == "tools/call":
					parent, _ := e.Meta["traceparent"].(string)
					if match := traceparent.FindStringSubmatch(parent); match != nil {
						traces[match[1]], spans[match[2]] = true, true
					}
					sessions[e.Session] = true
				case e.Method == "initialize" || e.Method == "server/discover":
					handshakes++
				case e.Kind == "connection":
					connections++
				case e.Kind == "start":
					processes++
				}
			}
			if len(traces) != calls || len(spans) != calls {
				t.Errorf("the server saw %d traces and %d spans, want %d of each", len(traces), len(spans), calls)
			}
			if len(sessions) != 1 || processes != 1 || handshakes > 2 {
				t.Errorf("%d sessions, %d processes, %d handshakes; want one connection", len(sessions), processes, handshakes)
			}
			if connections > calls/2 { // about one for each worker, more on a busy machine
				t.Errorf("%d TCP connections for %d calls of %d callers", connections, calls, workers)
			}
		})
	}
}

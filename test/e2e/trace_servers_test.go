package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// tracedServer is a real MCP server that exports spans of its own.
type tracedServer struct {
	target  target
	log     events
	service string
	closes  bool // a call that is given up has its stream closed; elsewhere a notification says it
	// deaf says that the end of its stream does not reach a tool, so that the server's span does not end with the call.
	deaf bool
	// What its span says of a call that was cancelled, and whether there is one for the notification.
	cancelled string
	notified  bool
}

// tracedServers are the Go fixture, with a middleware that makes spans, and FastMCP, which does so by itself.
func tracedServers(t *testing.T, to tracer) map[string]tracedServer {
	t.Helper()
	exporting := func(service string) []string { return append(to.environment(), "OTEL_SERVICE_NAME="+service) }
	servers := map[string]tracedServer{}
	add := func(name string, config target, log events) {
		servers[name] = tracedServer{target: config, log: log, service: "gosdk", cancelled: " error=canceled FAILED", notified: true}
	}
	overHTTP, log := gosdkHTTPWith(t, exporting("gosdk"), "-stateless")
	// The Go SDK v1.8.0 does not pass the end of a stateless request on to the tool.
	servers["go-http-modern"] = tracedServer{target: overHTTP, log: log, service: "gosdk", closes: true, deaf: true}
	overHTTP, log = gosdkHTTPWith(t, exporting("gosdk"))
	add("go-http-legacy", overHTTP, log)
	child, log := gosdkStdio(t)
	add("go-stdio-modern", child.with(exporting("gosdk")...), log)
	child, log = gosdkStdio(t)
	add("go-stdio-legacy", child.with(exporting("gosdk")...).pin(legacy), log)
	if hasFastMCP(t) {
		targets, logs := fastmcp(t, exporting("fastmcp")...)
		for name, config := range targets { // whose spans call no cancellation an error
			servers["fastmcp-"+name] = tracedServer{target: config, log: logs[name], service: "fastmcp", closes: name == "http"}
		}
	}
	return servers
}

// losesFirstRead puts something before a server that ends the connection at the first resources/read, over stdio with
// the process.
func losesFirstRead(t *testing.T, config target) {
	t.Helper()
	const method = `"resources/read"`
	if command, ok := config["command"].([]string); ok {
		once := filepath.Join(t.TempDir(), "once")
		const script = `
			once=$1; shift
			[ -e "$once" ] && exec "$@"
			: >"$once"
			while IFS= read -r line; do
				case $line in *'` + method + `'*) exit;; esac
				printf '%s\n' "$line"
			done | "$@"`
		config["command"] = append([]string{"sh", "-c", script, "sh", once}, command...)
		return
	}
	upstream, err := url.Parse(config["url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	var lost atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: upstream.Scheme, Host: upstream.Host})
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, []byte(method)) && !lost.Swap(true) {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	config["url"] = server.URL + upstream.Path
}

func TestTheWholeTraceFromTheCallerIntoTheServer(t *testing.T) {
	theWholeTrace(t, collect(t))
}

func TestJaegerShowsTheWholeTrace(t *testing.T) {
	theWholeTrace(t, startJaeger(t))
}

func theWholeTrace(t *testing.T, to tracer) {
	servers := tracedServers(t, to)
	targets := map[string]target{}
	for name, server := range servers {
		losesFirstRead(t, server.target)
		server.target.quick()["timeouts"] = map[string]any{"tools": map[string]string{"late": "500ms"}}
		targets[name] = server.target
	}
	b := serve(t, targets, environment(to.environment()...))
	a := newAgent(t, to)
	overGRPC := a.overGRPC(t, b)
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			s := b.stubs(t)
			s.must(t, name, "echo", `{"text":"connects"}`)
			if _, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: name}); err != nil { // now they are known
				t.Fatal(explain(err))
			}
			t.Run("gRPC", func(t *testing.T) { server.tellsOfCalls(t, to, a, overGRPC, name) })
			t.Run("Connect", func(t *testing.T) { server.tellsOfCalls(t, to, a, a.overConnect(t, b), name) })
			t.Run("retried", func(t *testing.T) { server.tellsOfRetries(t, to, a, overGRPC, name) })
			if strings.HasPrefix(name, "go") && strings.HasSuffix(name, "modern") { // FastMCP's tool that asks is a task
				t.Run("continued", func(t *testing.T) { server.tellsOfQuestions(t, to, a, overGRPC, name) })
			}
		})
	}
}

// tellsOfCalls checks the trace of one call of each kind.
func (server tracedServer) tellsOfCalls(t *testing.T, to tracer, a *agent, client agentClient, name string) {
	call := func(ctx context.Context, tool, arguments string) (*pb.CallToolResponse, error) {
		return client.call(ctx, &pb.CallToolRequest{Target: name, Name: tool, ArgumentsJson: &arguments})
	}
	t.Run("success", func(t *testing.T) {
		id := a.turn(t, func(ctx context.Context) {
			if response, err := call(ctx, "echo", `{"text":"hello"}`); err != nil || firstText(t, response.GetResult()) != "hello" {
				t.Errorf("%v, %v", response, err)
			}
		})
		spans := wantTree(t, to, id, server.chain("echo", "", "", "", "")...)
		if at := spans[4]; at.tags["tenant"] != "acme" || at.tags["mcp.method.name"] != "tools/call" || at.tags["gen_ai.tool.name"] != "echo" {
			t.Errorf("the server's span is %+v, want it to have the baggage and the attributes of MCP", at)
		}
		if spans[3].tags["mcpbridge.target"] != name {
			t.Errorf("the bridge's span is %+v", spans[3])
		}
	})
	t.Run("tool error", func(t *testing.T) {
		id := a.turn(t, func(ctx context.Context) {
			if response, err := call(ctx, "fail", `{"text":"no luck"}`); err != nil || !response.GetResult().GetIsError() {
				t.Errorf("%v, %v", response, err)
			}
		})
		const failed = " error=tool_error FAILED"
		wantTree(t, to, id, server.chain("fail", "", "", failed, failed)...)
	})
	t.Run("cancelled", func(t *testing.T) {
		label := t.Name()
		id := a.turn(t, func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			failed := make(chan error, 1)
			go func() {
				_, err := call(ctx, "slow", `{"label":"`+label+`"}`)
				failed <- err
			}()
			waitStarted(t, server.log, label)
			cancel()
			if err := <-failed; codeOf(err) != codes.Canceled {
				t.Errorf("error %v, want CANCELED", err)
			}
		})
		wantTree(t, to, id, server.givenUp("slow", client.failed("CANCELED"), " error=CANCELED", " error=canceled FAILED")...)
	})
	t.Run("timed out", func(t *testing.T) {
		id := a.turn(t, func(ctx context.Context) {
			if _, err := call(ctx, "late", `{"label":"late"}`); codeOf(err) != codes.DeadlineExceeded {
				t.Errorf("error %v, want DEADLINE_EXCEEDED", err)
			}
		})
		const late = "DEADLINE_EXCEEDED"
		wantTree(t, to, id, server.givenUp("late", client.failed(late), " error="+late+" FAILED", " error=timeout FAILED")...)
	})
}

// chain is the trace of one call of a tool, with what is said of the caller's span, the bridge's two, and the server's.
func (server tracedServer) chain(tool, caller, rpc, client, end string) []string {
	return []string{
		"agent turn internal of agent",
		"  mcpbridge.v1.ToolsService/CallTool client" + caller + " of agent",
		"    mcpbridge.v1.ToolsService/CallTool server" + rpc,
		"      tools/call " + tool + " client" + client,
		"        tools/call " + tool + " server" + end + " of " + server.service,
	}
}

// givenUp is the chain of a call that the bridge gave up.
func (server tracedServer) givenUp(tool, caller, rpc, client string) []string {
	lines := server.chain(tool, caller, rpc, client, server.cancelled)
	if server.deaf {
		lines = lines[:len(lines)-1]
	}
	if !server.closes {
		lines = append(lines, "        notifications/cancelled client")
	}
	if server.notified {
		lines = append(lines, "          notifications/cancelled server of "+server.service)
	}
	return lines
}

// tellsOfRetries checks the trace of a call whose first request gets lost.
func (server tracedServer) tellsOfRetries(t *testing.T, to tracer, a *agent, client agentClient, name string) {
	id := a.turn(t, func(ctx context.Context) {
		if _, err := client.read(ctx, &pb.ReadResourceRequest{Target: name, Uri: "test://static/one"}); err != nil {
			t.Errorf("error %v", err)
		}
	})
	lines := []string{
		"agent turn internal of agent",
		"  mcpbridge.v1.ResourcesService/ReadResource client of agent",
		"    mcpbridge.v1.ResourcesService/ReadResource server",
		"      resources/read client error=lost FAILED",
	}
	if strings.Contains(name, "stdio") { // the process is gone
		lines = append(lines, "      wait for connection internal after another trace")
	}
	lines = append(lines, "      resources/read client after line 4", "        resources/read server of "+server.service)
	spans := wantTree(t, to, id, lines...)
	if last := spans[len(spans)-1]; last.tags["mcp.resource.uri"] != "test://static/one" || last.tags["tenant"] != "acme" {
		t.Errorf("the server's span is %+v", last)
	}
}

// tellsOfQuestions checks that a call which goes on after a question is linked to the one that asked.
func (server tracedServer) tellsOfQuestions(t *testing.T, to tracer, a *agent, client agentClient, name string) {
	request := &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()}
	first := a.turn(t, func(ctx context.Context) {
		response, err := client.call(ctx, request)
		answerTo(t, request, response, err)
	})
	second := a.turn(t, func(ctx context.Context) {
		if response, err := client.call(ctx, request); err != nil || firstText(t, response.GetResult()) != "Hello, Ada!" {
			t.Errorf("%v, %v", response, err)
		}
	})
	asked := wantTree(t, to, first, server.chain("ask", "", "", "", "")...)
	went := wantTree(t, to, second, server.chain("ask", "", "", " after another trace", "")...)
	if links := went[3].links; len(links) != 1 || links[0] != asked[3].id {
		t.Errorf("it is linked to %v, want %s", links, asked[3].id)
	}
}

// hasFastMCP is for tests that have more servers than FastMCP's.
func hasFastMCP(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat(fastmcpBinary())
	if err != nil && os.Getenv("REQUIRE_REAL") == "1" {
		t.Fatal("FastMCP is not installed; run test/setup.sh")
	}
	return err == nil
}

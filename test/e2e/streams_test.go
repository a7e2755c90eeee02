package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// streamed opens a call with progress over grpc-go.
func (s stubs) streamed(t *testing.T, ctx context.Context, target, tool, arguments string) interface {
	Recv() (*pb.CallToolStreamResponse, error)
} {
	t.Helper()
	stream, err := s.tools.CallToolStream(ctx, &pb.CallToolStreamRequest{
		Call: &pb.CallToolRequest{Target: target, Name: tool, ArgumentsJson: &arguments}, LogLevel: pb.LogLevel_LOG_LEVEL_DEBUG,
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// everyGosdk are the ways to reach the Go SDK's server.
func everyGosdk(t *testing.T) (map[string]target, map[string]events) {
	t.Helper()
	targets, logs := map[string]target{}, map[string]events{}
	targets["http-modern"], logs["http-modern"] = gosdkHTTP(t, "-stateless")
	targets["http-legacy"], logs["http-legacy"] = gosdkHTTP(t)
	targets["stdio"], logs["stdio"] = gosdkStdio(t)
	return targets, logs
}

// The server goes on only when its caller has what came before: whatever is
// buffered on the way makes this hang.
func TestFault73ProgressReachesTheCallerWhileTheToolRuns(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		label := fmt.Sprintf(`{"label":%q}`, name)
		stream := s.streamed(t, ctx, name, "paced", label)
		for i := range 5 {
			m, err := stream.Recv()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if p := m.GetProgress(); p.GetProgress() != float64(i+1) || p.GetTotal() != 5 || p.GetMessage() != name {
				t.Fatalf("%s: event %d is %v", name, i, m)
			}
			if _, err := s.call(ctx, name, "release", label); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if m, err := stream.Recv(); err != nil || firstText(t, m.GetOutcome().GetResult()) != "done" {
			t.Fatalf("%s: %v %v, want the outcome", name, m, err)
		}
		if m, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v %v after the outcome", name, m, err)
		}
		cancel()
	}
}

func TestFault71AHundredStreamsSeeOnlyTheirOwnProgress(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	s := serve(t, targets).stubs(t)
	var names []string
	for name := range targets {
		names = append(names, name)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			name, own := names[i%len(names)], fmt.Sprint("call-", i)
			label := fmt.Sprintf(`{"label":%q}`, own)
			stream := s.streamed(t, ctx, name, "paced", label)
			last := 0.0
			for {
				m, err := stream.Recv()
				if err != nil {
					t.Errorf("%s: %v", own, err)
					return
				}
				if m.GetOutcome() != nil {
					if last != 5 {
						t.Errorf("%s: the outcome came after progress %v", own, last)
					}
					return
				}
				if p := m.GetProgress(); p.GetMessage() != own || p.GetProgress() != last+1 {
					t.Errorf("%s: got %v after %v", own, m, last)
				}
				last++
				if _, err := s.call(ctx, name, "release", label); err != nil {
					t.Errorf("%s: %v", own, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestACallerWhoLeavesAStreamEndsTheCallOnce(t *testing.T) {
	t.Parallel()
	targets, logs := everyGosdk(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream := s.streamed(t, ctx, name, "paced", `{"label":"left"}`)
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cancel()
		eventually(t, name, func() string {
			told := len(logs[name].labelled(t, "paced_cancelled", "left"))
			if name == "http-modern" { // the Go SDK v1.8.0 does not tell the tool, so its stream is the witness
				told = len(logs[name].matching(t, func(e event) bool { return e.Kind == "abandoned" }))
			}
			running := s.target(t, name).GetPool().GetInFlight()
			if told != 1 || running != 0 {
				return fmt.Sprintf("the tool was told %d times, %d calls run", told, running)
			}
			return ""
		})
	}
}

func TestServerStreamsWorkOverEveryProtocol(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"everything": everythingStdio(t)})
	request := &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{
		Target: "everything", Name: "trigger-long-running-operation", Arguments: pbStruct(t, map[string]any{"duration": 1, "steps": 5}),
	}}
	http1 := &http.Transport{}
	t.Cleanup(http1.CloseIdleConnections)
	over1 := func(options ...connecthttp.Option) clients {
		return clientsOver(http1, b.addr, options...)
	}
	for name, c := range map[string]clients{
		"gRPC":                   b.clients(t),
		"gRPC-Web":               b.clients(t, connecthttp.WithGRPCWeb()),
		"Connect":                b.clients(t, connecthttp.WithReadMaxBytes(1<<20)),
		"gRPC-Web over HTTP/1.1": over1(connecthttp.WithGRPCWeb()),
		"Connect over HTTP/1.1":  over1(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, err := c.tools.CallToolStream(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			var steps []float64
			for {
				m, err := stream.Receive()
				if err != nil {
					t.Fatalf("after %v: %v", steps, describe(err))
				}
				if o := m.GetOutcome(); o != nil {
					if !strings.Contains(firstText(t, o.GetResult()), "completed") {
						t.Errorf("outcome %v", o)
					}
					break
				}
				steps = append(steps, m.GetProgress().GetProgress())
			}
			if len(steps) != 5 || steps[0] != 1 || steps[4] != 5 {
				t.Errorf("progress %v, want 1 to 5", steps)
			}
		})
	}
}

// chat runs an interactive call; answer returns the JSON of each answer.
func (s stubs) chat(t *testing.T, call *pb.CallToolRequest, answer func(*pb.InputRequest) string) (*pb.CallToolResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := s.tools.CallToolInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	start := &pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{Call: call}}}
	if err := stream.Send(start); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		switch {
		case m.GetOutcome() != nil:
			return m.GetOutcome(), nil
		case m.GetInputRequest() != nil:
			text := answer(m.GetInputRequest())
			reply := &pb.InputResponse{Id: m.GetInputRequest().GetId(), ResultJson: &text}
			if err := stream.Send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_InputResponse{InputResponse: reply}}); err != nil {
				return nil, err
			}
		}
	}
}

func TestServersAskTheirCallers(t *testing.T) {
	t.Parallel()
	modernPython, _ := pythonHTTP(t)
	legacyPython, _ := pythonStdio(t)
	targets := map[string]target{
		"everything": everythingStdio(t), "everything-http": everythingHTTP(t),
		"python-modern": modernPython, "python-legacy": legacyPython.pin(legacy),
	}
	b := serve(t, targets)
	s, c := b.stubs(t), b.clients(t)
	able := &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}, Sampling: &pb.ClientCapabilities_Sampling{}}
	for _, tt := range []struct{ target, tool, arguments, answer, method, want string }{
		{"everything", "trigger-elicitation-request", `{}`, `{"action":"accept","content":{"name":"Ada Lovelace"}}`, "elicitation/create", "Ada Lovelace"},
		{"everything-http", "trigger-elicitation-request", `{}`, `{"action":"decline"}`, "elicitation/create", "declined"},
		{"everything", "trigger-sampling-request", `{"prompt":"hi","maxTokens":9}`, `{"role":"assistant","content":{"type":"text","text":"from the caller"},"model":"m"}`, "sampling/createMessage", "from the caller"},
		{"everything-http", "trigger-sampling-request", `{"prompt":"hi","maxTokens":9}`, `{"role":"assistant","content":{"type":"text","text":"from the caller"},"model":"m"}`, "sampling/createMessage", "from the caller"},
		{"python-modern", "ask", `{}`, `{"action":"accept","content":{"name":"Grace"}}`, "elicitation/create", "Hello, Grace"},
		{"python-legacy", "ask", `{}`, `{"action":"accept","content":{"name":"Grace"}}`, "elicitation/create", "Hello, Grace"},
	} {
		asked := 0
		out, err := s.chat(t, &pb.CallToolRequest{Target: tt.target, Name: tt.tool, ArgumentsJson: &tt.arguments, ClientCapabilities: able}, func(q *pb.InputRequest) string {
			if asked++; q.GetMethod() != tt.method {
				t.Errorf("%s %s: asked %v", tt.target, tt.tool, q)
			}
			return tt.answer
		})
		if err != nil {
			t.Errorf("%s %s: %v", tt.target, tt.tool, err)
			continue
		}
		if text := fmt.Sprint(out.GetResult().GetContent()); asked != 1 || !strings.Contains(text, tt.want) {
			t.Errorf("%s %s: asked %d times, %s", tt.target, tt.tool, asked, text)
		}
	}
	if got := s.target(t, "everything"); !got.GetInteractiveOnly() || s.target(t, "python-modern").GetInteractiveOnly() {
		t.Errorf("interactive_only is %t for a legacy server", got.GetInteractiveOnly())
	}

	// callers that do not stream continue with a second call, through any bridge
	first, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: "python-modern", Name: "ask", ClientCapabilities: able})
	if err != nil {
		t.Fatal(describe(err))
	}
	wants := first.GetInputRequired()
	if len(wants.GetInputRequests()) != 1 || wants.GetInputRequests()[0].GetMethod() != "elicitation/create" {
		t.Fatalf("outcome %v, want one question", first)
	}
	answer := `{"action":"accept","content":{"name":"Alan"}}`
	result := serve(t, map[string]target{"python-modern": modernPython}).clients(t).result(t, &pb.CallToolRequest{
		Target: "python-modern", Name: "ask", ClientCapabilities: able, RequestState: wants.RequestState,
		InputResponses: map[string]*pb.InputResponse{wants.GetInputRequests()[0].GetId(): {ResultJson: &answer}},
	})
	if got := firstText(t, result); got != "Hello, Alan" {
		t.Error(got)
	}
}

func TestBufStreamsInBothDirections(t *testing.T) {
	t.Parallel()
	buf := cacheDir("npm", "node_modules", ".bin", "buf")
	if _, err := os.Stat(buf); err != nil {
		needReal(t, "buf is not installed; run test/setup.sh")
	}
	b := serve(t, map[string]target{"everything": everythingStdio(t)})
	run := func(method, data string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), buf, "curl", "--protocol", "grpc", "-d", data, "http://"+b.grpcAddr+"/mcpbridge.v1.ToolsService/"+method)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run("CallToolStream", `{"call":{"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":2}}}`); strings.Count(out, `"progress": {`) != 2 || !strings.Contains(out, "completed") {
		t.Error(out)
	}
	start := `{"start":{"call":{"name":"trigger-elicitation-request","client_capabilities":{"elicitation":{"form":true}}}}}`
	out := run("CallToolInteractive", start) // buf closes its side, which refuses the question
	if !strings.Contains(out, "outcome") || !strings.Contains(out, "cancel") {
		t.Error(out)
	}
}

func TestAToolThatRunsOnlyAsATaskOf2025IsCalled(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]target{"everything": everythingStdio(t)}).stubs(t)
	got, err := s.call(t.Context(), "everything", "simulate-research-query", `{"topic":"bridges","ambiguous":false}`)
	if err != nil || !strings.Contains(got, "bridges") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFault75ChangesReachTheirWatchers(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		tools, err := s.tools.WatchTools(ctx, &pb.WatchToolsRequest{Target: name})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := tools.Recv(); err != nil || !m.GetReady().GetListChanges() {
			t.Fatalf("%s: %v %v, want ready", name, m, err)
		}
		resources, err := s.resources.WatchResources(ctx, &pb.WatchResourcesRequest{Target: name, Uris: []string{"test://static/one"}, ListChanges: true})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := resources.Recv(); err != nil || len(m.GetReady().GetUris()) != 1 {
			t.Fatalf("%s: %v %v, want ready", name, m, err)
		}
		if _, err := s.call(ctx, name, "change", `{}`); err != nil {
			t.Fatal(err)
		}
		if m, err := tools.Recv(); err != nil || m.GetChanged() == nil {
			t.Errorf("%s: %v %v, want a changed list of tools", name, m, err)
		}
		for { // the switch to a larger subscription may be told as a resync first
			m, err := resources.Recv()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			if m.GetUpdated().GetUri() == "test://static/one" {
				break
			}
		}
		cancel()
	}
}

func TestAShutdownEndsEveryStreamClearly(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	b := serve(t, targets)
	s := b.stubs(t)
	call := s.streamed(t, t.Context(), "stdio", "paced", `{"label":"drained"}`)
	if _, err := call.Recv(); err != nil {
		t.Fatal(err)
	}
	watch, err := s.tools.WatchTools(t.Context(), &pb.WatchToolsRequest{Target: "http-legacy"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for what, recv := range map[string]func() error{
		"call":  func() error { _, err := call.Recv(); return err },
		"watch": func() error { _, err := watch.Recv(); return err },
	} {
		var err error
		for err == nil {
			err = recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want UNAVAILABLE", what, err)
		}
	}
}

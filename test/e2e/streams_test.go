package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2/connecthttp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// everyGosdk are the ways to reach the Go SDK's server.
func everyGosdk(t *testing.T) (map[string]target, map[string]events) {
	t.Helper()
	targets, logs := map[string]target{}, map[string]events{}
	targets["http-modern"], logs["http-modern"] = gosdkHTTP(t, "-stateless")
	targets["http-legacy"], logs["http-legacy"] = gosdkHTTP(t)
	targets["stdio"], logs["stdio"] = gosdkStdio(t)
	return targets, logs
}

func TestACallerWhoLeavesAStreamEndsTheCallOnce(t *testing.T) {
	t.Parallel()
	targets, logs := everyGosdk(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream, err := s.tools.CallToolStream(ctx, streamCall(name, "receipts", `{"label":"left","steps":2}`, 0))
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatalf("%s: %s", name, explain(err))
		}
		cancel()
		eventually(t, name, func() string {
			told := len(logs[name].labelled(t, "receipts_cancelled", "left"))
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
	stream := s.begin(ctx, t, call)
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		switch {
		case m.GetOutcome() != nil:
			return m.GetOutcome(), nil
		case m.GetInputRequest() != nil:
			if err := stream.Send(answering(m.GetInputRequest().GetId(), answer(m.GetInputRequest()))); err != nil {
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

func TestBufCurlRefusesAQuestionByClosingItsSide(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"everything": everythingStdio(t)})
	start := `{"start":{"call":{"name":"trigger-elicitation-request","client_capabilities":{"elicitation":{"form":true}}}}}`
	out, err := bufCurl(t, b, "grpc", "CallToolInteractive", "-d", start).CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "outcome") || !strings.Contains(text, "cancel") {
		t.Errorf("%v: %s", err, text)
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

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

func TestFault124TheStateOfACallComesBackAsItWas(t *testing.T) {
	t.Parallel()
	states := map[string]string{
		"unicode": `"zustand ü 世界 😀 \u2028"`, "escaped": `"a\/b\\c\"d\u0041"`, "empty": `""`, "large": `"` + strings.Repeat("x", 1<<20) + `"`, "none": "",
	}
	server := &mcptest.Server{}
	for name, state := range states {
		server.Tools = append(server.Tools, mcptest.Tool{Name: name, Call: mcptest.Rounds(mcptest.Respond(mcptest.Text("done")), mcptest.Round{Requests: oneQuestion, State: state})})
	}
	s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
	for name, state := range states { // the server compares what comes back
		call := &pb.CallToolRequest{Name: name, ClientCapabilities: forms()}
		response, err := s.tools.CallTool(t.Context(), call)
		if err != nil {
			t.Fatalf("%s: %s", name, explain(err))
		}
		asked := response.GetInputRequired()
		if (asked.RequestState != nil) != (state != "") || len(asked.GetInputRequests()) != 1 {
			t.Errorf("%s: %v", name, response)
		}
		call.RequestState, call.InputResponses = asked.RequestState, map[string]*pb.InputResponse{"q": {ResultJson: new(accept)}}
		if response, err = s.tools.CallTool(t.Context(), call); err != nil || firstText(t, response.GetResult()) != "done" {
			t.Errorf("%s: %v, %s", name, response, explain(err))
		}
		got, err := s.chat(t, &pb.CallToolRequest{Name: name, ClientCapabilities: forms()}, func(*pb.InputRequest) string { return accept })
		if err != nil || firstText(t, got.GetResult()) != "done" {
			t.Errorf("%s: an interactive call: %v, %s", name, got, explain(err))
		}
	}
}

func TestFault125AServerThatNeverStopsAskingIsTheCallersInTheEnd(t *testing.T) {
	t.Parallel()
	server := &mcptest.Server{Tools: []mcptest.Tool{
		{Name: "roots", Call: mcptest.Rounds(nil, mcptest.Round{Requests: `{"r":{"method":"roots/list"}}`})},
		{Name: "state", Call: mcptest.Rounds(nil, mcptest.Round{State: `"again"`})},
		{Name: "ask", Call: mcptest.Rounds(nil, mcptest.Round{Requests: oneQuestion})},
	}}
	config := fake(t, server)
	config["roots"] = []map[string]string{{"uri": "file:///srv", "name": "srv"}}
	s := serve(t, map[string]target{"one": config}).stubs(t)
	seen := 0
	for _, tool := range []string{"roots", "state"} { // the bridge answers three times, as it is configured
		response, err := s.tools.CallTool(t.Context(), &pb.CallToolRequest{Name: tool})
		if err != nil || response.GetInputRequired() == nil { // from here on it is the caller's
			t.Errorf("%s: %v, %s", tool, response, explain(err))
		}
		if seen += 4; server.Count("tools/call") != seen {
			t.Errorf("%s: %d requests in all, want %d", tool, server.Count("tools/call"), seen)
		}
	}

	// on a stream the caller decides for how long it goes on
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream := s.begin(ctx, t, &pb.CallToolRequest{Name: "ask", ClientCapabilities: forms()})
	for range 10 {
		if err := stream.Send(answering(question(t, stream).GetId(), accept)); err != nil {
			t.Fatal(explain(err))
		}
	}
	cancel()
	for {
		if _, err := stream.Recv(); err != nil {
			if status.Code(err) != codes.Canceled {
				t.Error(explain(err))
			}
			break
		}
	}
	wantIdle(t, s, "one")
}

func TestFault127InputIsAskedForWhereTheProtocolAllowsIt(t *testing.T) {
	t.Parallel()
	ask := mcptest.Respond(mcptest.Raw(`{"resultType":"input_required","requestState":"x"}`))
	server := &mcptest.Server{Tools: []mcptest.Tool{echoTool()}, Prompts: []mcptest.Prompt{{Name: "hi"}}, Handle: map[string]mcptest.Handler{"tools/list": ask, "prompts/list": ask}}
	s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
	_, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "one"})
	wantReason(t, err, codes.Internal, "UPSTREAM_PROTOCOL")
	_, err = s.prompts.ListPrompts(t.Context(), &pb.ListPromptsRequest{Target: "one"})
	wantReason(t, err, codes.Internal, "UPSTREAM_PROTOCOL")
	s.must(t, "one", "echo", "{}")
}

// again asks once and then runs without end.
func again() *mcptest.Server {
	return &mcptest.Server{Tools: []mcptest.Tool{{Name: "again", Call: mcptest.Rounds(mcptest.Silence(), mcptest.Round{Requests: oneQuestion, State: `"s"`})}}}
}

func TestFault128ACancellationBetweenRoundsNamesTheAttemptThatRuns(t *testing.T) {
	t.Parallel()
	overHTTP := again()
	child, childLog := fakeChild(t, "again")
	s := serve(t, map[string]target{"http": fake(t, overHTTP), "stdio": child}).stubs(t)
	for name, log := range map[string]*mcptest.Log{"http": &overHTTP.Log, "stdio": &childLog.Log} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "again", ClientCapabilities: forms()})
		if err := stream.Send(answering(question(t, stream).GetId(), accept)); err != nil {
			t.Fatal(explain(err))
		}
		second := arrived(t, log, "tools/call", 2)
		cancel()
		how := cancelled
		if name == "http" {
			how = mcptest.MethodAborted
		}
		entry := arrived(t, log, how, 1)
		if id := string(member(entry.Params(), "requestId")); name == "stdio" && id != second.ID || name == "http" && entry.ID != second.ID {
			t.Errorf("%s: %s is about %s%s, want %s", name, how, id, entry.ID, second.ID)
		}
		wantIdle(t, s, name)
		wantCount(t, log, how, 1)
	}
}

func TestFault130OddTasks(t *testing.T) {
	t.Parallel()
	done := mcptest.TaskState{Status: "completed", Result: `{"content":[{"type":"text","text":"done"}]}`}
	asks := mcptest.TaskState{Status: "input_required", PollMs: "0", Requests: oneQuestion}
	server := &mcptest.Server{Tasks: true, Tools: []mcptest.Tool{
		{Name: "intervals", Call: mcptest.StartTask(mcptest.TaskState{PollMs: "0"}, mcptest.TaskState{}, mcptest.TaskState{PollMs: "1"}, mcptest.TaskState{PollMs: "120"}, mcptest.TaskState{PollMs: "0"}, done)},
		{Name: "fails", Call: mcptest.StartTask(mcptest.TaskState{PollMs: "0"}, mcptest.TaskState{Status: "failed", Error: `{"code":-32603,"message":"it broke"}`})},
		{Name: "tool-error", Call: mcptest.StartTask(mcptest.TaskState{PollMs: "0"}, mcptest.TaskState{Status: "completed", Result: `{"content":[{"type":"text","text":"it broke"}],"isError":true}`})},
		{Name: "asks", Call: mcptest.StartTask(mcptest.TaskState{PollMs: "0"}, asks, done)},
	}}
	b := serve(t, map[string]target{"one": fake(t, server)})
	s, tasks := b.stubs(t), mcpbridgegrpc.NewTasksServiceClient(b.grpc(t))
	begin := time.Now()
	if got := s.must(t, "one", "intervals", "{}"); got != "done" {
		t.Errorf("intervals returned %q", got)
	}
	polls := server.Count("tasks/get")
	if took := time.Since(begin); polls != 5 || took > 10*time.Second {
		t.Errorf("%d polls within %v", polls, took)
	}
	for _, e := range server.Entries("tasks/get") {
		if e.Header.Get("Mcp-Name") == "" {
			t.Errorf("a poll without Mcp-Name: %v", e.Header)
		}
	}

	_, err := s.call(t.Context(), "one", "fails", "{}")
	if s := status.Convert(err); s.Code() != codes.Internal || !strings.Contains(fmt.Sprint(s.Details()), "it broke") {
		t.Errorf("a failed task: %s", explain(err))
	}
	response, err := s.tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "tool-error"})
	if err != nil || !response.GetResult().GetIsError() {
		t.Errorf("a tool error: %v, %s", response, explain(err))
	}

	// the question is in every poll until it is answered; the caller hears of it once
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := server.Count("tasks/get")
	stream := s.begin(ctx, t, &pb.CallToolRequest{Name: "asks", ClientCapabilities: forms()})
	q := question(t, stream)
	arrived(t, &server.Log, "tasks/get", before+1)
	if err := stream.Send(answering(q.GetId(), accept)); err != nil {
		t.Fatal(explain(err))
	}
	if got := outcome(t, stream); got != "done" {
		t.Errorf("asks returned %q", got)
	}
	wantCount(t, &server.Log, "tasks/update", 1)

	able := forms()
	able.Extensions = pbTasks(t)
	response, err = s.tools.CallTool(ctx, &pb.CallToolRequest{Name: "asks", ClientCapabilities: able})
	if err != nil || response.GetTask().GetTaskId() == "" {
		t.Fatalf("%v, %s", response, explain(err))
	}
	watch, err := tasks.WatchTask(ctx, &pb.WatchTaskRequest{TaskId: response.GetTask().GetTaskId()})
	if err != nil {
		t.Fatal(explain(err))
	}
	until(t, watch.Recv, func(m *pb.WatchTaskResponse) bool {
		return m.GetTask().GetStatus() == pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED
	})
	polls = server.Count("tasks/get")
	arrived(t, &server.Log, "tasks/get", polls+3) // it goes on asking, and nothing changes
	answer := &pb.UpdateTaskRequest{TaskId: response.GetTask().GetTaskId(), InputResponses: map[string]*pb.InputResponse{"q": {ResultJson: new(accept)}}}
	if _, err := tasks.UpdateTask(ctx, answer); err != nil {
		t.Fatal(explain(err))
	}
	if m, err := watch.Recv(); err != nil || m.GetTask().GetStatus() != pb.TaskStatus_TASK_STATUS_COMPLETED {
		t.Errorf("after the answer %v, %s; want that nothing else was told", m, explain(err))
	}
	if m, err := watch.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end %v, %s", m, explain(err))
	}
	_, err = tasks.CancelTask(ctx, &pb.CancelTaskRequest{TaskId: "nobody's"})
	wantReason(t, err, codes.NotFound, "TASK_NOT_FOUND")
	_, err = tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: "nobody's"})
	wantReason(t, err, codes.NotFound, "TASK_NOT_FOUND")
}

package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// lastLine is the newest line of a call.
func (b *bridge) lastLine() string {
	b.t.Helper()
	line := ""
	for l := range strings.Lines(b.logs.String()) {
		if strings.Contains(l, "msg=call ") {
			line = l
		}
	}
	return line
}

func (b *bridge) wantLine(has []string, lacks ...string) {
	b.t.Helper()
	line := b.lastLine()
	for _, text := range has {
		if !strings.Contains(line, text) {
			b.t.Errorf("the line does not hold %s: %s", text, line)
		}
	}
	for _, text := range lacks {
		if strings.Contains(line, text) {
			b.t.Errorf("the line holds %s: %s", text, line)
		}
	}
}

func TestALineSaysWhatWasCalledAndHowItEnded(t *testing.T) {
	b := start(t, Options{Access: AccessOn}, map[string]targetConfig{
		"shop": {server: shop(mcptest.Modern)}, "asker": {server: asker(mcptest.Modern)}, "tasks": {server: tasking(working)},
	}).ready()
	tools := b.tools(overGRPC)
	call := func(req *pb.CallToolRequest) {
		t.Helper()
		if _, err := tools.CallTool(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
	call(&pb.CallToolRequest{Target: "shop", Name: "echo"})
	b.wantLine([]string{"tool=echo outcome=result", "code=ok", "took_ms="}, "reason=")
	call(&pb.CallToolRequest{Target: "shop", Name: "fail"})
	b.wantLine([]string{"tool=fail outcome=tool_error", "code=ok"})
	call(&pb.CallToolRequest{Target: "asker", Name: "work", ClientCapabilities: everything(), ArgumentsJson: new(`{"ask":[` + askForm + `]}`)})
	b.wantLine([]string{"tool=work outcome=input_required", "code=ok"})
	call(&pb.CallToolRequest{Target: "tasks", Name: "work", ClientCapabilities: &pb.ClientCapabilities{Extensions: map[string]*structpb.Struct{tasksExtension: {}}}})
	b.wantLine([]string{"tool=work outcome=task", "code=ok"})
	if _, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Target: "shop", Name: strings.Repeat("n", 2000)}); err == nil {
		t.Error("an unknown tool was called")
	}
	b.wantLine([]string{"tool=" + strings.Repeat("n", maxNameBytes-3) + "... reason=TOOL_NOT_FOUND"}, "outcome=")
	if _, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Target: "nope", Name: "echo"}); err == nil {
		t.Error("an unknown target was called")
	}
	b.wantLine([]string{"tool=echo reason=TARGET_NOT_FOUND"})
	if _, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Target: "shop", Name: "echo", ArgumentsJson: new(`{`)}); err == nil {
		t.Error("broken arguments were taken")
	}
	b.wantLine([]string{"tool=echo reason=JSON_INVALID", "arguments_json"}, "cause=")
	if _, err := b.prompts(overGRPC).GetPrompt(t.Context(), &pb.GetPromptRequest{Target: "shop", Name: "greet"}); err != nil {
		t.Error(err)
	}
	b.wantLine([]string{"prompt=greet outcome=result"})
	if _, err := b.resources(overGRPC).ReadResource(t.Context(), &pb.ReadResourceRequest{Target: "shop", Uri: "file:///a.txt"}); err != nil {
		t.Error(err)
	}
	b.wantLine([]string{"uri=file:///a.txt outcome=result"})
	if _, err := b.tasks(overGRPC).GetTask(t.Context(), &pb.GetTaskRequest{Target: "tasks", TaskId: "nope"}); err == nil {
		t.Error("an unknown task was found")
	}
	b.wantLine([]string{"task=nope reason=TASK_NOT_FOUND"})
	wantRest(t, b.stream(t.Context(), overGRPC, &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Target: "shop", Name: "fail"}}), "outcome sold out", "end")
	b.wantLine([]string{"CallToolStream ", "tool=fail outcome=tool_error"})
	if res, text := post(t, b.url+callTool, "application/json", `{"tool":"echo"}`); res.StatusCode != http.StatusBadRequest {
		t.Error(res.Status, text)
	}
	b.wantLine([]string{"reason=JSON_INVALID", "tool: "}, "cause=")
}

func TestAFailureOfAToolHasALineOfASampledLog(t *testing.T) {
	b := start(t, Options{Access: AccessSampled}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	const calls = 5 * sampledPerSecond
	for range calls {
		if _, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "fail"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(b.logs.String(), "level=INFO msg=call"); n != calls {
		t.Errorf("%d lines of %d calls", n, calls)
	}
}

func TestAStreamWithoutAnEndOfItsOwnDoesNotFailWhenItsCallerLeaves(t *testing.T) {
	told := make(chan Outcome, 1)
	server := tooled(mcptest.Modern, mcptest.Silence())
	b := start(t, Options{Access: AccessOn, Observe: func(_ context.Context, o Outcome) {
		if strings.Contains(o.Procedure, "Watch") || strings.Contains(o.Procedure, "eflection") || strings.Contains(o.Procedure, "Stream") {
			told <- o
		}
	}}, map[string]targetConfig{"shop": {server: server}}).ready()
	wants := func(procedure, target, reason, ended string) {
		t.Helper()
		if got, want := <-told, (Outcome{Procedure: procedure, Target: target, Reason: reason}); got != want {
			t.Errorf("told of %v, want %v", got, want)
		}
		b.wantLine([]string{"procedure=" + procedure, ended})
	}
	const watchTools = "/mcpbridge.v1.ToolsService/WatchTools"

	ctx, leave := context.WithCancel(t.Context())
	w := b.watchTools(ctx, overGRPC, &pb.WatchToolsRequest{})
	w.wants("ready true")
	leave()
	wants(watchTools, "shop", "", "ended_by=caller code=canceled")

	ctx, leave = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer leave()
	w = b.watchTools(ctx, overGRPC, &pb.WatchToolsRequest{})
	w.wants("ready true")
	wants(watchTools, "shop", "", "ended_by=")

	const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	body, more := io.Pipe()
	go func() { _, _ = io.WriteString(more, frame(0, "\x3a\x01*")) }() // an error shows below
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+reflection, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	res, err := httpClient(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close() // resets the stream, whose other direction is open
	wants(reflection, "", "", "ended_by=caller code=canceled")

	if err := b.watchTools(t.Context(), overGRPC, &pb.WatchToolsRequest{Target: "nope"}).fails(); err == nil {
		t.Error("an unknown target is watched")
	}
	wants(watchTools, "", "TARGET_NOT_FOUND", "reason=TARGET_NOT_FOUND")

	ctx, leave = context.WithCancel(t.Context())
	s := b.stream(ctx, overGRPC, workAt(0))
	if _, err := server.WaitFor(t.Context(), "tools/call", 1); err != nil {
		t.Fatal(err)
	}
	leave()
	_ = s.next()
	wants("/mcpbridge.v1.ToolsService/CallToolStream", "shop", "CANCELED", "reason=CANCELED")

	w = b.watchTools(t.Context(), overGRPC, &pb.WatchToolsRequest{})
	w.wants("ready true")
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(watchTools, "shop", "", "ended_by=shutdown code=unavailable")
}

func TestWhatEndsAStreamIsToldFromFailures(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	watch := connect.Spec{StreamType: connect.StreamTypeServer, Procedure: "/mcpbridge.v1.ToolsService/WatchTools"}
	call := connect.Spec{StreamType: connect.StreamTypeServer, Procedure: mcpbridgev1connect.ToolsServiceCallToolStreamProcedure}
	for _, c := range []struct {
		late bool
		spec connect.Spec
		err  error
		want string
	}{
		{true, watch, scope{}.fail(late, late.Err()), "deadline"},
		{false, watch, scope{}.fail(t.Context(), context.Canceled), "caller"},
		{false, watch, scope{}.build(draining()), "shutdown"},
		{false, watch, scope{}.build(refuse(reasonTimeout, "the server's own")), ""},
		{false, watch, nil, ""},
		{true, call, scope{}.fail(late, late.Err()), ""},
		{false, call, scope{}.fail(t.Context(), context.Canceled), ""},
		{false, connect.Spec{Procedure: callTool}, scope{}.build(draining()), ""},
	} {
		ctx := t.Context()
		if c.late {
			ctx = late
		}
		if got := endedBy(ctx, c.spec, c.err); got != c.want {
			t.Errorf("%s with %v: %q, want %q", c.spec.Procedure, c.err, got, c.want)
		}
	}
}

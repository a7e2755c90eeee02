package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// deaf reads nothing after it was connected and asked once.
func deaf() *mcptest.Server {
	return &mcptest.Server{Era: mcptest.Legacy, Stdio: mcptest.StdioOptions{StopAfter: 5}, Tools: []mcptest.Tool{{Name: "quiet", Call: mcptest.Silence()}, echoTool()}}
}

func TestFault91ACallEndsAtItsTimeoutAlthoughNobodyReadsTheCancellation(t *testing.T) {
	t.Parallel()
	child, _ := fakeChild(t, "deaf")
	child["health"] = map[string]any{"enabled": false}
	child["timeouts"] = map[string]string{"tool": "400ms"}
	s := serve(t, map[string]target{"deaf": child}).stubs(t)
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1<<20)) // more than the pipe takes
	for round := range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		begin := time.Now()
		_, err := s.follow(ctx, streamCall("deaf", "quiet", large, 0), nil)
		wantReason(t, err, codes.DeadlineExceeded, "TIMEOUT")
		if took := time.Since(begin); took > patience/4 {
			t.Errorf("call %d took %v", round, took)
		}
		cancel()
	}
	wantIdle(t, s, "deaf")
}

func TestFault92AModernServerOverHTTPGetsNoNotificationOfACancellation(t *testing.T) {
	t.Parallel()
	server := talking(mcptest.Modern)
	server.Status = func(method string, _ int) *mcptest.Reply {
		if method == cancelled {
			return &mcptest.Reply{Status: http.StatusBadRequest}
		}
		return nil
	}
	s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
	for n := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream, err := s.tools.CallToolStream(ctx, streamCall("one", "one", "{}", 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(explain(err))
		}
		cancel()
		arrived(t, &server.Log, mcptest.MethodAborted, n+1)
	}
	wantIdle(t, s, "one")
	wantCount(t, &server.Log, cancelled, 0)
}

func TestFault94ProgressBeforeTheAnswerComesAndProgressAfterItDoesNot(t *testing.T) {
	t.Parallel()
	tools := []mcptest.Tool{
		{Name: "before", Call: mcptest.FloodProgress(1, mcptest.Respond(mcptest.Text("done")))},
		{Name: "after", Call: mcptest.LateProgress(mcptest.Respond(mcptest.Text("done")))},
	}
	modernServer, legacyServer := &mcptest.Server{Tools: tools, SSE: mcptest.SSEOptions{Always: true}}, &mcptest.Server{Tools: tools, Era: mcptest.Legacy, SSE: mcptest.SSEOptions{Always: true}}
	s := serve(t, map[string]target{"modern": fake(t, modernServer), "legacy": fake(t, legacyServer)}).stubs(t)
	for _, name := range []string{"modern", "legacy"} {
		for range 50 {
			if all, err := s.follow(t.Context(), streamCall(name, "before", "{}", 0), nil); err != nil || len(all.steps) != 1 {
				t.Errorf("%s: before the answer: %v, %s", name, all.steps, explain(err))
			}
			if all, err := s.follow(t.Context(), streamCall(name, "after", "{}", 0), nil); err != nil || len(all.steps) != 0 {
				t.Errorf("%s: after the answer: %v, %s", name, all.steps, explain(err))
			}
		}
	}
}

func TestFault95ProgressWithATokenThatNobodyGaveIsDropped(t *testing.T) {
	t.Parallel()
	tools := []mcptest.Tool{{Name: "foreign", Call: mcptest.ForeignProgress(mcptest.FloodProgress(1, mcptest.Respond(mcptest.Text("done"))))}}
	s := serve(t, map[string]target{"modern": fake(t, &mcptest.Server{Tools: tools}), "legacy": fake(t, &mcptest.Server{Tools: tools, Era: mcptest.Legacy})}).stubs(t)
	for _, name := range []string{"modern", "legacy"} {
		if all, err := s.follow(t.Context(), streamCall(name, "foreign", "{}", 0), nil); err != nil || len(all.steps) != 1 || all.outcome.GetResult() == nil {
			t.Errorf("%s: %v, %s", name, all, explain(err))
		}
	}
}

const flood = 10_000

// floods logs without a pause before it answers.
func floods() *mcptest.Server {
	return &mcptest.Server{Logging: mcptest.LoggingOptions{On: true}, Tools: []mcptest.Tool{echoTool(), {Name: "flood", Call: mcptest.Flood("notifications/message", flood, mcptest.Raw(`{"level":"error","data":"x"}`), mcptest.Respond(mcptest.Text("done")))}}}
}

func TestFault98AFloodOfLogMessagesHindersNeitherTheAnswerNorASecondCall(t *testing.T) {
	t.Parallel()
	child, _ := fakeChild(t, "floods")
	s := serve(t, map[string]target{"http": fake(t, floods()), "stdio": child}).stubs(t)
	for _, name := range []string{"http", "stdio"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stream, err := s.tools.CallToolStream(ctx, streamCall(name, "flood", "{}", pb.LogLevel_LOG_LEVEL_DEBUG))
		if err != nil {
			t.Fatal(explain(err))
		}
		s.must(t, name, "echo", "{}") // while nobody reads the stream
		all, err := read(stream, nil)
		if err != nil || all.outcome.GetResult() == nil {
			t.Errorf("%s: %s", name, explain(err))
		}
		sum := len(all.logs)
		for _, m := range all.logs {
			sum += int(m.GetDropped())
		}
		want := flood
		if name == "stdio" { // where messages name no call
			want = 0
		}
		if sum != want {
			t.Errorf("%s: %d messages came or were left out, want %d", name, sum, want)
		}
		t.Logf("%s: %d of %d messages came", name, len(all.logs), flood)
	}
}

func TestFault100WhatComesBeforeTheAnswerThatDefinesItHarmsNothing(t *testing.T) {
	t.Parallel()
	hasty := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{echoTool()}, Initialize: func(ctx context.Context, r *mcptest.Request) (any, error) {
		for _, method := range []string{"tools/list_changed", "message", "progress", "resources/updated"} {
			r.Notify("notifications/"+method, map[string]any{"level": "info", "data": 1, "uri": "test://one", "progressToken": 1, "progress": 1})
		}
		return r.Default(ctx)
	}}
	flooding := &mcptest.Server{Tools: []mcptest.Tool{echoTool()}, Listen: mcptest.ListenOptions{Flood: 3}} // right behind the acknowledgement
	s := serve(t, map[string]target{"legacy": fake(t, hasty), "modern": fake(t, flooding)}).stubs(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{"legacy", "modern"} {
		watch, err := s.tools.WatchTools(ctx, &pb.WatchToolsRequest{Target: name})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := watch.Recv(); err != nil || !m.GetReady().GetListChanges() {
			t.Errorf("%s: the first event is %v, %s", name, m, explain(err))
		}
		if name == "modern" {
			until(t, watch.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetChanged() != nil })
		}
		s.must(t, name, "echo", "{}")
	}
}

func TestFault101NoTimeoutIsNoTimeout(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	server := &mcptest.Server{Tools: []mcptest.Tool{
		{Name: "free", Call: mcptest.FloodProgress(1, mcptest.After(gate, mcptest.Respond(mcptest.Text("done"))))},
		{Name: "limited", Call: mcptest.Silence()},
	}}
	config := fake(t, server)
	config["timeouts"] = map[string]any{"tool": "300ms", "tools": map[string]string{"free": "0s"}}
	s := serve(t, map[string]target{"one": config}).stubs(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := s.tools.CallToolStream(ctx, streamCall("one", "free", "{}", 0))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(explain(err))
	}
	for range 2 { // it began before and ends after both
		_, err := s.call(ctx, "one", "limited", "{}")
		wantReason(t, err, codes.DeadlineExceeded, "TIMEOUT")
	}
	close(gate)
	if all, err := read(stream, nil); err != nil || firstText(t, all.outcome.GetResult()) != "done" {
		t.Errorf("%v, %s", all.outcome, explain(err))
	}
}

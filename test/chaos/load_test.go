package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// fakeBridge answers CallTool as a function says.
type fakeBridge struct {
	mcpbridgegrpc.UnimplementedToolsServiceServer
	answer func(*pb.CallToolRequest) (*pb.CallToolResponse, error)
}

func (f *fakeBridge) CallTool(_ context.Context, r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return f.answer(r)
}

func newFake(t *testing.T, rate float64, answer func(*pb.CallToolRequest) (*pb.CallToolResponse, error)) *load {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	mcpbridgegrpc.RegisterToolsServiceServer(server, &fakeBridge{answer: answer})
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(listener) }()
	l, err := newLoad(listener.Addr().String(), []*target{{name: "a"}, {name: "b"}}, rate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close(); server.Stop(); <-done })
	return l
}

func textOf(s string) *pb.CallToolResponse {
	content := &pb.Content{Kind: &pb.Content_Text{Text: &pb.TextContent{Text: s}}}
	return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: &pb.ToolResult{Content: []*pb.Content{content}}}}
}

func echo(r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return textOf(r.GetArguments().GetFields()["id"].GetStringValue()), nil
}

func TestAnOutcomeHasCodeReasonAndTheTimeToWait(t *testing.T) {
	refuse := func(code codes.Code, domain, reason string, wait time.Duration) error {
		s, err := status.New(code, "text").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason}, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	isError := textOf("a/1")
	isError.GetResult().IsError = new(true)
	for name, tt := range map[string]struct {
		response *pb.CallToolResponse
		err      error
		outcome  string
		retry    time.Duration
	}{
		"its own id":       {textOf("a/1"), nil, "OK", -1},
		"another id":       {textOf("a/2"), nil, "OK WRONG_RESULT", -1},
		"no content":       {&pb.CallToolResponse{}, nil, "OK WRONG_RESULT", -1},
		"a tool's error":   {isError, nil, "OK WRONG_RESULT", -1},
		"a refusal":        {nil, refuse(codes.Unavailable, "mcpbridge", "TARGET_UNAVAILABLE", 3*time.Second), "Unavailable TARGET_UNAVAILABLE", 3 * time.Second},
		"another's reason": {nil, refuse(codes.Unavailable, "other", "TARGET_UNAVAILABLE", 0), "Unavailable without a reason", 0},
		"no details":       {nil, status.Error(codes.DeadlineExceeded, "text"), "DeadlineExceeded without a reason", -1},
		"no status":        {nil, context.Canceled, "Unknown without a reason", -1},
	} {
		c := call{id: "a/1"}
		c.judge(tt.response, tt.err)
		if c.outcome() != tt.outcome || c.retry != tt.retry || c.ok() != (tt.outcome == "OK") {
			t.Errorf("%s: %s, retry %v", name, c.outcome(), c.retry)
		}
	}
}

func TestTheLoadGoesOnWhateverBecomesOfTheCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var arrived atomic.Int32
	release := make(chan struct{})
	l := newFake(t, 1000, func(r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
		if arrived.Add(1) == 50 { // none of which has an answer
			close(release)
			cancel()
		}
		<-release
		return echo(r)
	})
	l.measure()
	l.run(ctx, someDelay)
	calls, _ := l.calls()
	targets := map[string]int{}
	ids := map[string]bool{}
	for _, c := range calls {
		if !c.ok() || c.warm || c.probe {
			t.Errorf("%+v", c)
		}
		targets[c.target]++
		ids[c.id] = true
	}
	if len(calls) < 50 || len(ids) != len(calls) || targets["a"] < 20 || targets["b"] < 20 {
		t.Errorf("%d calls, %d ids, %v", len(calls), len(ids), targets)
	}
}

func TestAProbeEndsWithTheFirstSuccess(t *testing.T) {
	var calls atomic.Int32
	l := newFake(t, 100, func(r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
		if calls.Add(1) < 4 {
			return nil, status.Error(codes.Unavailable, "not yet")
		}
		return echo(r)
	})
	began := time.Now()
	served := l.probe(t.Context(), l.targets[0])
	if served.Before(began.Add(2*probeEvery)) || served.After(time.Now()) {
		t.Errorf("served after %v", served.Sub(began))
	}
	l.pending.Wait()
	all, _ := l.calls()
	for _, c := range all {
		if c.target != "a" || !c.probe || !c.warm || !strings.HasPrefix(c.id, "a/") {
			t.Errorf("%+v", c)
		}
	}
}

func TestAProbeThatNothingAnswersHasNoTime(t *testing.T) {
	l := newFake(t, 100, func(*pb.CallToolRequest) (*pb.CallToolResponse, error) {
		return nil, status.Error(codes.Unavailable, "never")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*probeEvery)
	defer cancel()
	if served := l.probe(ctx, l.targets[0]); !served.IsZero() {
		t.Errorf("served at %v", served)
	}
	l.pending.Wait()
}

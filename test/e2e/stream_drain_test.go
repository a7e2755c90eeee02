package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// shutdownTimeout bounds how long running calls may still take.
func shutdownTimeout(limit string) func(map[string]any, *exec.Cmd) {
	return func(config map[string]any, _ *exec.Cmd) { config["shutdown"] = map[string]string{"timeout": limit} }
}

// terminate asks the process to end.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// ends reads a stream to its end and returns the error of that.
func ends[M any](receive func() (M, error)) error {
	for {
		if _, err := receive(); err != nil {
			return err
		}
	}
}

func TestAShutdownLetsStreamedCallsFinishAndEndsWatches(t *testing.T) {
	t.Parallel()
	targets, logs := talkers(t)
	gate := make(chan struct{})
	gated := mcptest.Tool{Name: "gated", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
		r.Progress(1, 2, "")
		return mcptest.After(gate, func(context.Context, *mcptest.Request) (any, error) {
			r.Progress(2, 2, "")
			return mcptest.Text("done"), nil
		})(ctx, r)
	}}
	working := mcptest.Tool{Name: "task", Call: mcptest.StartTask(mcptest.TaskState{PollMs: "60000"})}
	targets["gated-modern"] = fake(t, &mcptest.Server{Tasks: true, Tools: []mcptest.Tool{gated, working}})
	targets["gated-legacy"] = fake(t, &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{gated}})
	b := serve(t, targets, shutdownTimeout(patience.String()))
	s, tasks := b.stubs(t), mcpbridgegrpc.NewTasksServiceClient(b.grpc(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	streams := map[string]mcpbridgegrpc.ToolsService_CallToolStreamClient{}
	for _, name := range []string{"gated-modern", "gated-legacy"} {
		stream, err := s.tools.CallToolStream(ctx, streamCall(name, "gated", "{}", 0))
		if err != nil {
			t.Fatal(explain(err))
		}
		until(t, stream.Recv, func(m *pb.CallToolStreamResponse) bool { return m.GetProgress().GetProgress() == 1 })
		streams[name] = stream
	}
	asked, open := map[string]mcpbridgegrpc.ToolsService_CallToolInteractiveClient{}, map[string]*pb.InputRequest{}
	watches := map[string]func() error{}
	for name := range logs {
		asked[name] = s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "asks", ClientCapabilities: forms()})
		open[name] = question(t, asked[name])
		watch, err := s.tools.WatchTools(ctx, &pb.WatchToolsRequest{Target: name})
		if err != nil {
			t.Fatal(explain(err))
		}
		until(t, watch.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetReady() != nil })
		watches["watch of "+name] = func() error { return ends(watch.Recv) }
	}
	response, err := s.tools.CallTool(ctx, &pb.CallToolRequest{Target: "gated-modern", Name: "task", ClientCapabilities: &pb.ClientCapabilities{Extensions: pbTasks(t)}})
	if err != nil {
		t.Fatal(explain(err))
	}
	watch, err := tasks.WatchTask(ctx, &pb.WatchTaskRequest{Target: "gated-modern", TaskId: response.GetTask().GetTaskId()})
	if err != nil {
		t.Fatal(explain(err))
	}
	until(t, watch.Recv, func(m *pb.WatchTaskResponse) bool { return m.GetTask() != nil })
	watches["watch of a task"] = func() error { return ends(watch.Recv) }

	b.terminate(t)
	for what, end := range watches {
		if problem := otherThan(end(), codes.Unavailable, "TARGET_UNAVAILABLE"); problem != "" {
			t.Errorf("%s: %s, want UNAVAILABLE", what, problem)
		}
	}
	if _, err := s.call(ctx, "http-modern", "echo", "{}"); status.Code(err) != codes.Unavailable {
		t.Errorf("a new call: %s, want UNAVAILABLE", explain(err))
	}
	close(gate)
	for name, stream := range streams {
		if all, err := read(stream, nil); err != nil || len(all.steps) != 1 || firstText(t, all.outcome.GetResult()) != "done" {
			t.Errorf("%s: %v, %s", name, all, explain(err))
		}
	}
	for name, stream := range asked {
		if err := stream.Send(answering(open[name].GetId(), accept)); err != nil {
			t.Fatalf("%s: %s", name, explain(err))
		}
		if got := outcome(t, stream); got != "answered" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if code, _ := b.exited(t); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}
	for name, log := range logs {
		if times := calledOff(name, log); len(times) != 0 {
			t.Errorf("%s: called off %v", name, times)
		}
	}
	for _, name := range []string{"stdio-modern", "stdio-legacy"} {
		eventually(t, name+": every child to be at its end", func() string {
			if begun, over := logs[name].Count(mcptest.MethodOpened), logs[name].Count(mcptest.MethodEOF); begun != over {
				return fmt.Sprintf("of %d processes %d read to the end", begun, over)
			}
			return ""
		})
	}
}

func TestAShutdownCutsCallsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	targets, logs := talkers(t)
	targets["unconnected"] = fake(t, silent(mcptest.Legacy))
	b := serve(t, targets, shutdownTimeout("1s"))
	s := b.stubs(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begun := map[string]func() error{}
	for name := range logs {
		stream, err := s.tools.CallToolStream(ctx, streamCall(name, "one", "{}", 0))
		if err != nil {
			t.Fatal(explain(err))
		}
		until(t, stream.Recv, func(m *pb.CallToolStreamResponse) bool { return m.GetProgress() != nil })
		begun["stream of "+name] = func() error { return ends(stream.Recv) }
		asked := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "asks", ClientCapabilities: forms()})
		question(t, asked)
		begun["question of "+name] = func() error { return ends(asked.Recv) }
	}
	waiting, err := s.tools.CallToolStream(ctx, streamCall("unconnected", "any", "{}", 0))
	if err != nil {
		t.Fatal(explain(err))
	}
	eventually(t, "the call to wait", func() string {
		if pool := s.target(t, "unconnected").GetPool(); pool.GetInFlight()+pool.GetQueued() != 1 {
			return pool.String()
		}
		return ""
	})

	b.terminate(t)
	for what, end := range begun {
		err := end()
		if problem := otherThan(err, codes.Unknown, "OUTCOME_UNKNOWN"); problem != "" {
			t.Errorf("%s: %s, want UNKNOWN", what, problem)
		}
		for _, detail := range status.Convert(err).Details() {
			if _, retry := detail.(*errdetails.RetryInfo); retry {
				t.Errorf("%s: %s invites to try again", what, explain(err))
			}
		}
	}
	wantReason(t, ends(waiting.Recv), codes.Unavailable, "TARGET_UNAVAILABLE")
	if code, _ := b.exited(t); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}
	for name, log := range logs {
		want := 2
		if name == "http-modern" || name == "stdio-modern" {
			want = 1 // a server that asked has no call, until it is answered
		}
		eventually(t, name, func() string {
			if got := total(calledOff(name, log)); got != want {
				return fmt.Sprintf("called off %d times, want %d: %q", got, want, log.Methods())
			}
			return ""
		})
	}
}

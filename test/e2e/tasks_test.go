package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// pbTasks lists the tasks extension.
func pbTasks(t *testing.T) map[string]*structpb.Struct {
	t.Helper()
	return map[string]*structpb.Struct{"io.modelcontextprotocol/tasks": pbStruct(t, nil)}
}

// fastmcpBinary is the interpreter that setup.sh prepares for FastMCP.
func fastmcpBinary() string { return cacheDir("venv-fastmcp", "bin", "python") }

// fastmcp configures fixtures/fastmcp/server.py over HTTP and as a child, with these variables in the environment.
func fastmcp(t *testing.T, variables ...string) (map[string]target, map[string]events) {
	t.Helper()
	interpreter := fastmcpBinary()
	if _, err := os.Stat(interpreter); err != nil {
		needReal(t, "FastMCP is not installed; run test/setup.sh")
	}
	script, err := filepath.Abs("../fixtures/fastmcp/server.py")
	if err != nil {
		t.Fatal(err)
	}
	overHTTP, child := newEvents(t), newEvents(t)
	cmd := exec.Command(interpreter, script, "--http", "--log", overHTTP.file)
	cmd.Env = append(os.Environ(), variables...)
	p := start(t, "fastmcp", cmd)
	return map[string]target{
		"http":  {"url": p.waitOutput(t, listening)[1]},
		"stdio": target{"command": []string{interpreter, script, "--log", child.file}}.with(variables...),
	}, map[string]events{"http": overHTTP, "stdio": child}
}

// settled returns the next state of a task that is not worked on.
func settled(next func() *pb.Task) *pb.Task {
	for {
		if now := next(); now.GetStatus() != pb.TaskStatus_TASK_STATUS_WORKING {
			return now
		}
	}
}

func TestFastMCPTasksOverEveryTransport(t *testing.T) {
	t.Parallel()
	targets, logs := fastmcp(t)
	b := serve(t, targets)
	s, tasks := b.stubs(t), mcpbridgegrpc.NewTasksServiceClient(b.grpc(t))
	able := forms()
	able.Extensions = pbTasks(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			begin := func(tool, arguments string) *pb.Task {
				t.Helper()
				response, err := s.tools.CallTool(ctx, &pb.CallToolRequest{Target: name, Name: tool, ArgumentsJson: &arguments, ClientCapabilities: able})
				if err != nil || response.GetTask().GetTaskId() == "" {
					t.Fatalf("%s: %v, %s; want a task", tool, response, explain(err))
				}
				return response.GetTask()
			}
			watched := func(task *pb.Task) func() *pb.Task {
				t.Helper()
				stream, err := tasks.WatchTask(ctx, &pb.WatchTaskRequest{Target: name, TaskId: task.GetTaskId()})
				if err != nil {
					t.Fatal(explain(err))
				}
				return func() *pb.Task {
					return until(t, stream.Recv, func(m *pb.WatchTaskResponse) bool { return m.GetTask() != nil }).GetTask()
				}
			}

			// a task that is watched to its end
			task := begin("wait", `{"label":"watched"}`)
			if task.GetStatus() != pb.TaskStatus_TASK_STATUS_WORKING || task.GetPollIntervalMs() != 100 || task.GetTtlMs() == 0 {
				t.Errorf("task %v", task)
			}
			next := watched(task)
			if now := next(); now.GetStatus() != pb.TaskStatus_TASK_STATUS_WORKING {
				t.Errorf("at first %v", now)
			}
			s.must(t, name, "open_gate", `{"label":"watched"}`)
			if now := settled(next); now.GetStatus() != pb.TaskStatus_TASK_STATUS_COMPLETED || firstText(t, now.GetToolResult()) != "waited for watched" {
				t.Errorf("in the end %v", now)
			}

			// whoever does not list the extension gets the result, and a stream does
			hidden := make(chan string, 1)
			go func() {
				text, err := s.call(ctx, name, "wait", `{"label":"hidden"}`)
				hidden <- text + explain(err)
			}()
			eventually(t, "the hidden task to run", func() string {
				if len(logs[name].labelled(t, "task_started", "hidden")) == 0 {
					return "it does not"
				}
				return ""
			})
			s.must(t, name, "open_gate", `{"label":"hidden"}`)
			if got := <-hidden; got != "waited for hiddenno error" {
				t.Errorf("the hidden task returned %s", got)
			}

			// a tool error is a result
			response, err := s.tools.CallTool(ctx, &pb.CallToolRequest{Target: name, Name: "broken"})
			if err != nil || !response.GetResult().GetIsError() {
				t.Errorf("a tool error of a hidden task: %v, %s", response, explain(err))
			}

			// one that is cancelled
			task = begin("wait", `{"label":"cancelled"}`)
			next = watched(task)
			next()
			if _, err := tasks.CancelTask(ctx, &pb.CancelTaskRequest{Target: name, TaskId: task.GetTaskId()}); err != nil {
				t.Fatal(explain(err))
			}
			if now := settled(next); now.GetStatus() != pb.TaskStatus_TASK_STATUS_CANCELLED {
				t.Errorf("after the cancellation %v", now)
			}

			// who leaves a hidden task has it cancelled
			leaving, leave := context.WithCancel(ctx)
			left := make(chan error, 1)
			go func() {
				_, err := s.call(leaving, name, "wait", `{"label":"left"}`)
				left <- err
			}()
			polls := func() int {
				return len(logs[name].matching(t, func(e event) bool { return e.Kind == "task_request" && e.Method == "tasks/get" }))
			}
			before := polls()
			eventually(t, "the task to run, and the bridge to ask for it", func() string {
				if len(logs[name].labelled(t, "task_started", "left")) == 0 || polls() == before {
					return "it does not"
				}
				return ""
			})
			leave()
			if err := <-left; status.Code(err) != codes.Canceled {
				t.Error(explain(err))
			}
			eventually(t, "the task to be cancelled", func() string {
				if len(logs[name].labelled(t, "task_cancelled", "left")) != 1 {
					return "it is not"
				}
				return ""
			})

			// one that asks
			task = begin("ask", `{}`)
			next = watched(task)
			now := settled(next)
			if now.GetStatus() != pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED || len(now.GetInputRequests()) != 1 {
				t.Fatalf("task %v, want a question", now)
			}
			answers := map[string]*pb.InputResponse{now.GetInputRequests()[0].GetId(): {ResultJson: new(accept)}}
			if _, err := tasks.UpdateTask(ctx, &pb.UpdateTaskRequest{Target: name, TaskId: task.GetTaskId(), InputResponses: answers}); err != nil {
				t.Fatal(explain(err))
			}
			for now.GetStatus() == pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED {
				now = settled(next)
			}
			if now.GetStatus() != pb.TaskStatus_TASK_STATUS_COMPLETED || firstText(t, now.GetToolResult()) != "Hello, Ada!" {
				t.Errorf("after the answer %v", now)
			}

			// an interactive call answers it on its stream; a hidden one is handed out with its question
			got, err := s.chat(t, &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()}, func(*pb.InputRequest) string { return accept })
			if err != nil || firstText(t, got.GetResult()) != "Hello, Ada!" {
				t.Errorf("an interactive call: %v, %s", got, explain(err))
			}
			response, err = s.tools.CallTool(ctx, &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()})
			if err != nil || response.GetTask().GetStatus() != pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED {
				t.Errorf("a hidden task that asks: %v, %s", response, explain(err))
			}

			_, err = tasks.GetTask(ctx, &pb.GetTaskRequest{Target: name, TaskId: "nobody's"})
			wantReason(t, err, codes.NotFound, "TASK_NOT_FOUND")
			wantIdle(t, s, name)
		})
	}
}

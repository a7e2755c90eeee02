package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// fastmcpStdio configures the FastMCP fixture, which speaks the tasks extension, as a child of the bridge.
func fastmcpStdio(t *testing.T) target {
	t.Helper()
	interpreter := cacheDir("venv-fastmcp", "bin", "python")
	if _, err := os.Stat(interpreter); err != nil {
		needReal(t, "FastMCP is not installed; run test/setup.sh")
	}
	script, err := filepath.Abs("../fixtures/fastmcp/server.py")
	if err != nil {
		t.Fatal(err)
	}
	return target{"command": []string{interpreter, script}}
}

func TestTasksOfARealServer(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"fastmcp": fastmcpStdio(t)})
	c := b.clients(t)
	work := func(seconds float64, handle bool) *pb.CallToolRequest {
		r := &pb.CallToolRequest{Name: "work", Arguments: pbStruct(t, map[string]any{"text": "it", "seconds": seconds})}
		if handle {
			r.ClientCapabilities = &pb.ClientCapabilities{Extensions: pbTasks(t)}
		}
		return r
	}

	// who does not know tasks gets the result
	if got := firstText(t, c.result(t, work(0.1, false))); got != "worked on it" {
		t.Error(got)
	}

	// who does gets the task, and follows it to its end
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := c.tools.CallTool(ctx, work(1, true))
	if err != nil {
		t.Fatal(describe(err))
	}
	id := out.GetTask().GetTaskId()
	if id == "" {
		t.Fatalf("outcome %v, want a task", out)
	}
	if now, err := c.tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: id}); err != nil || now.GetTask().GetStatus() != pb.TaskStatus_TASK_STATUS_WORKING {
		t.Errorf("%v %v, want a task that is worked on", now, err)
	}
	watch, err := c.tasks.WatchTask(ctx, &pb.WatchTaskRequest{TaskId: id})
	if err != nil {
		t.Fatal(err)
	}
	var last *pb.Task
	for {
		m, err := watch.Receive()
		if err != nil {
			break
		}
		if m.GetTask() != nil {
			last = m.GetTask()
		}
	}
	if last.GetStatus() != pb.TaskStatus_TASK_STATUS_COMPLETED || firstText(t, last.GetToolResult()) != "worked on it" {
		t.Errorf("the watch ended with %v", last)
	}

	// one that is cancelled, one that nobody knows
	out, err = c.tools.CallTool(ctx, work(50, true))
	if err != nil {
		t.Fatal(describe(err))
	}
	id = out.GetTask().GetTaskId()
	if _, err := c.tasks.CancelTask(ctx, &pb.CancelTaskRequest{TaskId: id}); err != nil {
		t.Fatal(describe(err))
	}
	eventually(t, "cancelled", func() string {
		now, err := c.tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: id})
		if err != nil || now.GetTask().GetStatus() != pb.TaskStatus_TASK_STATUS_CANCELLED {
			return strings.TrimSpace(now.String() + " " + describe(err))
		}
		return ""
	})
	_, err = c.tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: "nobody's"})
	wantError(t, err, connect.CodeNotFound, "TASK_NOT_FOUND")
}

// pbTasks lists the tasks extension.
func pbTasks(t *testing.T) map[string]*structpb.Struct {
	t.Helper()
	return map[string]*structpb.Struct{"io.modelcontextprotocol/tasks": pbStruct(t, nil)}
}

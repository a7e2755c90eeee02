package server

import (
	"context"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// WatchTask tells where a task stands, and each change that is seen, until it
// has ended.
func (s tasksService) WatchTask(ctx context.Context, req *pb.WatchTaskRequest, stream mcpbridgev1connect.TasksServiceWatchTaskServerStream) error {
	about, options, err := readTaskRequest(methodGetTask, req)
	if err != nil {
		return about.fail(ctx, err)
	}
	found, err := s.locate(ctx, req.GetTarget(), &about)
	if err != nil {
		return err
	}
	who, err := callerOf(ctx, found)
	if err != nil {
		return about.fail(ctx, err)
	}
	key := taskKey{target: found, who: who, id: req.GetTaskId(), meta: string(options.Meta)}
	w := s.watched.watch(ctx, s.caller, key, about, options)
	defer w.leave()
	following, end := context.WithCancel(ctx)
	defer end()
	var failed *failure
	over := false
	p := pump[pb.WatchTaskResponse]{
		next: func() (*pb.WatchTaskResponse, bool) {
			if over {
				return nil, false
			}
			state, more := w.take()
			if state == nil {
				if over = !more; over {
					failed, about.era = w.end()
					end()
				}
				return nil, false
			}
			task, err := state.in(req.GetJsonFormat())
			if err != nil {
				over, failed = true, about.badReply(err)
				end()
				return nil, false
			}
			return &pb.WatchTaskResponse{Event: &pb.WatchTaskResponse_Task{Task: task}}, true
		},
		woken: w.woken, open: stream.SendHeaders, send: stream.Send, quiet: s.keepAlive,
		alive: &pb.WatchTaskResponse{Event: &pb.WatchTaskResponse_KeepAlive{KeepAlive: &pb.KeepAlive{}}},
	}
	if err := p.run(following.Done()); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return about.build(failed)
	case !over:
		return about.fail(ctx, ctx.Err())
	}
	return nil
}

// ended reports whether a task changes no more.
func ended(task *pb.Task) bool {
	switch task.GetStatus() {
	case pb.TaskStatus_TASK_STATUS_COMPLETED, pb.TaskStatus_TASK_STATUS_FAILED, pb.TaskStatus_TASK_STATUS_CANCELLED:
		return true
	default:
		return false
	}
}

// changed compares what a watcher wants to know of.
func changed(a, b *pb.Task) bool {
	essence := func(t *pb.Task) *pb.Task {
		part := &pb.Task{
			Status: t.GetStatus(), StatusMessage: t.StatusMessage, LastUpdatedAt: t.LastUpdatedAt,
			InputRequests: t.GetInputRequests(), Outcome: t.GetOutcome(),
		}
		if decoded, err := convert.Decoded(part); err == nil {
			return decoded // in which the order of members does not count
		}
		return part
	}
	return !proto.Equal(essence(a), essence(b))
}

// mayPass reports whether a failed poll says nothing of the task.
func mayPass(f *failure) bool {
	switch f.reason {
	case reasonTargetUnavailable, reasonConnectionLost, reasonTimeout, reasonOverloaded, reasonUpstreamRateLimited, reasonUpstreamInternal:
		return true
	case reasonUpstreamHTTP:
		return f.code != connect.CodeInternal
	default:
		return false
	}
}

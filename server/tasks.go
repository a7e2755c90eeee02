package server

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// tasksService is mcpbridge.v1.TasksService (the extension
// io.modelcontextprotocol/tasks).
type tasksService struct {
	*caller

	watched *taskFeeds
}

// GetTask tells where a task stands.
func (s tasksService) GetTask(ctx context.Context, req *pb.GetTaskRequest) (*pb.GetTaskResponse, error) {
	doNotStore(ctx)
	about, options, err := readTaskRequest(methodGetTask, req)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	result, err := s.run(ctx, req.GetTarget(), &about, getTask(req.GetTaskId(), options))
	if err != nil {
		return nil, err
	}
	doNotStore(ctx) // whatever the isolation allows
	task, err := convert.Task(result.Raw, req.GetJsonFormat())
	if err != nil {
		return nil, about.build(about.badReply(err))
	}
	return &pb.GetTaskResponse{Task: task}, nil
}

// UpdateTask answers questions of a task.
func (s tasksService) UpdateTask(ctx context.Context, req *pb.UpdateTaskRequest) (*pb.UpdateTaskResponse, error) {
	about, options, err := readTaskRequest("tasks/update", req)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	answers, err := convert.InputResponses(req.GetInputResponses(), "input_responses")
	if err == nil && answers == nil {
		err = refuseField(reasonInvalidParams, "input_responses", "is empty; give answers by the ids of the task's input_requests")
	}
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	if _, err = s.run(ctx, req.GetTarget(), &about, taskCommand(func(ctx context.Context, c *mcpclient.Client) error {
		return c.UpdateTask(ctx, req.GetTaskId(), answers, options)
	})); err != nil {
		return nil, err
	}
	return &pb.UpdateTaskResponse{}, nil
}

// CancelTask asks the server to stop a task.
func (s tasksService) CancelTask(ctx context.Context, req *pb.CancelTaskRequest) (*pb.CancelTaskResponse, error) {
	about, options, err := readTaskRequest("tasks/cancel", req)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	if _, err = s.run(ctx, req.GetTarget(), &about, taskCommand(func(ctx context.Context, c *mcpclient.Client) error {
		return c.CancelTask(ctx, req.GetTaskId(), options)
	})); err != nil {
		return nil, err
	}
	return &pb.CancelTaskResponse{}, nil
}

// taskRequest is what all requests about a task have.
type taskRequest interface {
	GetTarget() string
	GetTaskId() string
	GetMeta() *structpb.Struct
}

// readTaskRequest checks a request. The scope is valid also beside an error.
func readTaskRequest(method string, req taskRequest) (scope, *mcpclient.CallOptions, error) {
	about := scope{method: method, name: req.GetTaskId(), target: req.GetTarget()}
	if req.GetTaskId() == "" {
		return about, nil, refuseField(reasonInvalidParams, "task_id", "is empty; give the task_id of a Task, as a call returned it")
	}
	meta, err := convert.Meta(req.GetMeta(), "meta")
	return about, &mcpclient.CallOptions{Meta: meta}, err
}

func getTask(id string, options *mcpclient.CallOptions) upstream {
	return upstream{send: func(ctx context.Context, c *mcpclient.Client) (*mcpclient.Result, error) {
		return c.GetTask(ctx, id, options)
	}}
}

// taskCommand is a request that is answered with nothing.
func taskCommand(send func(context.Context, *mcpclient.Client) error) upstream {
	return upstream{look: taskLookup(), send: func(ctx context.Context, c *mcpclient.Client) (*mcpclient.Result, error) {
		if err := send(ctx, c); err != nil {
			return nil, err
		}
		return &mcpclient.Result{Type: mcpclient.ResultComplete, Era: eraOfServer(c)}, nil
	}}
}

// taskLookup asks the server for the task once more: there is no list of tasks,
// and by -32602 servers refuse other things as well.
func taskLookup() lookup {
	return lookup{reasonTaskNotFound, func(c *mcpclient.Client, ctx context.Context, id string) (bool, error) {
		_, err := c.GetTask(ctx, id, nil)
		if e, ok := errors.AsType[*mcpclient.Error](err); ok && e.Kind == mcpclient.KindRPC && e.RPC.Code == mcpclient.CodeInvalidParams {
			return false, nil
		}
		return err == nil, err
	}}
}

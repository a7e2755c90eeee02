package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

const (
	// minPollInterval bounds what a server names, as the client does.
	minPollInterval = 100 * time.Millisecond
	// maxFailedPolls in a row that may pass do not end a watch: a task survives a
	// connection, so its watch does too.
	maxFailedPolls = 3
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
	w := &taskWatch{
		caller: s.caller, target: found, about: about, options: options, format: req.GetJsonFormat(),
		woken: make(chan struct{}, 1), poll: make(chan struct{}, 1),
	}
	running := s.beside(ctx, func(ctx context.Context) (*mcpclient.Result, *failure) { return nil, w.follow(ctx) })
	defer running.end()
	p := pump[pb.WatchTaskResponse]{
		next: w.take, woken: w.woken, open: stream.SendHeaders, send: stream.Send, quiet: s.keepAlive,
		alive: &pb.WatchTaskResponse{Event: &pb.WatchTaskResponse_KeepAlive{KeepAlive: &pb.KeepAlive{}}},
	}
	if err := p.run(running.over); err != nil {
		return err
	}
	if running.failed != nil {
		return w.about.build(running.failed)
	}
	return nil
}

// taskWatch is one watch of a task. The newest state waits for the caller,
// however slowly it reads.
type taskWatch struct {
	*caller

	target  *targets.Target
	about   scope // belongs to follow until that is over
	options *mcpclient.CallOptions
	format  pb.JsonFormat
	woken   chan struct{} // holds a token when there is a state to take
	poll    chan struct{} // holds a token when the server says that something changed

	mu    sync.Mutex // protects the following
	state *pb.Task   // not taken yet
}

func (w *taskWatch) take() (*pb.WatchTaskResponse, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		return nil, false
	}
	out := &pb.WatchTaskResponse{Event: &pb.WatchTaskResponse_Task{Task: w.state}}
	w.state = nil
	return out, true
}

func (w *taskWatch) put(task *pb.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = task
	notify(w.woken)
}

// follow asks for the task until it has ended: at the server's pace, and at once
// when the server tells of a change.
func (w *taskWatch) follow(ctx context.Context) *failure {
	last, f := w.look(ctx)
	if f != nil {
		return f
	}
	w.put(last)
	if ended(last) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	listening.Go(func() { w.listen(ctx) })
	failures := 0
	for {
		wait := w.interval(last)
		if f != nil {
			wait = max(wait, f.retry)
		}
		if !w.pause(ctx, wait, f != nil) {
			return w.about.classify(ctx, ctx.Err())
		}
		var now *pb.Task
		now, f = w.look(ctx)
		switch {
		case f == nil:
			failures = 0
			if changed(last, now) {
				w.put(now)
			}
			if last = now; ended(now) {
				return nil
			}
		case ctx.Err() != nil || !mayPass(f) || failures == maxFailedPolls:
			return f
		default:
			failures++
		}
	}
}

// pause waits for the time of the next poll, or until the server tells of a
// change, unless that is not to be heeded. It is false when ctx ended.
func (w *taskWatch) pause(ctx context.Context, d time.Duration, whole bool) bool {
	told := w.poll
	if whole {
		told = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-told:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// look asks for the task once.
func (w *taskWatch) look(ctx context.Context) (*pb.Task, *failure) {
	result, f := w.try(ctx, w.target, &w.about, getTask(w.about.name, w.options))
	if f != nil {
		return nil, f
	}
	task, err := convert.Task(result.Raw, w.format)
	if err != nil {
		return nil, w.about.badReply(err)
	}
	return task, nil
}

// interval is the time between two polls.
func (w *taskWatch) interval(task *pb.Task) time.Duration {
	if task.PollIntervalMs == nil {
		return w.target.TaskPollInterval()
	}
	const longest = int64(24 * time.Hour / time.Millisecond)
	return max(time.Duration(min(task.GetPollIntervalMs(), longest))*time.Millisecond, minPollInterval)
}

// listen has the server tell of changes, where it does. The subscription belongs
// to a client that may be closed once nobody else uses it; then the polls are
// what is left.
func (w *taskWatch) listen(ctx context.Context) {
	lease, err := acquire(ctx, w.target)
	if err != nil {
		return
	}
	filter := mcpclient.Filter{Tasks: []string{w.about.name}}
	sub, err := lease.Client().Listen(ctx, filter, func(context.Context, mcpclient.Notification) { notify(w.poll) })
	lease.Release() // a watch is no call that takes a place from others
	if err != nil {
		w.log.DebugContext(ctx, "the server tells nothing of its tasks", "target", w.target.Name(), "error", err)
		return
	}
	defer sub.Close()
	if !slices.Contains(sub.Acknowledged().Tasks, filter.Tasks[0]) {
		return
	}
	notify(w.poll) // something may have changed before
	select {
	case <-ctx.Done():
	case <-sub.Done():
	}
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
		return &pb.Task{
			Status: t.GetStatus(), StatusMessage: t.StatusMessage, LastUpdatedAt: t.LastUpdatedAt,
			InputRequests: t.GetInputRequests(), Outcome: t.GetOutcome(),
		}
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

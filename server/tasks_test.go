package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func (b *bridge) tasks(protocol string) mcpbridgev1connect.TasksServiceClient {
	b.t.Helper()
	return mcpbridgev1connect.NewTasksServiceClient(b.client(protocol))
}

// tasking is a server whose tool "work" becomes a task.
func tasking(states ...mcptest.TaskState) *mcptest.Server {
	server := tooled(mcptest.Modern, mcptest.StartTask(states...))
	server.Tasks = true
	return server
}

// newTask begins a task and returns its id.
func (b *bridge) newTask() string {
	b.t.Helper()
	res, err := b.tools(overGRPC).CallTool(b.t.Context(), &pb.CallToolRequest{Name: "work", ClientCapabilities: &pb.ClientCapabilities{
		Extensions: map[string]*structpb.Struct{"io.modelcontextprotocol/tasks": {}},
	}})
	if err != nil || res.GetTask().GetTaskId() == "" {
		b.t.Fatal(res, err)
	}
	return res.GetTask().GetTaskId()
}

var (
	working   = mcptest.TaskState{PollMs: "1"}
	asking    = mcptest.TaskState{Status: "input_required", PollMs: "1", Requests: `{"a":` + askForm + `,"b":` + askRoots + `}`}
	completed = mcptest.TaskState{Status: "completed", Result: `{"content":[{"type":"text","text":"done"}]}`}
	failed    = mcptest.TaskState{Status: "failed", Error: `{"code":-31000,"message":"sold out"}`}
)

func TestATaskIsAskedForAnsweredAndCancelled(t *testing.T) {
	for _, protocol := range protocols() {
		t.Run(protocol, func(t *testing.T) {
			server := tasking(working, asking, working, working)
			b := one(t, server).ready()
			id, tasks := b.newTask(), b.tasks(protocol)
			get := func() *pb.Task {
				t.Helper()
				res, err := tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: id, Meta: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}}})
				if err != nil {
					t.Fatal(err)
				}
				return res.GetTask()
			}
			if got := get(); got.GetTaskId() != id || got.GetStatus() != pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED || len(got.GetInputRequests()) != 2 || got.GetInputRequests()[0].GetId() != "a" {
				t.Errorf("got %v", got)
			}
			if got := server.Entries("tasks/get")[0].Meta("k"); string(got) != `"v"` {
				t.Errorf("meta %s", got)
			}
			for _, answered := range []string{"a", "b"} {
				if got := get().GetStatus(); got != pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED {
					t.Errorf("before the answer to %s: %v", answered, got)
				}
				if _, err := tasks.UpdateTask(t.Context(), &pb.UpdateTaskRequest{TaskId: id, InputResponses: map[string]*pb.InputResponse{answered: {ResultJson: new(accepted)}}}); err != nil {
					t.Fatal(err)
				}
			}
			if got := get().GetStatus(); got != pb.TaskStatus_TASK_STATUS_WORKING {
				t.Errorf("answered: %v", got)
			}
			if _, err := tasks.CancelTask(t.Context(), &pb.CancelTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
			if got := get().GetStatus(); got != pb.TaskStatus_TASK_STATUS_CANCELLED {
				t.Errorf("cancelled: %v", got)
			}
		})
	}
}

func TestATaskIsKeptByNoCache(t *testing.T) {
	b := one(t, tasking(working)).ready()
	url := b.url + "/mcpbridge.v1.TasksService/GetTask?encoding=json&message=%7B%22taskId%22%3A%22" + strings.ReplaceAll(b.newTask(), "ä", "%C3%A4") + "%22%7D"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := httpClient(t, false).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s, Cache-Control %q, %s", res.Status, res.Header.Get("Cache-Control"), body)
	}
}

// ways are all methods that are about one task.
func (b *bridge) ways() map[string]func(ctx context.Context, id string) error {
	tasks := b.tasks(overGRPC)
	return map[string]func(context.Context, string) error{
		"GetTask": func(ctx context.Context, id string) error {
			_, err := tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: id})
			return err
		},
		"UpdateTask": func(ctx context.Context, id string) error {
			_, err := tasks.UpdateTask(ctx, &pb.UpdateTaskRequest{TaskId: id, InputResponses: map[string]*pb.InputResponse{"a": {ResultJson: new(accepted)}}})
			return err
		},
		"CancelTask": func(ctx context.Context, id string) error {
			_, err := tasks.CancelTask(ctx, &pb.CancelTaskRequest{TaskId: id})
			return err
		},
		"WatchTask": func(ctx context.Context, id string) error {
			stream, err := tasks.WatchTask(ctx, &pb.WatchTaskRequest{TaskId: id})
			if err == nil {
				_, err = stream.Receive()
			}
			return err
		},
	}
}

func TestUnknownTasksAndServersWithoutTasks(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"shop": {server: tasking(working)}}).ready()
	for name, do := range b.ways() {
		err := do(t.Context(), "nope")
		wantError(t, err, connect.CodeNotFound, reasonTaskNotFound, `"nope"`)
		if got := detail[*pb.JsonRpcError](t, err).GetCode(); got != -32602 {
			t.Errorf("%s: JsonRpcError %d", name, got)
		}
		err = do(t.Context(), "")
		wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "task_id")
		if got := detail[*errdetails.BadRequest](t, err).GetFieldViolations()[0].GetField(); got != "task_id" {
			t.Errorf("%s: field %q", name, got)
		}
	}
	for name, server := range map[string]*mcptest.Server{"legacy": tooled(mcptest.Legacy, nil), "modern": tooled(mcptest.Modern, nil)} {
		t.Run(name, func(t *testing.T) {
			for _, do := range one(t, server).ready().ways() {
				wantError(t, do(t.Context(), "t"), connect.CodeUnimplemented, reasonMethodNotSupported)
			}
		})
	}
}

func TestAnAnswerThatTheServerRefusesIsNoUnknownTask(t *testing.T) {
	server := tasking(working)
	server.Handle = map[string]mcptest.Handler{"tasks/update": mcptest.Fail(-32602, "no such question", nil, 0)}
	b := one(t, server).ready()
	wantError(t, b.ways()["UpdateTask"](t.Context(), b.newTask()), connect.CodeInvalidArgument, reasonInvalidParams, "no such question")
	_, err := b.tasks(overGRPC).UpdateTask(t.Context(), &pb.UpdateTaskRequest{TaskId: "t"})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "input_responses")
}

func TestTasksBelongToTheAffinityOfTheirCall(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"shop": {server: tasking(working), change: func(c *config.Target) {
		c.Pool.Isolation, c.Pool.MaxConnections = config.IsolationPerKey, 0
	}}})
	for _, do := range b.ways() {
		wantError(t, do(t.Context(), "t"), connect.CodeInvalidArgument, reasonAffinityRequired, HeaderAffinity)
	}
}

// taskStream is a WatchTask under way.
type taskStream struct {
	t      *testing.T
	stream mcpbridgev1connect.TasksServiceWatchTaskClientStream
}

func (b *bridge) watchTask(protocol, id string) *taskStream {
	b.t.Helper()
	stream, err := b.tasks(protocol).WatchTask(b.t.Context(), &pb.WatchTaskRequest{TaskId: id})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = stream.Close() })
	return &taskStream{b.t, stream}
}

// next returns the next event in short.
func (s *taskStream) next() string {
	res, err := s.stream.Receive()
	switch {
	case errors.Is(err, io.EOF):
		return "end"
	case err != nil:
		return connect.CodeOf(err).String()
	case res.GetKeepAlive() != nil:
		return "alive"
	}
	task := res.GetTask()
	parts := []string{strings.ToLower(strings.TrimPrefix(task.GetStatus().String(), "TASK_STATUS_")), task.GetStatusMessage(), task.GetError().GetMessage()}
	for _, q := range task.GetInputRequests() {
		parts = append(parts, q.GetId())
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func (s *taskStream) want(events ...string) {
	s.t.Helper()
	for _, want := range events {
		if got := s.next(); !strings.HasPrefix(got, want) || want == "end" && got != want {
			s.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestAWatchTellsEachChangeAndEndsWithTheTask(t *testing.T) {
	for _, protocol := range streaming() {
		for name, c := range map[string]struct {
			last mcptest.TaskState
			want string
		}{"completed": {completed, "completed"}, "failed": {failed, "failed sold out"}} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				one := one(t, tasking(working, working, working, mcptest.TaskState{PollMs: "1", Message: "half"}, asking, c.last)).ready()
				id := one.newTask()
				s := one.watchTask(protocol, id)
				s.want("working", "working half", "input_required a b")
				for _, key := range []string{"a", "b"} {
					if _, err := one.tasks(overGRPC).UpdateTask(t.Context(), &pb.UpdateTaskRequest{TaskId: id, InputResponses: map[string]*pb.InputResponse{key: {ResultJson: new(accepted)}}}); err != nil {
						t.Fatal(err)
					}
				}
				s.want(c.want, "end")
				one.watchTask(protocol, id).want(c.want, "end")
			})
		}
	}
}

func TestAWatchOfACancelledTaskEnds(t *testing.T) {
	b := one(t, tasking(working)).ready()
	id := b.newTask()
	s := b.watchTask(overGRPC, id)
	s.want("working")
	if _, err := b.tasks(overGRPC).CancelTask(t.Context(), &pb.CancelTaskRequest{TaskId: id}); err != nil {
		t.Fatal(err)
	}
	s.want("cancelled", "end")
}

// scripted is a server whose tasks/get answers what state holds.
type scripted struct {
	*mcptest.Server

	mu    sync.Mutex
	state string // members of the task
	fail  error
}

func newScripted(state string) *scripted {
	s := &scripted{Server: tooled(mcptest.Modern, nil), state: state}
	s.Tasks = true
	s.Handle = map[string]mcptest.Handler{"tasks/get": func(context.Context, *mcptest.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return mcptest.Raw(`{"resultType":"complete","taskId":"t","createdAt":"c","ttlMs":null,` + s.state + `}`), s.fail
	}}
	return s
}

func (s *scripted) set(state string, fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.fail = state, fail
}

// polls waits for n more requests for the task.
func (s *scripted) polls(t *testing.T, n int) {
	t.Helper()
	if _, err := s.WaitFor(t.Context(), "tasks/get", s.Count("tasks/get")+n); err != nil {
		t.Fatal(err)
	}
}

// asks counts the subscriptions to the task that the server was asked for.
func (s *scripted) asks() (n int) {
	for _, e := range s.Entries("subscriptions/listen") {
		if strings.Contains(string(e.Params()), "taskIds") {
			n++
		}
	}
	return n
}

func TestAWatchIsWokenByTheServer(t *testing.T) {
	server := newTelling(`"status":"working","lastUpdatedAt":"1","pollIntervalMs":86400000`)
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	if _, err := server.WaitFor(t.Context(), "tasks/get", 2); err != nil { // once it is acknowledged
		t.Fatal(err)
	}
	server.set(`"status":"completed","lastUpdatedAt":"2","result":{"content":[]}`, nil)
	server.tell <- struct{}{}
	s.want("completed", "end")
}

func TestAWatchOutlivesAFewFailuresOfTheConnection(t *testing.T) {
	busy := &mcptest.Error{Code: -32603, Message: "busy"}
	server := newScripted(`"status":"working","lastUpdatedAt":"1","pollIntervalMs":100`)
	server.Listen.Reject = &mcptest.Error{Code: -32601, Message: "Method not found"}
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	server.set("", busy)
	server.polls(t, maxFailedPolls)
	server.set(`"status":"working","lastUpdatedAt":"2","pollIntervalMs":100`, nil)
	s.want("working")
	server.set("", busy)
	_, err := s.stream.Receive()
	wantError(t, err, connect.CodeInternal, reasonUpstreamInternal, "busy")
	if n := server.Count("tasks/get"); n < 2+maxFailedPolls+1 {
		t.Errorf("%d polls", n)
	}
	server.set("", &mcptest.Error{Code: -32602, Message: "gone"})
	_, err = b.watchTask(overGRPC, "t").stream.Receive()
	wantError(t, err, connect.CodeNotFound, reasonTaskNotFound, `"t"`)
}

func TestAWatchIsKeptAliveAndEndsWithItsCaller(t *testing.T) {
	server := newScripted(`"status":"working","lastUpdatedAt":"1"`)
	watch, done := returned()
	b := start(t, Options{limits: limits{keepAlive: 20 * time.Millisecond}, Interceptors: []connect.ServerInterceptor{watch}}, map[string]targetConfig{"shop": {server: server.Server, change: func(c *config.Target) {
		c.Tasks.PollInterval = time.Hour
	}}}).ready()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := b.tasks(overConnectJSON).WatchTask(ctx, &pb.WatchTaskRequest{TaskId: "t"})
	if err != nil {
		t.Fatal(err)
	}
	s := &taskStream{t, stream}
	s.want("working", "alive", "alive")
	cancel()
	wait(done)
	if n := server.Count("tasks/get"); n > 2 { // the second when the server acknowledged the subscription
		t.Errorf("%d polls", n)
	}
}

func TestATaskThatNeedsInputIsReturnedToWhoeverDidNotAskForTasks(t *testing.T) {
	b := one(t, tasking(working, asking)).ready()
	res, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "work"})
	if err != nil || len(res.GetTask().GetInputRequests()) != 2 {
		t.Errorf("CallTool: %v, %v", res, err)
	}
	s := b.stream(t.Context(), overGRPC, workAt(0))
	event, err := s.stream.Receive()
	if err != nil || len(event.GetOutcome().GetTask().GetInputRequests()) != 2 {
		t.Errorf("CallToolStream: %v, %v", event, err)
	}
}

func TestTheQuestionsOfAHiddenTaskAreAskedInAnInteractiveCall(t *testing.T) {
	b := one(t, tasking(working, asking, completed)).ready()
	d := b.begin(t.Context(), overGRPC, everything())
	seen := map[string]string{}
	for range 2 {
		event, err := d.next()
		if err != nil {
			t.Fatal(err)
		}
		part := strings.Fields(event)
		seen[part[2]] = part[1]
	}
	d.answer(seen["roots/list"], oneRoot)
	d.answer(seen["elicitation/create"], filled)
	d.want("outcome done", "end")
}

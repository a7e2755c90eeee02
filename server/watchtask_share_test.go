package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// telling is a scripted server that tells of changes of its task.
type telling struct {
	*scripted

	opened, closed chan struct{}   // a token for each subscription
	tell           chan struct{}   // has one subscription tell of a change
	end            chan error      // ends one, in good order with nil
	ack            <-chan struct{} // a subscription is acknowledged once it is closed; nil = at once
}

func newTelling(state string) *telling {
	s := &telling{scripted: newScripted(state), opened: make(chan struct{}, 100), closed: make(chan struct{}, 100), tell: make(chan struct{}), end: make(chan error)}
	s.Handle["subscriptions/listen"] = func(ctx context.Context, r *mcptest.Request) (any, error) {
		if !strings.Contains(string(r.Param("notifications")), `"taskIds":["t"]`) {
			return r.Default(ctx)
		}
		s.opened <- struct{}{}
		defer func() { s.closed <- struct{}{} }()
		send := func(method string, params map[string]any) {
			params["_meta"] = map[string]any{"io.modelcontextprotocol/subscriptionId": r.ID}
			r.Notify(method, params)
		}
		if s.ack != nil {
			select {
			case <-s.ack:
			case <-ctx.Done():
				return nil, mcptest.ErrSilent
			}
		}
		send("notifications/subscriptions/acknowledged", map[string]any{"notifications": r.Param("notifications")})
		for {
			select {
			case <-s.tell:
				send("notifications/tasks", map[string]any{"taskId": "t", "status": "working"})
			case err := <-s.end:
				return mcptest.Raw(`{"resultType":"complete"}`), err
			case <-ctx.Done():
				return nil, mcptest.ErrSilent
			}
		}
	}
	return s
}

const (
	rarely     = `"pollIntervalMs":86400000`
	isWorking  = `"status":"working","lastUpdatedAt":"1",` + rarely
	isHalf     = `"status":"working","statusMessage":"half","lastUpdatedAt":"2",` + rarely
	isComplete = `"status":"completed","lastUpdatedAt":"3","result":{"content":[],"structuredContent":{"n":1}}`
)

func TestWatchersOfATaskShareWhatIsAskedOfItsServer(t *testing.T) {
	server := newTelling(isWorking)
	b := one(t, server.Server).ready()
	client := b.tasks(overGRPC)
	begin := time.Now()
	var all []*taskStream
	for i := range 100 {
		stream, err := client.WatchTask(t.Context(), &pb.WatchTaskRequest{TaskId: "t", JsonFormat: []pb.JsonFormat{pb.JsonFormat_JSON_FORMAT_UNSPECIFIED, pb.JsonFormat_JSON_FORMAT_TEXT}[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		all = append(all, &taskStream{t, stream})
		all[i].want("working")
	}
	<-server.opened
	server.set(isHalf, nil)
	server.tell <- struct{}{}
	for _, s := range all {
		s.want("working half")
	}
	server.set(isComplete, nil)
	server.tell <- struct{}{}
	for i, s := range all {
		res, err := s.stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		result := res.GetTask().GetToolResult()
		if text := i%2 == 1; (result.GetStructuredContentJson() == `{"n":1}`) != text || (result.GetStructuredContent() == nil) != text {
			t.Errorf("watcher %d got %v", i, result)
		}
		s.want("end")
	}
	// the first, the one after the acknowledgement, one for each change, and
	// those for late watchers
	if got, most := server.Count("tasks/get"), 4+int(time.Since(begin)/stillFresh); got > most {
		t.Errorf("%d polls, want %d at most", got, most)
	}
	<-server.closed
	if n := len(server.opened); n != 0 {
		t.Errorf("%d subscriptions too many", n)
	}
}

func TestALaterWatcherSeesTheStateAtOnce(t *testing.T) {
	server := newTelling(isWorking)
	get, holds := server.Handle["tasks/get"], atomic.Bool{}
	held, hold := make(chan struct{}, 1), make(chan struct{})
	server.Handle["tasks/get"] = func(ctx context.Context, r *mcptest.Request) (any, error) {
		if holds.Load() {
			held <- struct{}{}
			<-hold
		}
		return get(ctx, r)
	}
	b := one(t, server.Server).ready()
	first := b.watchTask(overGRPC, "t")
	first.want("working")
	if _, err := server.WaitFor(t.Context(), "tasks/get", 2); err != nil { // the one after the acknowledgement
		t.Fatal(err)
	}
	holds.Store(true)
	server.tell <- struct{}{}
	<-held // from here on the server does not answer
	later := b.watchTask(overConnectJSON, "t")
	later.want("working")
	server.set(isComplete, nil)
	holds.Store(false)
	close(hold)
	first.want("completed", "end")
	later.want("completed", "end")
}

func TestAWatcherThatLeavesEndsNobodyElsesWatch(t *testing.T) {
	server := newTelling(isWorking)
	over, done := returned()
	b := start(t, Options{Interceptors: []connect.ServerInterceptor{over}}, map[string]targetConfig{"shop": {server: server.Server}}).ready()
	watch := func(ctx context.Context) *taskStream {
		t.Helper()
		stream, err := b.tasks(overGRPC).WatchTask(ctx, &pb.WatchTaskRequest{TaskId: "t"})
		if err != nil {
			t.Fatal(err)
		}
		s := &taskStream{t, stream}
		s.want("working")
		return s
	}
	ctx, leave := context.WithCancel(t.Context())
	watch(ctx) // which the polls began for
	<-server.opened
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	late := watch(short)
	ctx2, leave2 := context.WithCancel(t.Context())
	stays := watch(ctx2)
	leave()
	wait(done)
	if got := late.next(); got != connect.CodeDeadlineExceeded.String() {
		t.Errorf("at the deadline: %s", got)
	}
	wait(done)
	server.set(isHalf, nil)
	server.tell <- struct{}{}
	stays.want("working half")
	leave2()
	wait(done)
	<-server.closed // with the last one
	polls := server.Count("tasks/get")
	watchAgain := b.watchTask(overGRPC, "t")
	watchAgain.want("working half")
	<-server.opened
	if server.Count("tasks/get") == polls {
		t.Error("a state of before was told")
	}
}

func TestAFailureReachesEveryWatcherAsItsOwn(t *testing.T) {
	server := newTelling(isWorking)
	b := one(t, server.Server).ready()
	var all []*taskStream
	for _, protocol := range streaming() {
		s := b.watchTask(protocol, "t")
		s.want("working")
		all = append(all, s)
	}
	server.set("", &mcptest.Error{Code: -32602, Message: "gone"})
	<-server.opened
	server.tell <- struct{}{}
	for _, s := range all {
		_, err := s.stream.Receive()
		wantError(t, err, connect.CodeNotFound, reasonTaskNotFound, `"t"`)
		if got := detail[*pb.JsonRpcError](t, err).GetMessage(); got != "gone" {
			t.Errorf("JsonRpcError %q", got)
		}
	}
	wantError(t, b.ways()["WatchTask"](t.Context(), "t"), connect.CodeNotFound, reasonTaskNotFound, `"t"`)
}

func TestTasksAreSharedOnlyByWhoMaySeeThem(t *testing.T) {
	for isolation, want := range map[targets.Isolation]int{targets.Shared: 3, targets.PerKey: 4, targets.PerCaller: 3, targets.PerCall: 0} {
		t.Run(string(isolation), func(t *testing.T) {
			server := newTelling(isWorking)
			b := isolating(t, server.Server, isolation)
			meta := &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStringValue("1"), "b": structpb.NewBoolValue(true)}}
			for _, c := range []struct {
				caller, key string
				meta        *structpb.Struct
			}{{"ann", "1", nil}, {"ann", "1", nil}, {"ann", "2", nil}, {"bob", "1", nil}, {"ann", "1", meta}, {"ann", "1", meta}} {
				stream, err := b.tasks(overGRPC).WatchTask(as(t.Context(), userHeader, c.caller, HeaderAffinity, c.key), &pb.WatchTaskRequest{TaskId: "t", Meta: c.meta})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = stream.Close() })
				(&taskStream{t, stream}).want("working")
			}
			for range want {
				<-server.opened
			}
			if n := server.Count("tasks/get"); isolation == targets.PerCall && n < 6 {
				t.Errorf("%d polls for six watches that share nothing", n)
			}
			if n := len(server.opened); n != 0 {
				t.Errorf("%d subscriptions more than %d", n, want)
			}
		})
	}
}

// feedOf makes watchers of a task at a bridge's only target, without streams.
func (b *bridge) feedOf(id string) (*taskFeeds, func(context.Context) *taskWatcher) {
	b.t.Helper()
	found, err := b.set.Get("")
	if err != nil {
		b.t.Fatal(err)
	}
	fs, c := &taskFeeds{}, &caller{targets: b.set, log: b.log}
	return fs, func(ctx context.Context) *taskWatcher {
		about := scope{method: methodGetTask, name: id, target: found.Name()}
		return fs.watch(ctx, c, taskKey{target: found, id: id}, about, &mcpclient.CallOptions{})
	}
}

func TestAWatcherThatDoesNotReadSeesTheLastStateOfATask(t *testing.T) {
	server := newScripted(`"status":"working","lastUpdatedAt":"0","pollIntervalMs":1`)
	b := one(t, server.Server).ready()
	fs, watch := b.feedOf("t")
	slow, quick := watch(t.Context()), watch(t.Context())
	for i := range 5 {
		server.set(fmt.Sprintf(`"status":"working","statusMessage":"%d","lastUpdatedAt":"0","pollIntervalMs":1`, i), nil)
		for message := ""; message != fmt.Sprint(i); {
			<-quick.woken
			if state, _ := quick.take(); state != nil {
				message = state.task.GetStatusMessage()
			}
		}
	}
	server.set(isComplete, nil)
	for more := true; more; {
		<-quick.woken
		_, more = quick.take()
	}
	state, more := slow.take()
	if more || state == nil || !ended(state.task) {
		t.Errorf("took %v, more %v", state, more)
	}
	if state, _ := slow.take(); state != nil {
		t.Error("told twice")
	}
	if failed, era := slow.end(); failed != nil || era != mcpclient.EraModern {
		t.Error(failed, era)
	}
	slow.leave()
	quick.leave()
	if len(fs.byKey) != 0 {
		t.Errorf("%d feeds left", len(fs.byKey))
	}
}

func TestAFaultWhileATaskIsFollowedIsAnErrorOfItsWatchers(t *testing.T) {
	c := config.NewTarget(config.TransportStreamableHTTP)
	c.URL = mcptest.StartHTTP(t, newScripted(isWorking).Server)
	cfg := config.Default()
	cfg.Targets["shop"] = c
	fault := func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
		if call.Method == methodGetTask {
			panic("a fault")
		}
		return next(ctx, call)
	}
	set, err := targets.New(cfg, targets.Deps{Instruments: func(string, *config.Target) targets.Instruments {
		return targets.Instruments{Interceptors: []mcpclient.Interceptor{fault}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close(context.Background()) })
	b := &bridge{t: t, set: set, Server: &Server{log: slog.New(slog.DiscardHandler)}}
	fs, watch := b.feedOf("t")
	w := watch(t.Context())
	<-w.woken
	if state, more := w.take(); state != nil || more {
		t.Errorf("took %v, more %v", state, more)
	}
	if failed, _ := w.end(); failed == nil || failed.reason != reasonInternal {
		t.Errorf("ended with %v", failed)
	}
	w.leave()
	if len(fs.byKey) != 0 {
		t.Errorf("%d feeds left", len(fs.byKey))
	}
}

package server

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestWhatChangesBeforeASubscriptionIsOpenIsSeen(t *testing.T) {
	server, ack := newTelling(isWorking), make(chan struct{})
	server.ack = ack
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	<-server.opened
	server.set(isHalf, nil)
	close(ack)
	s.want("working half")
	server.set(isComplete, nil)
	server.tell <- struct{}{}
	s.want("completed", "end")
	<-server.closed
}

func TestASubscriptionMayBeAcknowledgedLate(t *testing.T) {
	t.Parallel()
	server := newScripted(isWorking)
	server.Listen.AckDelay = 5500 * time.Millisecond // the client waits five seconds
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	server.set(isHalf, nil)
	s.want("working half")
	if n := server.asks(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestASubscriptionThatEndsIsOpenedAgain(t *testing.T) {
	never := func(*telling) {}
	for name, c := range map[string]struct {
		change func(*config.Pool)
		ends   func(*telling)
	}{
		"its connection is old": {func(p *config.Pool) { p.MaxLifetime = time.Second }, never},
		"by the server":         {func(*config.Pool) {}, func(s *telling) { s.end <- nil }},
		"by its fault":          {func(*config.Pool) {}, func(s *telling) { s.end <- &mcptest.Error{Code: -32603, Message: "oops"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTelling(isWorking)
			server.ManyClients = true
			b := start(t, Options{}, map[string]targetConfig{"shop": {server: server.Server, change: func(t *config.Target) { c.change(&t.Pool) }}}).ready()
			s := b.watchTask(overGRPC, "t")
			s.want("working")
			<-server.opened
			c.ends(server)
			<-server.closed
			<-server.opened
			server.set(isHalf, nil)
			server.tell <- struct{}{}
			s.want("working half")
		})
	}
}

func TestAServerThatEndsASubscriptionWithTheTaskIsAskedAtOnce(t *testing.T) {
	server := newTelling(isWorking)
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	if _, err := server.WaitFor(t.Context(), "tasks/get", 2); err != nil { // the one after the acknowledgement
		t.Fatal(err)
	}
	server.set(isComplete, nil)
	server.end <- nil
	s.want("completed", "end")
	if n := server.asks(); n != 1 {
		t.Errorf("asked %d times to tell of an ended task", n)
	}
}

func TestAServerThatRefusesToTellOfATaskIsAskedOnce(t *testing.T) {
	for name, refusal := range map[string]mcptest.ListenOptions{
		"rejected":             {Reject: &mcptest.Error{Code: -32601, Message: "Method not found"}},
		"nothing is agreed to": {Subset: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScripted(`"status":"working","lastUpdatedAt":"1","pollIntervalMs":100`)
			server.Listen = refusal
			b := one(t, server.Server).ready()
			b.watchTask(overGRPC, "t").want("working")
			server.polls(t, 10) // a second, four times the pause before another try
			if n := server.asks(); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestTheConnectionOfAWatchedTaskIsNotIdle(t *testing.T) {
	t.Parallel()
	server := newTelling(isWorking)
	server.ManyClients = true
	b := start(t, Options{}, map[string]targetConfig{"shop": {server: server.Server, change: func(c *config.Target) {
		c.Pool.Isolation, c.Pool.MaxConnections, c.Pool.IdleTimeout = config.IsolationPerKey, 2, 2*time.Second
	}}})
	stream, err := b.tasks(overGRPC).WatchTask(as(t.Context(), HeaderAffinity, "watched"), &pb.WatchTaskRequest{TaskId: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	s := &taskStream{t, stream}
	s.want("working")
	<-server.opened
	if _, err := server.WaitFor(t.Context(), "tasks/get", 2); err != nil { // the one after the acknowledgement
		t.Fatal(err)
	}
	for range 2 { // a later connection that nobody uses ends, and then another one
		lease, err := b.set.All()[0].Acquire(t.Context(), targets.Caller{Affinity: "left alone"})
		if err != nil {
			t.Fatal(err)
		}
		left, err := lease.Client().Listen(t.Context(), mcpclient.Filter{Tasks: []string{"t"}}, func(context.Context, mcpclient.Notification) {})
		lease.Release()
		if err != nil {
			t.Fatal(err)
		}
		<-server.opened
		<-left.Done()
		<-server.closed
	}
	if n := len(server.closed) + len(server.opened); n != 0 {
		t.Error("the connection of the watch was taken for idle")
	}
	server.set(isComplete, nil)
	server.tell <- struct{}{}
	s.want("completed", "end")
}

func TestAWatchOfATaskEndsWithItsTarget(t *testing.T) {
	const silent = "before the first answer"
	for name, begin := range map[string]func(*bridge, *telling) *taskStream{
		"while it waits for changes": func(b *bridge, s *telling) *taskStream {
			w := b.watchTask(overGRPC, "t")
			w.want("working")
			<-s.opened
			return w
		},
		silent: func(b *bridge, s *telling) *taskStream {
			w := b.watchTask(overGRPC, "t")
			if _, err := s.WaitFor(b.t.Context(), "tasks/get", 1); err != nil {
				b.t.Fatal(err)
			}
			return w
		},
		"after another one took over": func(b *bridge, s *telling) *taskStream {
			w := b.watchTask(overGRPC, "t")
			w.want("working")
			<-s.opened
			other := newTelling(isWorking)
			b.reload("shop", mcptest.StartHTTP(b.t, other.Server))
			<-other.opened
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTelling(isWorking)
			if name == silent {
				server.Handle["tasks/get"] = mcptest.Silence()
			}
			b := one(t, server.Server).ready()
			w := begin(b, server)
			b.reload("shop", "", "rest", deadURL)
			_, err := w.stream.Receive()
			wantError(t, err, connect.CodeNotFound, reasonTargetNotFound, `"shop"`)
		})
	}
}

func TestAWatchOfATaskGoesOnAtTheTargetThatTakesOver(t *testing.T) {
	server, other := newTelling(isWorking), newTelling(isHalf)
	release := make(chan struct{})
	server.Handle["tools/call"] = func(context.Context, *mcptest.Request) (any, error) {
		<-release
		return mcptest.Text("done"), nil
	}
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	<-server.opened
	b.stream(t.Context(), overGRPC, workAt(0)) // which keeps the old connection
	defer close(release)
	if _, err := server.WaitFor(t.Context(), "tools/call", 1); err != nil {
		t.Fatal(err)
	}
	b.reload("shop", mcptest.StartHTTP(t, other.Server))
	s.want("working half")
	<-server.closed
	<-other.opened
	other.set(isComplete, nil)
	other.tell <- struct{}{}
	s.want("completed", "end")
}

func TestATargetThatTakesOverIsAskedForTheTask(t *testing.T) {
	server, other := newTelling(isWorking), newScripted(isHalf)
	other.Listen.Reject = &mcptest.Error{Code: -32601, Message: "Method not found"}
	b := one(t, server.Server).ready()
	s := b.watchTask(overGRPC, "t")
	s.want("working")
	<-server.opened
	b.reload("shop", mcptest.StartHTTP(t, other.Server))
	s.want("working half")
}

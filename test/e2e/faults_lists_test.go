package e2e

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

func TestFault112PagesThatLoopOrNeverEndAreAnError(t *testing.T) {
	t.Parallel()
	targets := map[string]target{}
	for name, cursors := range map[string]func(string, int, string) any{
		"same": mcptest.Cursors("A"), "cycle": mcptest.Cursors("A", "B"), "empty": mcptest.Cursors(""), "endless": mcptest.EndlessCursors(),
	} {
		targets[name] = fake(t, &mcptest.Server{Tools: []mcptest.Tool{echoTool()}, NextCursor: cursors})
	}
	s := serve(t, targets).stubs(t)
	for name := range targets {
		_, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: name})
		wantReason(t, err, codes.Internal, "UPSTREAM_PROTOCOL")
		s.must(t, name, "echo", "{}")
	}
}

func TestFault113EachCacheHasItsOwnSwitch(t *testing.T) {
	t.Parallel()
	targets, servers := map[string]target{}, map[string]*mcptest.Server{}
	for bits := range 8 {
		name := fmt.Sprintf("%03b", bits)
		servers[name] = &mcptest.Server{Tools: []mcptest.Tool{echoTool()}, Resources: []mcptest.Resource{{URI: "test://one"}}, Prompts: []mcptest.Prompt{{Name: "hi"}}, TTLMs: 3_600_000}
		targets[name] = fake(t, servers[name])
		targets[name]["cache"] = map[string]bool{"tools": bits&1 != 0, "resources": bits&2 != 0, "prompts": bits&4 != 0}
	}
	s := serve(t, targets).stubs(t)
	for name, server := range servers {
		for range 3 {
			_, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: name})
			if err == nil {
				_, err = s.resources.ListResources(t.Context(), &pb.ListResourcesRequest{Target: name})
			}
			if err == nil {
				_, err = s.prompts.ListPrompts(t.Context(), &pb.ListPromptsRequest{Target: name})
			}
			if err != nil {
				t.Fatal(explain(err))
			}
		}
		for i, method := range []string{"tools/list", "resources/list", "prompts/list"} {
			if on, n := name[2-i] == '1', server.Count(method); on && n != 1 || !on && n < 3 {
				t.Errorf("cache %s: %d times %s", name, n, method)
			}
		}
	}
}

func TestFault115TheListIsNewOnceTheChangeWasTold(t *testing.T) {
	t.Parallel()
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		var version atomic.Int64
		server := &mcptest.Server{Era: era, Tools: []mcptest.Tool{echoTool()}, Handle: map[string]mcptest.Handler{"tools/list": func(context.Context, *mcptest.Request) (any, error) {
			return mcptest.Raw(fmt.Sprintf(`{"tools":[{"name":"version-%d","inputSchema":{"type":"object"}}],"ttlMs":3600000,"cacheScope":"public"}`, version.Load())), nil
		}}}
		s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		watch, err := s.tools.WatchTools(ctx, &pb.WatchToolsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		until(t, watch.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetReady() != nil })
		for round := range 5 {
			want := fmt.Sprint("version-", round)
			for range 3 {
				list, err := s.tools.ListTools(ctx, &pb.ListToolsRequest{})
				if err != nil || len(list.GetTools()) != 1 || list.GetTools()[0].GetName() != want {
					t.Errorf("after %d changes the list is %v, %s", round, list, explain(err))
				}
			}
			version.Add(1)
			server.Notify("notifications/tools/list_changed", nil)
			until(t, watch.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetChanged() != nil })
		}
	}
}

func TestFault116AListIsKeptForAsLongAsTheServerSays(t *testing.T) {
	t.Parallel()
	targets, servers := map[string]target{}, map[string]*mcptest.Server{}
	fetches := map[string]int{"none": 2, "zero": 2, "negative": 2, "public": 1, "private": 1}
	for name, members := range map[string]string{
		"none": "", "zero": `,"ttlMs":0`, "negative": `,"ttlMs":-5`, "public": `,"ttlMs":3600000,"cacheScope":"public"`, "private": `,"ttlMs":3600000,"cacheScope":"private"`,
	} {
		servers[name] = &mcptest.Server{Prompts: []mcptest.Prompt{{Name: "hi"}}, Handle: map[string]mcptest.Handler{"prompts/list": mcptest.Respond(mcptest.Raw(`{"prompts":[]` + members + `}`))}}
		targets[name] = fake(t, servers[name])
	}
	s := serve(t, targets).stubs(t)
	for name, server := range servers {
		for range 2 {
			if _, err := s.prompts.ListPrompts(t.Context(), &pb.ListPromptsRequest{Target: name}); err != nil {
				t.Error(explain(err))
			}
		}
		wantCount(t, &server.Log, "prompts/list", fetches[name])
	}
}

func TestFault118AServerThatEndsEverySubscriptionIsAskedEverMoreSlowly(t *testing.T) {
	for _, end := range []string{"graceful", "drop", "error"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			server := &mcptest.Server{Tools: []mcptest.Tool{echoTool()}, Listen: mcptest.ListenOptions{End: end, EndAfter: 50 * time.Millisecond}}
			s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var err error
			for ready := false; !ready && ctx.Err() == nil; { // one that ends before it is ready may be refused
				var watch mcpbridgegrpc.ToolsService_WatchToolsClient
				var m *pb.WatchToolsResponse
				watch, err = s.tools.WatchTools(ctx, &pb.WatchToolsRequest{})
				for err == nil {
					m, err = watch.Recv()
					ready = ready || m.GetReady() != nil
				}
			}
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("the watch ended with %s, want that it goes on", explain(err))
			}
			if n := server.Count("subscriptions/listen"); n > 20 { // the bridge has a subscription for its cache as well
				t.Errorf("the server was asked %d times within three seconds", n)
			}
		})
	}
}

func TestFault119ABridgeWithOpenSubscriptionsEndsAtOnce(t *testing.T) {
	t.Parallel()
	overHTTP := &mcptest.Server{Resources: []mcptest.Resource{{URI: "test://one"}}}
	child, childLog := fakeChild(t, "talking")
	b := serve(t, map[string]target{"http": fake(t, overHTTP), "stdio": child})
	s := b.stubs(t)
	watch, _, err := s.resourceWatch(t.Context(), &pb.WatchResourcesRequest{Target: "http", Uris: []string{"test://one"}})
	if err != nil {
		t.Fatal(explain(err))
	}
	tools, err := s.tools.WatchTools(t.Context(), &pb.WatchToolsRequest{Target: "stdio"})
	if err == nil {
		_, err = tools.Recv()
	}
	if err != nil {
		t.Fatal(explain(err))
	}
	begin := time.Now()
	b.terminate(t)
	_, err = watch.Recv()
	wantReason(t, err, codes.Unavailable, "TARGET_UNAVAILABLE")
	_, err = tools.Recv()
	wantReason(t, err, codes.Unavailable, "TARGET_UNAVAILABLE")
	if code, _ := b.exited(t); code != 0 || time.Since(begin) > 15*time.Second { // calls would have 20
		t.Errorf("the bridge ended with %d after %v", code, time.Since(begin))
	}
	eventually(t, "the subscriptions to end", func() string {
		if n := overHTTP.Subscriptions(); n != 0 {
			return fmt.Sprint(n, " are open")
		}
		return ""
	})
	arrived(t, &childLog.Log, mcptest.MethodEOF, 1)
}

// foreign tells of changes under the ids of other subscriptions, and with the tool change under the right one.
func foreign() *mcptest.Server {
	server := &mcptest.Server{Listen: mcptest.ListenOptions{Foreign: true}}
	server.Tools = []mcptest.Tool{echoTool(), {Name: "change", Call: func(context.Context, *mcptest.Request) (any, error) {
		server.Notify("notifications/tools/list_changed", nil)
		return mcptest.Text("changed"), nil
	}}}
	return server
}

func TestFault121NotificationsOfNobodysSubscriptionAreNobodys(t *testing.T) {
	t.Parallel()
	child, _ := fakeChild(t, "foreign")
	s := serve(t, map[string]target{"one": child}).stubs(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, err := s.tools.WatchTools(ctx, &pb.WatchToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, watch.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetReady() != nil })
	changed := make(chan error, 10)
	go func() {
		for {
			_, err := watch.Recv()
			changed <- err
			if err != nil {
				return
			}
		}
	}()
	for range 20 { // each answer is behind what came with the subscription
		s.must(t, "one", "echo", "{}")
	}
	select {
	case err := <-changed:
		t.Errorf("an event that is nobody's, %s", explain(err))
	default:
	}
	s.must(t, "one", "change", "{}")
	if err := <-changed; err != nil {
		t.Error(explain(err))
	}
	cancel()
	for err := error(nil); err == nil; {
		err = <-changed
	}
}

func TestFault122AFloodOfChangesLeavesTheWatcherWithTheLastState(t *testing.T) {
	t.Parallel()
	resource := &version{uri: "test://one"}
	server := &mcptest.Server{Resources: []mcptest.Resource{resource.resource()}, Tools: []mcptest.Tool{echoTool()}}
	s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, _, err := s.resourceWatch(ctx, &pb.WatchResourcesRequest{Uris: []string{"test://one"}})
	if err != nil {
		t.Fatal(explain(err))
	}
	const changes = 20_000
	flooded := make(chan struct{})
	go func() { // more than the bridge takes at once: it may have to begin anew, and then says so
		defer close(flooded)
		for range changes {
			resource.grow(server)
		}
	}()
	events, err := s.latest(ctx, watch, resource.uri, changes)
	if err != nil {
		t.Error(explain(err))
	}
	<-flooded
	t.Logf("%d changes were told by %d events", changes, events)
	s.must(t, "one", "echo", "{}")
}

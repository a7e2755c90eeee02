package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// watching is a watch of a test.
type watching struct {
	t    *testing.T
	next func() (string, error)
}

// wants reads the next events, which are as many as are given.
func (w watching) wants(events ...string) {
	w.t.Helper()
	for _, want := range events {
		got, err := w.next()
		if err != nil {
			w.t.Fatalf("%v, want %q", err, cut(want, 200))
		}
		if got != want {
			w.t.Fatalf("event %q, want %q", cut(got, 200), cut(want, 200))
		}
	}
}

// fails reads the end of the stream.
func (w watching) fails() error {
	w.t.Helper()
	got, err := w.next()
	if err == nil {
		w.t.Fatalf("event %q, want the end", got)
	}
	return err
}

func inShort(e watchEvent) string {
	switch {
	case e.ready != nil:
		return strings.TrimSpace(fmt.Sprintf("ready %v %s", e.ready.GetListChanges(), strings.Join(e.ready.GetUris(), " ")))
	case e.list != nil:
		return "list"
	case e.updated != nil:
		return "updated " + e.updated.GetUri()
	case e.resync != nil:
		return "resync"
	case e.keepAlive != nil:
		return "alive"
	}
	return "nothing"
}

func failing(t *testing.T, err error) watching {
	return watching{t, func() (string, error) { return "", err }}
}

func (b *bridge) watchTools(ctx context.Context, protocol string, req *pb.WatchToolsRequest) watching {
	stream, err := b.tools(protocol).WatchTools(ctx, req)
	if err != nil {
		return failing(b.t, err)
	}
	return watching{b.t, func() (string, error) {
		e, err := stream.Receive()
		return inShort(watchEvent{ready: e.GetReady(), list: e.GetChanged(), resync: e.GetResync(), keepAlive: e.GetKeepAlive()}), err
	}}
}

func (b *bridge) watchPrompts(ctx context.Context, protocol string, req *pb.WatchPromptsRequest) watching {
	stream, err := b.prompts(protocol).WatchPrompts(ctx, req)
	if err != nil {
		return failing(b.t, err)
	}
	return watching{b.t, func() (string, error) {
		e, err := stream.Receive()
		return inShort(watchEvent{ready: e.GetReady(), list: e.GetChanged(), resync: e.GetResync(), keepAlive: e.GetKeepAlive()}), err
	}}
}

func (b *bridge) watchResources(ctx context.Context, protocol string, req *pb.WatchResourcesRequest) watching {
	stream, err := b.resources(protocol).WatchResources(ctx, req)
	if err != nil {
		return failing(b.t, err)
	}
	return watching{b.t, func() (string, error) {
		e, err := stream.Receive()
		return inShort(watchEvent{ready: e.GetReady(), list: e.GetListChanged(), updated: e.GetUpdated(), resync: e.GetResync(), keepAlive: e.GetKeepAlive()}), err
	}}
}

func updated(s *mcptest.Server, uri string) {
	s.Notify(mcpclient.MethodResourceUpdated, map[string]any{"uri": uri})
}

const fileA = "file:///a.txt"

func TestChangesAreWatchedOverEveryProtocol(t *testing.T) {
	for name, era := range eras {
		for _, protocol := range streaming() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				server := shop(era)
				b := one(t, server)
				tools := b.watchTools(t.Context(), protocol, &pb.WatchToolsRequest{})
				prompts := b.watchPrompts(t.Context(), protocol, &pb.WatchPromptsRequest{Target: "shop"})
				resources := b.watchResources(t.Context(), protocol, &pb.WatchResourcesRequest{Uris: []string{fileA, "db:///1", fileA}, ListChanges: true})
				tools.wants("ready true")
				prompts.wants("ready true")
				resources.wants("ready true " + fileA + " db:///1")
				for range 3 {
					updated(server, fileA)
					resources.wants("updated " + fileA)
					server.Notify(mcpclient.MethodResourcesChanged, nil)
					resources.wants("list")
				}
				server.Notify(mcpclient.MethodToolsChanged, nil)
				tools.wants("list")
				server.Notify(mcpclient.MethodPromptsChanged, nil)
				prompts.wants("list")
				updated(server, "db:///1")
				resources.wants("updated db:///1")
			})
		}
	}
}

func TestABurstOfChangesIsToldAtLeastOnceAndTheLastOneAlways(t *testing.T) {
	server := shop(mcptest.Legacy)
	b := start(t, Options{limits: limits{keepAlive: 200 * time.Millisecond}}, map[string]targetConfig{"shop": {server: server}})
	w := b.watchTools(t.Context(), overGRPC, &pb.WatchToolsRequest{})
	w.wants("ready true")
	for range 500 {
		server.Notify(mcpclient.MethodToolsChanged, nil)
	}
	told := 0
	for event := ""; event != "alive"; told++ {
		var err error
		if event, err = w.next(); err != nil {
			t.Fatal(err)
		}
	}
	if told--; told < 1 || told > 500 {
		t.Errorf("500 changes were told %d times", told)
	}
	server.Notify(mcpclient.MethodToolsChanged, nil)
	w.wants("list")
}

func TestManyWatchersShareOneSubscriptionUpstream(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			server := shop(era)
			server.Handle = map[string]mcptest.Handler{}
			b := start(t, Options{}, map[string]targetConfig{"shop": {server: server, change: func(c *config.Target) { c.Changes = config.Changes{} }}})
			client := b.resources(overGRPC)
			var all []watching
			for range 1000 {
				stream, err := client.WatchResources(t.Context(), &pb.WatchResourcesRequest{Uris: []string{fileA}})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, watching{t, func() (string, error) {
					e, err := stream.Receive()
					return inShort(watchEvent{ready: e.GetReady(), updated: e.GetUpdated(), resync: e.GetResync()}), err
				}})
			}
			for _, w := range all {
				w.wants("ready false " + fileA)
			}
			if n := server.Count("subscriptions/listen") + server.Count("resources/subscribe"); n != 1 {
				t.Errorf("%d subscriptions upstream", n)
			}
			updated(server, fileA)
			for _, w := range all {
				w.wants("updated " + fileA)
			}
		})
	}
}

func TestASilentWatchIsKeptAlive(t *testing.T) {
	for _, protocol := range streaming() {
		t.Run(protocol, func(t *testing.T) {
			server := shop(mcptest.Modern)
			b := start(t, Options{limits: limits{keepAlive: 20 * time.Millisecond}}, map[string]targetConfig{"shop": {server: server}})
			ctx := t.Context()
			for _, w := range []watching{
				b.watchTools(ctx, protocol, &pb.WatchToolsRequest{}), b.watchPrompts(ctx, protocol, &pb.WatchPromptsRequest{}),
				b.watchResources(ctx, protocol, &pb.WatchResourcesRequest{ListChanges: true}),
			} {
				w.wants("ready true", "alive", "alive")
			}
		})
	}
}

func TestWatchRequestsAreChecked(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"a": {server: shop(mcptest.Modern)}, "b": {server: shop(mcptest.Legacy)}})
	many := make([]string, maxWatchedURIs+1)
	for i := range many {
		many[i] = fmt.Sprintf("file:///%d", i)
	}
	for _, protocol := range streaming() {
		for name, c := range map[string]struct {
			req    *pb.WatchResourcesRequest
			field  string
			reason reason
		}{
			"nothing":        {&pb.WatchResourcesRequest{Target: "a"}, "uris", reasonInvalidParams},
			"too many":       {&pb.WatchResourcesRequest{Target: "a", Uris: many}, "uris", reasonInvalidParams},
			"an empty one":   {&pb.WatchResourcesRequest{Target: "a", Uris: []string{"x:y", ""}}, "uris[1]", reasonInvalidParams},
			"a long one":     {&pb.WatchResourcesRequest{Target: "a", Uris: []string{strings.Repeat("x", maxURIBytes+1)}}, "uris[0]", reasonInvalidParams},
			"without target": {&pb.WatchResourcesRequest{ListChanges: true}, "target", reasonTargetRequired},
		} {
			err := b.watchResources(t.Context(), protocol, c.req).fails()
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
			if violations := detail[*errdetails.BadRequest](t, err).GetFieldViolations(); len(violations) != 1 || violations[0].GetField() != c.field {
				t.Errorf("%s: violations %v", name, violations)
			}
		}
		wantError(t, b.watchTools(t.Context(), protocol, &pb.WatchToolsRequest{}).fails(), connect.CodeInvalidArgument, reasonTargetRequired, "target")
		wantError(t, b.watchPrompts(t.Context(), protocol, &pb.WatchPromptsRequest{Target: "c"}).fails(), connect.CodeNotFound, reasonTargetNotFound, `"c"`)
	}
	w := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Target: "a", Uris: many[:maxWatchedURIs]})
	w.wants("ready false " + strings.Join(many[:maxWatchedURIs], " "))
}

func TestWhatAServerDoesNotTellOfIsUnimplemented(t *testing.T) {
	refuse := func(status int) *mcptest.Server {
		server := shop(mcptest.Modern)
		server.Status = func(method string, _ int) *mcptest.Reply {
			if method == "subscriptions/listen" {
				return &mcptest.Reply{Status: status}
			}
			return nil
		}
		return server
	}
	rejecting, silent, dumb := shop(mcptest.Modern), shop(mcptest.Modern), shop(mcptest.Legacy)
	rejecting.Listen.Reject = &mcptest.Error{Code: mcpclient.CodeMethodNotFound, Message: "Method not found"}
	silent.Listen.Subset = `{}`
	dumb.Capabilities = `{"tools":{},"prompts":{},"resources":{}}`
	for name, server := range map[string]*mcptest.Server{"404": refuse(404), "405": refuse(405), "-32601": rejecting, "agrees to nothing": silent, "legacy": dumb} {
		t.Run(name, func(t *testing.T) {
			b := one(t, server)
			for _, w := range []watching{
				b.watchTools(t.Context(), overGRPC, &pb.WatchToolsRequest{}),
				b.watchPrompts(t.Context(), overConnect, &pb.WatchPromptsRequest{}),
				b.watchResources(t.Context(), overConnectJSON, &pb.WatchResourcesRequest{ListChanges: true, Uris: []string{fileA}}),
				b.watchResources(t.Context(), overGRPCWeb, &pb.WatchResourcesRequest{Uris: []string{fileA}}),
			} {
				wantError(t, w.fails(), connect.CodeUnimplemented, reasonMethodNotSupported, "shop")
			}
		})
	}
}

func TestUnknownResourcesAreToldFromThoseThatAreNotWatched(t *testing.T) {
	unknown := func(code int64) mcptest.Handler {
		return func(ctx context.Context, r *mcptest.Request) (any, error) {
			if r.Text("uri") != fileA {
				return nil, &mcptest.Error{Code: int(code), Message: "no"}
			}
			return r.Default(ctx)
		}
	}
	strict, vague, modern, rejecting := shop(mcptest.Legacy), shop(mcptest.Legacy), shop(mcptest.Modern), shop(mcptest.Modern)
	strict.Handle = map[string]mcptest.Handler{"resources/subscribe": unknown(mcpclient.CodeResourceNotFound)}
	vague.Handle = map[string]mcptest.Handler{"resources/subscribe": unknown(mcpclient.CodeInvalidParams)}
	modern.Listen.Subset = `{"resourceSubscriptions":["` + fileA + `"]}`
	rejecting.Handle = map[string]mcptest.Handler{"subscriptions/listen": func(ctx context.Context, r *mcptest.Request) (any, error) {
		if strings.Contains(string(r.Params), "file:///b") {
			return nil, &mcptest.Error{Code: mcpclient.CodeInvalidParams, Message: "no"}
		}
		return r.Default(ctx)
	}}
	for name, server := range map[string]*mcptest.Server{"-32002": strict, "-32602": vague, "left out": modern, "rejected": rejecting} {
		t.Run(name, func(t *testing.T) {
			b := one(t, server)
			alone := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{"file:///b"}})
			wantError(t, alone.fails(), connect.CodeNotFound, reasonResourceNotFound, "file:///b")
			if name != "rejected" {
				w := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{"file:///b", fileA}})
				w.wants("ready false " + fileA)
			} else {
				b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{fileA}}).wants("ready false " + fileA)
			}
			again := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{"file:///b"}})
			wantError(t, again.fails(), connect.CodeNotFound, reasonResourceNotFound, "file:///b")
			if name != "rejected" {
				mayExist := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{"db:///1"}})
				wantError(t, mayExist.fails(), connect.CodeUnimplemented, reasonMethodNotSupported, "db:///1")
			}
		})
	}
}

func TestWatchersAreToldOfGapsReloadsAndTheEnd(t *testing.T) {
	for _, protocol := range streaming() {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			server, other := shop(mcptest.Legacy), shop(mcptest.Modern)
			other.ManyClients = true // before and after a reload
			otherURL := mcptest.StartHTTP(t, other)
			b := one(t, server)
			w := b.watchResources(t.Context(), protocol, &pb.WatchResourcesRequest{Uris: []string{fileA}})
			w.wants("ready false " + fileA)
			server.ExpireSessions()
			if _, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"}); err != nil { // which finds out
				t.Fatal(err)
			}
			w.wants("resync")
			updated(server, fileA)
			w.wants("updated " + fileA)
			b.reload("shop", otherURL)
			w.wants("resync")
			updated(other, fileA)
			w.wants("updated " + fileA)
			b.reload("shop", "", "b", otherURL)
			wantError(t, w.fails(), connect.CodeNotFound, reasonTargetNotFound, `"shop"`)
			last := b.watchResources(t.Context(), protocol, &pb.WatchResourcesRequest{Uris: []string{fileA}})
			last.wants("ready false " + fileA)
			if err := b.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantError(t, last.fails(), connect.CodeUnavailable, reasonTargetUnavailable, "shutting down")
		})
	}
}

func TestWatchersWithDifferentKeysDoNotShare(t *testing.T) {
	server := shop(mcptest.Legacy)
	b := isolating(t, server, targets.PerKey)
	wantError(t, b.watchTools(t.Context(), overGRPC, &pb.WatchToolsRequest{}).fails(), connect.CodeInvalidArgument, reasonAffinityRequired, HeaderAffinity)
	for _, key := range []string{"one", "two", "one"} {
		w := b.watchResources(as(t.Context(), HeaderAffinity, key), overGRPC, &pb.WatchResourcesRequest{Uris: []string{fileA}})
		w.wants("ready false " + fileA)
	}
	sessions := map[string]bool{}
	for _, e := range server.Entries("resources/subscribe") {
		sessions[e.Session] = true
	}
	if n := server.Count("resources/subscribe"); n != 2 || len(sessions) != 2 {
		t.Errorf("%d subscriptions in %d sessions", n, len(sessions))
	}
}

func TestAWatchOfATargetThatIsAwayMayBeTriedAgain(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"down": {url: deadURL}})
	err := b.watchTools(t.Context(), overGRPC, &pb.WatchToolsRequest{}).fails()
	wantError(t, err, connect.CodeUnavailable, reasonTargetUnavailable, "down")
	if retry := detail[*errdetails.RetryInfo](t, err).GetRetryDelay().AsDuration(); retry <= 0 {
		t.Errorf("try again in %v", retry)
	}
}

func TestTheDeadlineOfAWatchEndsIt(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	w := b.watchTools(ctx, overGRPC, &pb.WatchToolsRequest{})
	w.wants("ready true")
	if err := w.fails(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Error(err)
	}
}

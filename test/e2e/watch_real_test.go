package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// resourceWatch begins a watch of resources and reads its first event.
func (s stubs) resourceWatch(ctx context.Context, request *pb.WatchResourcesRequest) (mcpbridgegrpc.ResourcesService_WatchResourcesClient, *pb.WatchReady, error) {
	stream, err := s.resources.WatchResources(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err == nil && first.GetReady() == nil {
		err = fmt.Errorf("the first event is %v", first)
	}
	return stream, first.GetReady(), err
}

// until reads a stream up to the event that is wanted.
func until[M any](t *testing.T, receive func() (M, error), wanted func(M) bool) M {
	t.Helper()
	for {
		m, err := receive()
		if err != nil {
			t.Fatal(explain(err))
		}
		if wanted(m) {
			return m
		}
	}
}

// updated reads a watch until it tells of the resource.
func updated(stream mcpbridgegrpc.ResourcesService_WatchResourcesClient, uri string) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetUpdated().GetUri() == uri:
			return nil
		case m.GetUpdated() != nil:
			return fmt.Errorf("%v, want %s alone", m, uri)
		}
	}
}

func TestServerEverythingTellsOfItsResources(t *testing.T) {
	t.Parallel()
	targets := map[string]target{"stdio": everythingStdio(t), "http": everythingHTTP(t)}
	s := serve(t, targets).stubs(t)
	const uri = "demo://resource/dynamic/text/1"
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			stream, ready, err := s.resourceWatch(ctx, &pb.WatchResourcesRequest{Target: name, Uris: []string{uri}})
			if err != nil || len(ready.GetUris()) != 1 || ready.GetUris()[0] != uri || ready.GetListChanges() {
				t.Fatalf("%v, %s", ready, explain(err))
			}
			s.must(t, name, "toggle-subscriber-updates", "{}") // it tells at once, and every five seconds
			if err := updated(stream, uri); err != nil {
				t.Fatal(explain(err))
			}
			s.must(t, name, "toggle-subscriber-updates", "{}")
		})
	}
}

func TestFault75ListChangesOfEveryKindReachTheirWatchers(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	targets["stdio"].pin(legacy) // the Go SDK v1.8.0 knows one subscription per child of the modern era
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			tools, err := s.tools.WatchTools(ctx, &pb.WatchToolsRequest{Target: name})
			if err != nil {
				t.Fatal(err)
			}
			prompts, err := s.prompts.WatchPrompts(ctx, &pb.WatchPromptsRequest{Target: name})
			if err != nil {
				t.Fatal(err)
			}
			resources, err := s.resources.WatchResources(ctx, &pb.WatchResourcesRequest{Target: name, ListChanges: true})
			if err != nil {
				t.Fatal(err)
			}
			until(t, tools.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetReady().GetListChanges() })
			until(t, prompts.Recv, func(m *pb.WatchPromptsResponse) bool { return m.GetReady().GetListChanges() })
			until(t, resources.Recv, func(m *pb.WatchResourcesResponse) bool { return m.GetReady().GetListChanges() })
			for round := range 2 {
				grown := fmt.Sprint("grown-", round)
				s.must(t, name, "grow", fmt.Sprintf(`{"text":%q}`, grown))
				until(t, tools.Recv, func(m *pb.WatchToolsResponse) bool { return m.GetChanged() != nil })
				// whoever lists again now finds what is new
				list, err := s.tools.ListTools(ctx, &pb.ListToolsRequest{Target: name})
				if err != nil || !strings.Contains(fmt.Sprint(names(list.GetTools(), (*pb.Tool).GetName)), grown) {
					t.Errorf("the list of tools has no %s: %s", grown, explain(err))
				}
				until(t, prompts.Recv, func(m *pb.WatchPromptsResponse) bool { return m.GetChanged() != nil })
				until(t, resources.Recv, func(m *pb.WatchResourcesResponse) bool { return m.GetListChanged() != nil })
			}
		})
	}
}

func TestThePythonSDKTellsOfItsResources(t *testing.T) {
	t.Parallel()
	overHTTP, _ := pythonHTTP(t)
	child, _ := pythonStdio(t)
	targets := map[string]target{"http": overHTTP, "stdio": child}
	s := serve(t, targets).stubs(t)
	for name := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		const uri = "test://static/one"
		stream, ready, err := s.resourceWatch(ctx, &pb.WatchResourcesRequest{Target: name, Uris: []string{uri}})
		if err != nil || len(ready.GetUris()) != 1 {
			t.Fatalf("%s: %v, %s", name, ready, explain(err))
		}
		s.must(t, name, "touch", `{"text":"test://item/other"}`)
		s.must(t, name, "touch", fmt.Sprintf(`{"text":%q}`, uri))
		if err := updated(stream, uri); err != nil {
			t.Errorf("%s: %s", name, explain(err))
		}
	}
}

func TestAThousandWatchersOfOneResourceCostOneSubscription(t *testing.T) {
	t.Parallel()
	targets, logs := everyGosdk(t)
	b := serve(t, targets)
	const uri = "test://static/one"
	subscribed := func(name string) (on, off int) {
		for _, e := range logs[name].all(t) {
			switch {
			case e.Kind == "message" && strings.Contains(string(e.Params), uri) && (e.Method == "subscriptions/listen" || e.Method == "resources/subscribe"):
				on++
			case e.Kind == "message" && e.Method == "resources/unsubscribe",
				e.Kind == "abandoned" && e.Method == "subscriptions/listen",
				e.Kind == "message" && e.Method == "notifications/cancelled":
				off++
			}
		}
		return on, off
	}
	for name := range targets {
		t.Run(name, func(t *testing.T) { // one after the other, as each is load enough
			var connections []stubs
			for range 5 { // a connection has a limited number of streams
				connections = append(connections, b.stubs(t))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			streams := make([]mcpbridgegrpc.ResourcesService_WatchResourcesClient, 1000)
			var mu sync.Mutex
			each(len(streams), func(i int) {
				stream, ready, err := connections[i%len(connections)].resourceWatch(ctx, &pb.WatchResourcesRequest{Target: name, Uris: []string{uri}})
				if err != nil || len(ready.GetUris()) != 1 {
					t.Errorf("watcher %d: %v, %s", i, ready, explain(err))
				}
				mu.Lock()
				defer mu.Unlock()
				streams[i] = stream
			})
			if t.Failed() {
				return
			}
			connections[0].must(t, name, "touch", fmt.Sprintf(`{"text":%q}`, uri))
			each(len(streams), func(i int) {
				if err := updated(streams[i], uri); err != nil {
					t.Errorf("watcher %d: %s", i, explain(err))
				}
			})
			if on, off := subscribed(name); on != 1 || off != 0 {
				t.Errorf("the server was asked %d times to tell of the resource, and %d times to stop, want 1 and 0", on, off)
			}
			cancel()
			eventually(t, "the subscription to end", func() string {
				if on, off := subscribed(name); on != 1 || off != 1 {
					return fmt.Sprintf("the server was asked %d times to tell of the resource, and %d times to stop, want 1 and 1", on, off)
				}
				return ""
			})
		})
	}
}

func TestWatchesEndWhereTheServerTellsNothing(t *testing.T) {
	t.Parallel()
	files, _ := filesystemStdio(t)
	s := serve(t, map[string]target{"files": files}).stubs(t)
	prompts, err := s.prompts.WatchPrompts(t.Context(), &pb.WatchPromptsRequest{})
	if err == nil {
		_, err = prompts.Recv()
	}
	wantReason(t, err, codes.Unimplemented, "METHOD_NOT_SUPPORTED")
	_, _, err = s.resourceWatch(t.Context(), &pb.WatchResourcesRequest{Uris: []string{"file:///x"}})
	wantReason(t, err, codes.Unimplemented, "METHOD_NOT_SUPPORTED")
}

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// version is a resource whose text is a number that grows.
type version struct {
	uri string
	now atomic.Int64
}

func (v *version) resource() mcptest.Resource {
	return mcptest.Resource{URI: v.uri, Read: func(context.Context, *mcptest.Request) (any, error) {
		return mcptest.Raw(fmt.Sprintf(`{"contents":[{"uri":%q,"text":"%d"}]}`, v.uri, v.now.Load())), nil
	}}
}

// grow changes the resource and tells of it.
func (v *version) grow(server *mcptest.Server) {
	v.now.Add(1)
	server.Notify("notifications/resources/updated", map[string]string{"uri": v.uri})
}

// latest follows a watch until somebody who looks again whenever the resource may have changed has seen what is wanted,
// and returns how many events that took.
func (s stubs) latest(ctx context.Context, watch mcpbridgegrpc.ResourcesService_WatchResourcesClient, uri string, want int) (int, error) {
	for events := 1; ; events++ {
		m, err := watch.Recv()
		if err != nil {
			return events, fmt.Errorf("after %d events: %w", events, err)
		}
		if m.GetUpdated().GetUri() != uri && m.GetResync() == nil {
			continue
		}
		response, err := s.resources.ReadResource(ctx, &pb.ReadResourceRequest{Uri: uri})
		if err != nil {
			return events, err
		}
		if contents := response.GetResult().GetContents(); len(contents) == 1 && contents[0].GetText() == fmt.Sprint(want) {
			return events, nil
		}
	}
}

var residentSet = regexp.MustCompile(`(?m)^VmRSS:\s+([0-9]+) kB$`)

// resident returns the memory of a process in MiB.
func (p *process) resident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("SKIP: no /proc: ", err)
	}
	match := residentSet.FindSubmatch(status)
	if match == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kib, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}

// The window of the stream is full within seconds; from then on nobody but the bridge holds what is told.
func TestAWatcherThatDoesNotReadForAMinuteCostsNoMemoryAndHearsTheLastChange(t *testing.T) {
	t.Parallel()
	const rate, stall, window = 1000, time.Minute, 64 << 10
	busy, last := &version{uri: "test://busy/" + strings.Repeat("x", 1000)}, &version{uri: "test://last"}
	server := &mcptest.Server{Resources: []mcptest.Resource{busy.resource(), last.resource()}}
	b := serve(t, map[string]target{"one": fake(t, server)})
	s := b.stubs(t)
	conn, err := grpc.NewClient("passthrough:///"+b.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), stall+2*patience)
	defer cancel()
	stalled, _, err := stubs{resources: mcpbridgegrpc.NewResourcesServiceClient(conn)}.resourceWatch(ctx, &pb.WatchResourcesRequest{Uris: []string{busy.uri, last.uri}})
	if err != nil {
		t.Fatal(explain(err))
	}
	reading, _, err := s.resourceWatch(ctx, &pb.WatchResourcesRequest{Uris: []string{busy.uri}})
	if err != nil {
		t.Fatal(explain(err))
	}
	var heard atomic.Int64
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			if _, err := reading.Recv(); err != nil {
				return
			}
			heard.Add(1)
		}
	})

	var memory []int // each second
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < stall; <-tick.C {
		for due := int64(time.Since(begin) * rate / time.Second); busy.now.Load() < due; {
			busy.grow(server)
		}
		if int(time.Since(begin)/time.Second) > len(memory) {
			memory = append(memory, b.resident(t))
		}
	}
	last.grow(server)
	changes, others := busy.now.Load(), heard.Load()
	events, err := s.latest(ctx, stalled, last.uri, 1)
	if err != nil {
		t.Error(explain(err))
	}
	t.Logf("of %d changes a reader heard %d, one that stopped %d; memory in MiB: %v", changes, others, events, memory)
	if changes < rate*int64(stall/time.Second)/2 {
		t.Errorf("%d changes within %v, the machine is too slow for this test", changes, stall)
	}
	if events > 3*window/len(busy.uri) { // the window, what the bridge keeps, and what is between them
		t.Errorf("%d events were kept for who did not read", events)
	}
	if others < int64(events) {
		t.Errorf("who reads heard %d times, who did not %d times", others, events)
	}
	early, late := slices.Max(memory[:10]), slices.Max(memory[len(memory)-10:])
	if late > early+32 { // half of what was told; a bridge with the race detector grows by some
		t.Errorf("the bridge grew from %d to %d MiB", early, late)
	}
	cancel()
	reader.Wait()
	wantIdle(t, s, "one")
}

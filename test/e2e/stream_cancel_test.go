package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// elicitation are the params of a question, and oneQuestion is an inputRequests object with it.
const (
	elicitation = `{"message":"Well?","requestedSchema":{"type":"object","properties":{}}}`
	oneQuestion = `{"q":{"method":"elicitation/create","params":` + elicitation + `}}`
)

// talking has tools that never end by themselves: quiet tells nothing, one reports once, busy reports without end, and
// asks has a question that is open. The tool soon reports and ends within 60 ms.
func talking(era mcptest.Era) *mcptest.Server {
	asks := func(ctx context.Context, r *mcptest.Request) (any, error) {
		if _, err := r.Ask(ctx, "elicitation/create", mcptest.Raw(elicitation)); err != nil {
			return nil, err
		}
		return mcptest.Text("answered"), nil
	}
	if era == mcptest.Modern {
		asks = mcptest.Rounds(mcptest.Respond(mcptest.Text("answered")), mcptest.Round{Requests: oneQuestion})
	}
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{
		{Name: "quiet", Call: mcptest.Silence()},
		{Name: "one", Call: mcptest.FloodProgress(1, mcptest.Silence())},
		{Name: "busy", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
			for i := 1.0; ctx.Err() == nil; i++ {
				r.Progress(i, 0, "")
				select {
				case <-time.After(time.Millisecond): // it is to be busy
				case <-ctx.Done():
				}
			}
			return nil, mcptest.ErrSilent
		}},
		{Name: "soon", Call: func(ctx context.Context, r *mcptest.Request) (any, error) {
			r.Progress(1, 1, "")
			return mcptest.Delay(rand.N(60*time.Millisecond), mcptest.Respond(mcptest.Text("done")))(ctx, r)
		}},
		{Name: "asks", Call: asks},
		echoTool(),
	}}
}

// talkers are such servers in every era and over every transport.
func talkers(t *testing.T) (map[string]target, map[string]*mcptest.Log) {
	t.Helper()
	modernServer, legacyServer := talking(mcptest.Modern), talking(mcptest.Legacy)
	modernChild, modernLog := fakeChild(t, "talking")
	legacyChild, legacyLog := fakeChild(t, "talking-legacy")
	return map[string]target{
			"http-modern": fake(t, modernServer), "http-legacy": fake(t, legacyServer), "stdio-modern": modernChild, "stdio-legacy": legacyChild,
		}, map[string]*mcptest.Log{
			"http-modern": &modernServer.Log, "http-legacy": &legacyServer.Log, "stdio-modern": &modernLog.Log, "stdio-legacy": &legacyLog.Log,
		}
}

// calledOff counts by id how often a server was told that a tool call is off: over HTTP the modern era has the end of the
// exchange for that, everything else has the notification.
func calledOff(name string, log *mcptest.Log) map[string]int {
	called, times := map[string]bool{}, map[string]int{}
	for _, e := range log.Entries("tools/call") { // first, as over HTTP a cancellation may overtake its call
		called[e.ID] = true
	}
	for _, e := range log.Transcript() {
		id := string(member(e.Params(), "requestId"))
		switch {
		case e.Method == mcptest.MethodAborted && name == "http-modern" && called[e.ID]:
			times[e.ID]++
		case e.Method == cancelled && (name == "http-modern" || called[id]):
			times[id]++
		}
	}
	return times
}

func total(times map[string]int) int {
	n := 0
	for _, each := range times {
		n += each
	}
	return n
}

// wantIdle waits until a target has no more to do.
func wantIdle(t *testing.T, s stubs, name string) {
	t.Helper()
	eventually(t, name, func() string {
		if pool := s.target(t, name).GetPool(); pool.GetInFlight() != 0 || pool.GetQueued() != 0 {
			return pool.String()
		}
		return ""
	})
}

func TestALeftStreamIsCalledOffOnce(t *testing.T) {
	t.Parallel()
	targets, logs := talkers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := logs[name]
			left := 0
			leave := func(tool string, ready func(ctx context.Context) error) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := ready(ctx); err != nil {
					t.Fatalf("%s: %s", tool, explain(err))
				}
				left++
				want := arrived(t, log, "tools/call", left).ID
				cancel()
				eventually(t, tool, func() string {
					if times := calledOff(name, log); len(times) != left || times[want] != 1 {
						return fmt.Sprintf("called off %v, want %d calls, among them %s", times, left, want)
					}
					return ""
				})
				wantIdle(t, s, name)
			}
			leave("quiet", func(ctx context.Context) error { // before the first event
				_, err := s.tools.CallToolStream(ctx, streamCall(name, "quiet", "{}", 0))
				return err
			})
			leave("one", func(ctx context.Context) error { // after one
				stream, err := s.tools.CallToolStream(ctx, streamCall(name, "one", "{}", 0))
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			})
			leave("busy", func(ctx context.Context) error { // in the middle
				stream, err := s.tools.CallToolStream(ctx, streamCall(name, "busy", "{}", 0))
				for range 20 {
					if err == nil {
						_, err = stream.Recv()
					}
				}
				return err
			})
			if got := s.must(t, name, "echo", "{}"); got != "{}" {
				t.Errorf("the next call returned %q", got)
			}
		})
	}
}

func TestWhoeverLeavesAnInteractiveCallLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	targets, logs := talkers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := logs[name]
			for round := range 10 {
				tool := []string{"one", "asks"}[round%2]
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: tool, ClientCapabilities: forms()})
				if m, err := stream.Recv(); err != nil || (m.GetInputRequest() != nil) != (tool == "asks") {
					t.Fatalf("%v, %s", m, explain(err))
				}
				cancel()
				if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
					t.Errorf("after leaving: %s", explain(err))
				}
				wantIdle(t, s, name)
				want := round + 1
				if name == "http-modern" || name == "stdio-modern" {
					want = round/2 + 1 // a server that asked has no call, until it is answered
				}
				eventually(t, "the call to be called off", func() string {
					if got := total(calledOff(name, log)); got != want { // one call of each connection twice is a violation
						return fmt.Sprintf("called off %d times, want %d", got, want)
					}
					return ""
				})
				arrived(t, log, "tools/call", round+1)
			}
			wantCount(t, log, "tools/call", 10)
			if pool := s.target(t, name).GetPool(); pool.GetInteractive() > 1 || pool.GetConnections() > 2 {
				t.Errorf("what is left: %v", pool)
			}
		})
	}
}

func TestStreamsThatAreLeftAtAnyMomentAreCalledOffOnceEach(t *testing.T) {
	t.Parallel()
	targets, logs := talkers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.must(t, name, "echo", "{}")
			each(10, func(i int) {
				for round := range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(60*time.Millisecond))
					tool := []string{"quiet", "one", "busy", "soon"}[(i+round)%4]
					_, err := s.follow(ctx, streamCall(name, tool, "{}", 0), nil)
					if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Canceled && (tool != "soon" || err != nil) {
						t.Errorf("%s: %s", tool, explain(err))
					}
					cancel()
				}
			})
			wantIdle(t, s, name)
			log := logs[name]
			check := func() string {
				times := calledOff(name, log)
				for _, call := range log.Entries("tools/call") {
					n, least := times[call.ID], 1
					switch string(member(call.Params(), "name")) {
					case `"soon"`: // it may have ended before
						least = 0
					case `"echo"`:
						continue
					}
					if delete(times, call.ID); n < least || n > 1 {
						return fmt.Sprintf("call %s was called off %d times", call.ID, n)
					}
				}
				if len(times) != 0 {
					return fmt.Sprintf("of other calls the server was told that they are off: %v", times)
				}
				return ""
			}
			eventually(t, "every call to be called off", check)
			t.Logf("%d of 100 reached the server", log.Count("tools/call")-1)
			if got := s.must(t, name, "echo", "{}"); got != "{}" {
				t.Errorf("the next call returned %q", got)
			}
			if problem := check(); problem != "" {
				t.Error(problem)
			}
		})
	}
}

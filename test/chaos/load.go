package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// call is one call and its outcome.
type call struct {
	id, target string
	probe      bool // of the wait for a target that is back, not of the load
	warm       bool // of the warm-up
	start, end time.Time
	code       codes.Code
	reason     string        // of google.rpc.ErrorInfo, with the domain mcpbridge
	retry      time.Duration // of google.rpc.RetryInfo; -1 = none
	message    string
}

func (c call) ok() bool { return c.code == codes.OK && c.reason == "" }

// outcome is code and reason, or "OK".
func (c call) outcome() string {
	if c.ok() {
		return "OK"
	}
	if c.reason == "" {
		return c.code.String() + " without a reason"
	}
	return c.code.String() + " " + c.reason
}

func (c call) String() string {
	return fmt.Sprintf("%s %s, %v long: %s %q", c.start.Format("15:04:05.000"), c.id, c.end.Sub(c.start).Round(time.Millisecond), c.outcome(), c.message)
}

// connections is how many gRPC connections carry the load.
const connections = 4

// load calls the bridge with grpc-go and remembers every outcome.
type load struct {
	targets  []*target
	interval time.Duration // between two calls to one target
	conns    []*grpc.ClientConn
	tools    map[string]mcpbridgegrpc.ToolsServiceClient

	pending sync.WaitGroup // calls under way

	mu       sync.Mutex // guards what follows
	measured bool       // the warm-up is over
	next     int
	done     []call
	lag      time.Duration // the latest start of a call, after its time
}

func newLoad(address string, all []*target, rate float64) (*load, error) {
	l := &load{targets: all, interval: time.Duration(float64(time.Second) * float64(len(all)) / rate), tools: map[string]mcpbridgegrpc.ToolsServiceClient{}}
	for range connections {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, conn)
	}
	for i, t := range all {
		l.tools[t.name] = mcpbridgegrpc.NewToolsServiceClient(l.conns[i%connections])
	}
	return l, nil
}

func (l *load) close() {
	for _, conn := range l.conns {
		_ = conn.Close() // nothing is under way
	}
}

// run calls every target in its interval, whatever becomes of the calls, until ctx ends; then it waits for those
// under way. Each call takes as long as delay says.
func (l *load) run(ctx context.Context, delay func() time.Duration) {
	var wg sync.WaitGroup
	began := time.Now()
	for i, t := range l.targets {
		wg.Go(func() {
			due := began.Add(l.interval * time.Duration(i) / time.Duration(len(l.targets)))
			for ; pause(ctx, time.Until(due)); due = due.Add(l.interval) {
				l.late(time.Since(due))
				l.start(ctx, t, false, delay(), nil)
			}
		})
	}
	wg.Wait()
	l.pending.Wait()
}

func (l *load) late(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = max(l.lag, by)
}

// start makes one call without waiting for it. The end of ctx does not end the call.
func (l *load) start(ctx context.Context, t *target, probe bool, delay time.Duration, then func(call)) {
	l.pending.Go(func() {
		c := l.call(context.WithoutCancel(ctx), t, probe, delay)
		if then != nil {
			then(c)
		}
	})
}

// someDelay is what a call takes at a server that is well: some time, so that calls are under way when it is killed.
func someDelay() time.Duration { return rand.N(100 * time.Millisecond) }

// call makes one call and remembers it.
func (l *load) call(ctx context.Context, t *target, probe bool, delay time.Duration) call {
	l.mu.Lock()
	l.next++
	c := call{id: fmt.Sprintf("%s/%d", t.name, l.next), target: t.name, probe: probe, warm: !l.measured}
	l.mu.Unlock()
	arguments, err := structpb.NewStruct(map[string]any{"id": c.id, "delay_ms": float64(delay.Milliseconds())})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		c.start = time.Now()
		var response *pb.CallToolResponse
		response, err = l.tools[t.name].CallTool(ctx, &pb.CallToolRequest{Target: t.name, Name: toolName, Arguments: arguments})
		c.end = time.Now()
		c.judge(response, err)
	} else {
		c.judge(nil, err)
	}
	l.mu.Lock()
	l.done = append(l.done, c)
	l.mu.Unlock()
	return c
}

// judge takes the outcome from the answer.
func (c *call) judge(response *pb.CallToolResponse, err error) {
	c.retry = -1
	if err == nil {
		content := response.GetResult().GetContent()
		if response.GetResult().GetIsError() || len(content) != 1 || content[0].GetText().GetText() != c.id {
			c.reason, c.message = "WRONG_RESULT", response.String()
		}
		return
	}
	s := status.Convert(err)
	c.code, c.message = s.Code(), s.Message()
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == "mcpbridge" {
				c.reason = d.GetReason()
			}
		case *errdetails.RetryInfo:
			c.retry = d.GetRetryDelay().AsDuration()
		}
	}
}

// probeEvery is the pace of probe.
const probeEvery = 50 * time.Millisecond

// probe calls a target at a fast pace until one call succeeds, and tells when that was; zero when none does within
// patience.
func (l *load) probe(ctx context.Context, t *target) time.Time {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	var served time.Time
	for due := time.Now(); pause(ctx, time.Until(due)); due = due.Add(probeEvery) {
		l.start(ctx, t, true, 0, func(c call) {
			mu.Lock()
			defer mu.Unlock()
			if c.ok() && (served.IsZero() || c.end.Before(served)) {
				served = c.end
				cancel()
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	return served
}

// measure ends the warm-up.
func (l *load) measure() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measured, l.lag = true, 0
}

// calls are all calls so far, and by how much the driver itself was late at most.
func (l *load) calls() ([]call, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.done), l.lag
}

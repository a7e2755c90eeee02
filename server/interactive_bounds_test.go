package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestNoEventIsTooLargeForAnOrdinaryClient(t *testing.T) {
	b := one(t, tooled(mcptest.Modern, func(_ context.Context, r *mcptest.Request) (any, error) {
		r.Progress(1, 0, strings.Repeat("p", 5<<20))
		r.LogMessage("info", make([]int, 400_000)) // 800 kB of text, 5 MB as a Value
		r.LogMessage("info", strings.Repeat("x", 5<<20))
		r.LogMessage("info", "last")
		return mcptest.Text("done"), nil
	})).ready()
	transport := connecthttp.NewTransport(httpClient(t, true), b.url, connecthttp.WithGRPC(), connecthttp.WithReadMaxBytes(4<<20))
	stream, err := mcpbridgev1connect.NewToolsServiceClient(connect.NewClient(transport)).CallToolStream(t.Context(), workAt(pb.LogLevel_LOG_LEVEL_INFO))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got []string
	for {
		res, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case res.GetProgress() != nil:
			got = append(got, "progress")
		case res.GetLog() != nil:
			m := res.GetLog()
			got = append(got, fmt.Sprint("log ", m.GetData().GetStringValue(), " ", len(m.GetDataJson()), " ", m.GetDropped()))
		case res.GetOutcome() != nil:
			got = append(got, short(res))
		}
	}
	if diff := cmp.Diff([]string{"progress", "log  800001 0", "log last 0 1", "outcome done"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ordinary calls work on the server of [asker] as a client does that keeps to the usual limit of a message.
func (b *bridge) ordinary(ask ...string) *dialogue {
	b.t.Helper()
	transport := connecthttp.NewTransport(httpClient(b.t, true), b.url, connecthttp.WithGRPC(), connecthttp.WithReadMaxBytes(4<<20))
	stream, err := mcpbridgev1connect.NewToolsServiceClient(connect.NewClient(transport)).CallToolInteractive(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = stream.Close() })
	d := &dialogue{b.t, stream}
	call := &pb.CallToolRequest{Name: "work", ArgumentsJson: new(`{"ask":[` + strings.Join(ask, ",") + `]}`), ClientCapabilities: everything()}
	d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{Call: call}}})
	return d
}

func TestAQuestionThatGrowsInAStructComesAsText(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			d := one(t, asker(era)).ready().ordinary(`{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"metadata":{"x":[` + strings.Repeat("0,", 500_000) + `0]}}}`)
			d.want("ask 1 sampling/createMessage")
		})
	}
}

func TestAQuestionThatNoClientTakesIsRefused(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			d := one(t, asker(era)).ready().ordinary(`{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"metadata":{"x":"` + strings.Repeat("x", maxQuestionBytes) + `"}}}`)
			if era == mcptest.Modern {
				d.wantError(connect.CodeResourceExhausted, reasonTooLarge, "", "3 MiB")
			} else if event, err := d.next(); err != nil || !strings.Contains(event, "overloaded") { // the server hears of it and goes on
				t.Errorf("got %q, %v", event, err)
			}
		})
	}
}

func TestOpenQuestionsAreBoundedInBytes(t *testing.T) {
	q := newQuestions(newFeed(0), 0, everything(), nil)
	q.ended = make(chan struct{})
	large := jsontext.Value(`{"x":"` + strings.Repeat("x", maxQuestionBytes-8) + `"}`)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	open := 0
	for ; open*len(large) <= maxOpenBytes-len(large); open++ {
		asking.Go(func() { _, _ = q.answer(ctx, methodRoots, large) })
		<-q.events.woken
		if _, ok := q.events.take(); !ok { // the caller has it, and still it is open
			t.Fatal("no question")
		}
	}
	var rpc *jsonrpc.Error
	if _, err := q.answer(ctx, methodRoots, large); !errors.As(err, &rpc) || open < 2 {
		t.Errorf("after %d open questions: %v", open, err)
	}
	cancel()
	asking.Wait()
	if q.bytes != 0 {
		t.Errorf("%d bytes are counted for no question", q.bytes)
	}
}

func TestALateAnswerToAnyWithdrawnQuestionIsIgnored(t *testing.T) {
	q := newQuestions(newFeed(0), 0, everything(), nil)
	q.ended = make(chan struct{})
	const many = 2 * maxAnswered
	for n := range many {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := q.answer(ctx, methodRoots, nil)
			asked <- err
		}()
		<-q.events.woken
		if e, ok := q.events.take(); !ok || e.question == nil {
			t.Fatal("no question")
		}
		if n%2 == 1 {
			if err := q.take(&pb.InputResponse{Id: strconv.Itoa(n + 1), ResultJson: new("{}")}); err != nil {
				t.Fatal(err)
			}
		} else {
			cancel()
		}
		if err := <-asked; (err == nil) != (n%2 == 1) {
			t.Fatal(err)
		}
		cancel()
		for _, ok := q.events.take(); ok; _, ok = q.events.take() {
		}
		select {
		case <-q.events.woken:
		default:
		}
	}
	late := func(id int) error { return q.take(&pb.InputResponse{Id: strconv.Itoa(id), ResultJson: new("{}")}) }
	if err := late(1); err != nil {
		t.Errorf("a late answer to a withdrawn question: %v", err)
	}
	for id, what := range map[int]string{many: "answered already", many + 1: "no question"} {
		var f *failure
		if err := late(id); !errors.As(err, &f) || !strings.Contains(f.message, what) {
			t.Errorf("answer to %d: %v, want %q", id, err, what)
		}
	}
}

func TestAMistakeOfTheCallerReplacesNothingButItsCancellation(t *testing.T) {
	q := newQuestions(newFeed(0), 0, nil, nil)
	q.rejected = refuse(reasonInvalidParams, "a mistake")
	for r, want := range map[reason]reason{reasonCanceled: reasonInvalidParams, reasonMCPError: reasonMCPError, reasonOutcomeUnknown: reasonOutcomeUnknown} {
		if got := q.explain(scope{}, refuse(r, "")); got.reason != want {
			t.Errorf("%s became %s, want %s", r, got.reason, want)
		}
	}
	if got := q.explain(scope{}, nil); got != nil {
		t.Errorf("a result became %v", got)
	}
}

func TestACallThatWasLeftSharesNoConnectionWithTheNext(t *testing.T) {
	server := asker(mcptest.Legacy)
	b := one(t, server).ready()
	call := func(leave bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d := b.begin(ctx, overGRPC, everything(), askRoots)
		d.want("ask 1 roots/list")
		if leave {
			cancel()
			if event, err := d.next(); err == nil {
				t.Errorf("the call that was left goes on: %s", event)
			}
			wantCancelled(t, server, 1) // also though the connection ends
			return
		}
		d.answer("1", oneRoot)
		d.want("outcome "+oneRoot, "end")
	}
	for i, c := range []struct {
		leave    bool
		sessions int
	}{{false, 2}, {true, 2}, {false, 3}, {false, 3}} { // one is that of all other calls
		call(c.leave)
		if n := server.Count("initialize"); n != c.sessions {
			t.Errorf("after call %d: %d sessions, want %d", i+1, n, c.sessions)
		}
	}
}

func TestACallThatWasNeverSentLeavesItsConnection(t *testing.T) {
	gate := make(chan struct{})
	var slow atomic.Bool
	server := asker(mcptest.Legacy)
	server.Handle = map[string]mcptest.Handler{"initialize": func(ctx context.Context, r *mcptest.Request) (any, error) {
		if slow.Load() {
			<-gate
		}
		return r.Default(ctx)
	}}
	b := one(t, server).ready()
	slow.Store(true)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		d := b.begin(ctx, overGRPC, everything())
		if _, err := d.next(); err == nil {
			t.Error("a call without a connection succeeded")
		}
		cancel()
	}
	close(gate)
	b.begin(t.Context(), overGRPC, everything()).want("outcome ", "end")
	if n := server.Count("initialize"); n != 2 {
		t.Errorf("%d sessions were begun, want one for all interactive calls and the first", n)
	}
}

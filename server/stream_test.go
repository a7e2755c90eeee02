package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// eras are the kinds of servers.
var eras = map[string]mcptest.Era{"modern": mcptest.Modern, "legacy": mcptest.Legacy}

// streaming are the ways to call a method that streams to the caller.
func streaming() []string {
	return []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect, overConnectJSON}
}

// tooled is a server with one tool, "work", that may log.
func tooled(era mcptest.Era, call mcptest.Handler) *mcptest.Server {
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{{Name: "work", Call: call}}, Logging: mcptest.LoggingOptions{On: true}, ManyClients: true}
}

// toolStream is a CallToolStream under way.
type toolStream struct {
	t      *testing.T
	stream mcpbridgev1connect.ToolsServiceCallToolStreamClientStream
}

func (b *bridge) stream(ctx context.Context, protocol string, req *pb.CallToolStreamRequest) *toolStream {
	b.t.Helper()
	stream, err := b.tools(protocol).CallToolStream(ctx, req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = stream.Close() })
	return &toolStream{b.t, stream}
}

func workAt(level pb.LogLevel) *pb.CallToolStreamRequest {
	return &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "work"}, LogLevel: level}
}

// short is one event in a few characters.
func short(res *pb.CallToolStreamResponse) string {
	switch e := res.GetEvent().(type) {
	case *pb.CallToolStreamResponse_Progress:
		text := fmt.Sprint("progress ", e.Progress.GetProgress())
		if e.Progress.Total != nil {
			text += fmt.Sprint("/", e.Progress.GetTotal())
		}
		return strings.TrimSpace(text + " " + e.Progress.GetMessage())
	case *pb.CallToolStreamResponse_Log:
		return fmt.Sprint("log ", e.Log.GetLevel().Number(), " ", e.Log.GetData().GetStringValue())
	case *pb.CallToolStreamResponse_Outcome:
		return "outcome " + e.Outcome.GetResult().GetContent()[0].GetText().GetText()
	case *pb.CallToolStreamResponse_KeepAlive:
		return "alive"
	}
	return fmt.Sprint("what? ", res)
}

// next returns the next event in short; the error's code at the end.
func (s *toolStream) next() string {
	res, err := s.stream.Receive()
	switch {
	case errors.Is(err, io.EOF):
		return "end"
	case err != nil:
		return connect.CodeOf(err).String()
	}
	return short(res)
}

// rest returns all further events, the end included.
func (s *toolStream) rest() []string {
	var out []string
	for {
		out = append(out, s.next())
		if last := out[len(out)-1]; last == "end" || !strings.Contains(last, " ") && last != "alive" {
			return out
		}
	}
}

func wantRest(t *testing.T, s *toolStream, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.rest()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// lockstep is a tool that goes on only after the caller has received each of
// its events; whatever is held back anywhere is a deadlock.
func lockstep(received <-chan struct{}) mcptest.Handler {
	return func(ctx context.Context, r *mcptest.Request) (any, error) {
		for n := range 5 {
			if n%2 == 0 {
				r.Progress(float64(n), 5, fmt.Sprint("step ", n))
			} else {
				r.LogMessage("warning", fmt.Sprint("at ", n))
			}
			select {
			case <-received:
			case <-ctx.Done():
				return nil, mcptest.ErrSilent
			}
		}
		return mcptest.Text("done"), nil
	}
}

func TestEachEventReachesTheCallerBeforeTheToolGoesOn(t *testing.T) {
	for name, era := range eras {
		for _, protocol := range streaming() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				received := make(chan struct{})
				b := one(t, tooled(era, lockstep(received))).ready()
				ctx, info := connect.NewClientContext(t.Context())
				s := b.stream(ctx, protocol, workAt(pb.LogLevel_LOG_LEVEL_INFO))
				for _, want := range []string{"progress 0/5 step 0", "log 4 at 1", "progress 2/5 step 2", "log 4 at 3", "progress 4/5 step 4"} {
					if got := s.next(); got != want {
						t.Fatalf("got %q, want %q", got, want)
					}
					received <- struct{}{}
				}
				wantRest(t, s, "outcome done", "end")
				if got := info.ResponseHeader().Get(HeaderTarget); got != "shop" {
					t.Errorf("%s: %q", HeaderTarget, got)
				}
			})
		}
	}
}

func TestStreamsAtTheSameTimeSeeTheirOwnEventsOnly(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			b := one(t, tooled(era, func(_ context.Context, r *mcptest.Request) (any, error) {
				who := strings.Trim(string(r.Param("arguments")), `{}"n:`)
				for n := range 3 {
					r.Progress(float64(n+1), 0, who)
					r.LogMessage("error", who)
				}
				return mcptest.Text(who), nil
			})).ready()
			tools := b.tools(overGRPC)
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					who := fmt.Sprint(i)
					req := workAt(pb.LogLevel_LOG_LEVEL_DEBUG)
					req.Call.ArgumentsJson = new(`{"n":"` + who + `"}`)
					stream, err := tools.CallToolStream(t.Context(), req)
					if err != nil {
						t.Error(err)
						return
					}
					s := &toolStream{t, stream}
					got := s.rest()
					outcomes := 0
					for _, e := range got[:len(got)-1] {
						if !strings.HasSuffix(e, " "+who) {
							t.Errorf("stream %s has %q", who, e)
						}
						if strings.HasPrefix(e, "outcome") {
							outcomes++
						}
					}
					if outcomes != 1 || got[len(got)-1] != "end" || !strings.HasPrefix(got[len(got)-2], "outcome") {
						t.Errorf("stream %s: %q", who, got)
					}
				})
			}
			all.Wait()
		})
	}
}

func TestASlowReaderGetsTheNewestAndTheOutcome(t *testing.T) {
	const events = 1000
	for _, protocol := range streaming() {
		t.Run(protocol, func(t *testing.T) {
			told := make(chan struct{})
			b := start(t, Options{}, map[string]targetConfig{"shop": {server: tooled(mcptest.Modern, func(_ context.Context, r *mcptest.Request) (any, error) {
				for n := range events {
					r.Progress(float64(n+1), 0, "")
					r.LogMessage("info", fmt.Sprintf("%d %s", n, strings.Repeat("x", 20_000)))
				}
				close(told)
				return mcptest.Text("done"), nil
			}), change: func(c *config.Target) { c.Dispatch.MaxInFlight = 0 }}}).ready()
			s := b.stream(t.Context(), protocol, workAt(pb.LogLevel_LOG_LEVEL_DEBUG))
			if got := s.next(); !strings.HasPrefix(got, "progress") && !strings.HasPrefix(got, "log") {
				t.Fatal(got)
			}
			<-told // the server is never held up by who does not read
			logs, dropped, last := 0, 0, 0.0
			var outcome *pb.CallToolResponse
			for {
				res, err := s.stream.Receive()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if m := res.GetLog(); m != nil {
					logs++
					dropped += int(m.GetDropped())
				}
				if p := res.GetProgress(); p != nil {
					if p.GetProgress() <= last {
						t.Errorf("progress %v after %v", p.GetProgress(), last)
					}
					last = p.GetProgress()
				}
				outcome = res.GetOutcome()
			}
			if outcome.GetResult().GetContent()[0].GetText().GetText() != "done" || last != events {
				t.Errorf("outcome %v, last progress %v", outcome, last)
			}
			if dropped == 0 || logs+dropped < events-1 || logs+dropped > events {
				t.Errorf("%d log messages and %d dropped", logs, dropped)
			}
		})
	}
}

func TestNothingButKeepAlivesComesWhileNothingHappens(t *testing.T) {
	for _, protocol := range streaming() {
		t.Run(protocol, func(t *testing.T) {
			gate := make(chan struct{})
			b := start(t, Options{limits: limits{keepAlive: 20 * time.Millisecond}}, map[string]targetConfig{"shop": {server: tooled(mcptest.Legacy, mcptest.After(gate, mcptest.Respond(mcptest.Text("done"))))}})
			s := b.stream(t.Context(), protocol, workAt(0))
			for range 3 {
				if got := s.next(); got != "alive" {
					t.Fatal(got)
				}
			}
			close(gate)
			got := s.rest()
			if last := got[len(got)-2]; last != "outcome done" {
				t.Error(last)
			}
		})
	}
}

func TestLogsComeOnlyAsAskedFor(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			server := tooled(era, func(_ context.Context, r *mcptest.Request) (any, error) {
				for _, level := range []string{"debug", "warning", "alert"} {
					r.LogMessage(level, level)
				}
				return mcptest.Text("done"), nil
			})
			server.Logging.IgnoreLevel = true
			b := one(t, server).ready()
			wantRest(t, b.stream(t.Context(), overGRPC, workAt(0)), "outcome done", "end")
			wantRest(t, b.stream(t.Context(), overGRPC, workAt(pb.LogLevel_LOG_LEVEL_WARNING)), "log 4 warning", "log 7 alert", "outcome done", "end")
			level := server.Entries("tools/call")[1].Meta("io.modelcontextprotocol/logLevel")
			if want := map[string]string{"modern": `"warning"`, "legacy": ""}[name]; string(level) != want {
				t.Errorf("the server was asked for %s", level)
			}
		})
	}
}

func TestErrorsOfAStreamAreThoseOfTheCall(t *testing.T) {
	for _, protocol := range streaming() {
		for _, events := range []int{0, 2} {
			t.Run(fmt.Sprint(protocol, "/", events), func(t *testing.T) {
				b := one(t, tooled(mcptest.Legacy, func(_ context.Context, r *mcptest.Request) (any, error) {
					for n := range events {
						r.LogMessage("info", fmt.Sprint(n))
					}
					return nil, &mcptest.Error{Code: -31000, Message: "sold out"}
				})).ready()
				s := b.stream(t.Context(), protocol, workAt(pb.LogLevel_LOG_LEVEL_INFO))
				for n := range events {
					if got := s.next(); got != fmt.Sprint("log 2 ", n) {
						t.Error(got)
					}
				}
				_, err := s.stream.Receive()
				wantError(t, err, connect.CodeUnknown, reasonMCPError, `"shop"`, `"work"`, "-31000", "sold out")
				if got := detail[*errdetails.ErrorInfo](t, err).GetMetadata()["era"]; got != "legacy" {
					t.Errorf("era %q", got)
				}
			})
		}
	}
}

func TestRequestsOfStreamsAreCheckedAsThoseOfCalls(t *testing.T) {
	server := tooled(mcptest.Modern, nil)
	b := start(t, Options{}, map[string]targetConfig{"shop": {server: server}, "other": {server: shop(mcptest.Modern)}}).ready()
	for name, c := range map[string]struct {
		req    *pb.CallToolStreamRequest
		code   connect.Code
		reason reason
		field  string
	}{
		"no call":        {&pb.CallToolStreamRequest{}, connect.CodeInvalidArgument, reasonInvalidParams, "call"},
		"no name":        {&pb.CallToolStreamRequest{Call: &pb.CallToolRequest{}}, connect.CodeInvalidArgument, reasonInvalidParams, "call.name"},
		"broken JSON":    {&pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "work", ArgumentsJson: new("{")}}, connect.CodeInvalidArgument, reasonJSONInvalid, "call.arguments_json"},
		"no target":      {workAt(0), connect.CodeInvalidArgument, reasonTargetRequired, "call.target"},
		"unknown level":  {workAt(9), connect.CodeInvalidArgument, reasonInvalidParams, "log_level"},
		"negative level": {workAt(-1), connect.CodeInvalidArgument, reasonInvalidParams, "log_level"},
		"unknown target": {&pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "work", Target: "x"}}, connect.CodeNotFound, reasonTargetNotFound, ""},
		"unknown tool":   {&pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "x", Target: "shop"}}, connect.CodeNotFound, reasonToolNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.stream(t.Context(), overGRPC, c.req).stream.Receive()
			wantError(t, err, c.code, c.reason)
			var field string
			if bad := detail[*errdetails.BadRequest](t, err).GetFieldViolations(); len(bad) == 1 {
				field = bad[0].GetField()
			}
			if field != c.field {
				t.Errorf("the field is %q, want %q", field, c.field)
			}
		})
	}
	if n := server.Count("tools/call"); n != 1 {
		t.Errorf("%d calls reached the server, want that of the unknown tool", n)
	}
}

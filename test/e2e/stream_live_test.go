package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// told is what a stream told of one call.
type told struct {
	steps   []*pb.Progress
	logs    []*pb.LogMessage
	outcome *pb.CallToolResponse
}

// follow reads the stream of a call to its end; each sees every event as it comes.
func (s stubs) follow(ctx context.Context, request *pb.CallToolStreamRequest, each func(*pb.CallToolStreamResponse) error) (told, error) {
	stream, err := s.tools.CallToolStream(ctx, request)
	if err != nil {
		return told{}, err
	}
	return read(stream, each)
}

func read(stream grpc.ServerStreamingClient[pb.CallToolStreamResponse], each func(*pb.CallToolStreamResponse) error) (told, error) {
	var all told
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if all.outcome == nil {
				return all, errors.New("the stream ended without an outcome")
			}
			return all, nil
		}
		if err != nil {
			return all, err
		}
		switch {
		case all.outcome != nil:
			return all, fmt.Errorf("%v came after the outcome", m)
		case m.GetProgress() != nil:
			all.steps = append(all.steps, m.GetProgress())
		case m.GetLog() != nil:
			all.logs = append(all.logs, m.GetLog())
		}
		all.outcome = m.GetOutcome()
		if each != nil {
			if err := each(m); err != nil {
				return all, err
			}
		}
	}
}

// streamCall asks for a stream of a tool. Arguments are JSON.
func streamCall(target, tool, arguments string, level pb.LogLevel) *pb.CallToolStreamRequest {
	return &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Target: target, Name: tool, ArgumentsJson: &arguments}, LogLevel: level}
}

// receipts calls the tool of that name, which goes on only when its caller has what came before: whatever is buffered
// on the way makes this hang. It returns how long each message was on its way.
func (s stubs) receipts(ctx context.Context, target, label string, steps int) (told, []time.Duration, error) {
	var took []time.Duration
	arguments := func(steps int) string { return fmt.Sprintf(`{"label":%q,"steps":%d}`, label, steps) }
	all, err := s.follow(ctx, streamCall(target, "receipts", arguments(steps), pb.LogLevel_LOG_LEVEL_DEBUG), func(m *pb.CallToolStreamResponse) error {
		if m.GetProgress() == nil {
			return nil
		}
		now := time.Now()
		n := len(took) + 1
		fields := strings.Fields(m.GetProgress().GetMessage())
		if len(fields) != 3 || fields[0] != label || fields[1] != strconv.Itoa(n) || m.GetProgress().GetProgress() != float64(n) || m.GetProgress().GetTotal() != float64(steps) {
			return fmt.Errorf("message %d of %s is %v", n, label, m)
		}
		sent, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return err
		}
		took = append(took, now.Sub(time.Unix(0, sent)))
		_, err = s.call(ctx, target, "receipt", arguments(n))
		return err
	})
	if err == nil && (len(took) != steps || len(all.outcome.GetResult().GetContent()) == 0 || all.outcome.GetResult().GetContent()[0].GetText().GetText() != "done") {
		err = fmt.Errorf("%d messages, outcome %v", len(took), all.outcome)
	}
	return all, took, err
}

// liveServers are the servers with the tools of fixtures/gosdk/live.go and fixtures/python/live.py.
func liveServers(t *testing.T) map[string]target {
	t.Helper()
	targets := answerers(t)
	if hasPython(t) {
		targets["python-http-modern"], _ = pythonHTTP(t)
		overHTTP, _ := pythonHTTP(t)
		targets["python-http-legacy"] = overHTTP.pin(legacy)
		targets["python-stdio"], _ = pythonStdio(t)
	}
	return targets
}

func TestFault73EveryMessageArrivesBeforeTheToolGoesOn(t *testing.T) {
	t.Parallel()
	targets := liveServers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s.must(t, name, "echo", `{"text":"x"}`) // it is connected
			all, took, err := s.receipts(ctx, name, "alone", 5)
			if err != nil {
				t.Fatal(explain(err))
			}
			slices.Sort(took)
			t.Logf("from the server to the caller: median %v, longest %v", took[len(took)/2], took[len(took)-1])
			if strings.HasPrefix(name, "python-") && name != "python-stdio" {
				if len(all.logs) != 5 || all.logs[4].GetLevel() != pb.LogLevel_LOG_LEVEL_WARNING || all.logs[4].GetLogger() != "fixture" || all.logs[4].GetData().GetStructValue().GetFields()["step"].GetNumberValue() != 5 {
					t.Errorf("log messages %v, want one with each step", all.logs)
				}
			}
		})
	}
}

func TestFault71AHundredStreamsOfOneServerSeeTheirOwnMessages(t *testing.T) {
	t.Parallel()
	targets := answerers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) { // one after the other, as each is load enough
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var mu sync.Mutex
			var all []time.Duration
			each(100, func(i int) {
				_, took, err := s.receipts(ctx, name, fmt.Sprint("call-", i), 3)
				if err != nil {
					t.Errorf("call %d: %s", i, explain(err))
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, took...)
			})
			if len(all) == 300 {
				slices.Sort(all)
				t.Logf("from the server to the caller, of 300: median %v, longest %v", all[150], all[299])
			}
			if n := s.target(t, name).GetPool().GetInFlight(); n != 0 {
				t.Errorf("%d calls are left", n)
			}
		})
	}
}

func TestLogMessagesComeOnTheStreamOfTheirCallBySeverity(t *testing.T) {
	t.Parallel()
	overHTTP, _ := gosdkHTTP(t, "-stateless")
	child, _ := gosdkStdio(t)
	targets := map[string]target{"http": overHTTP, "stdio": child}
	if hasPython(t) {
		legacyHTTP, _ := pythonHTTP(t)
		targets["python-legacy"] = legacyHTTP.pin(legacy)
	}
	s := serve(t, targets).stubs(t)
	for level, want := range map[pb.LogLevel]string{
		pb.LogLevel_LOG_LEVEL_UNSPECIFIED: "",
		pb.LogLevel_LOG_LEVEL_DEBUG:       "debug warning error",
		pb.LogLevel_LOG_LEVEL_WARNING:     "warning error",
		pb.LogLevel_LOG_LEVEL_EMERGENCY:   "",
	} {
		all, err := s.follow(t.Context(), streamCall("http", "log", `{"text":"héllo"}`, level), nil)
		if err != nil {
			t.Fatalf("%v: %s", level, explain(err))
		}
		var levels []string
		for _, m := range all.logs {
			fields := m.GetData().GetStructValue().GetFields()
			if fields["text"].GetStringValue() != "héllo" || m.GetLogger() != "fixture" {
				t.Errorf("%v: message %v", level, m)
			}
			levels = append(levels, fields["level"].GetStringValue())
		}
		if got := strings.Join(levels, " "); got != want {
			t.Errorf("at %v the stream told %q, want %q", level, got, want)
		}

		// over stdio a message says nothing of the call that it belongs to
		if all, err := s.follow(t.Context(), streamCall("stdio", "log", `{"text":"héllo"}`, level), nil); err != nil || len(all.logs) != 0 {
			t.Errorf("stdio: %v, %s", all.logs, explain(err))
		}

		// this server logs whatever was asked for, a warning with each step
		if targets["python-legacy"] == nil {
			continue
		}
		label, most := fmt.Sprint("level-", int(level)), 0
		if level == pb.LogLevel_LOG_LEVEL_DEBUG || level == pb.LogLevel_LOG_LEVEL_WARNING {
			most = 2
		}
		for n := range 2 {
			s.must(t, "python-legacy", "receipt", fmt.Sprintf(`{"label":%q,"steps":%d}`, label, n+1))
		}
		if all, err := s.follow(t.Context(), streamCall("python-legacy", "receipts", fmt.Sprintf(`{"label":%q,"steps":2}`, label), level), nil); err != nil || len(all.logs) != most {
			t.Errorf("a legacy server at %v: %v, %s, want %d messages", level, all.logs, explain(err), most)
		}
	}
}

// The messages of this tool name no call, so that they would reach somebody else's as well.
func TestLogMessagesThatBelongToNoCallReachNoStream(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]target{"stdio": everythingStdio(t), "http": everythingHTTP(t)}).stubs(t)
	for _, name := range []string{"stdio", "http"} {
		switched := make(chan error, 1)
		all, err := s.follow(t.Context(), streamCall(name, "trigger-long-running-operation", `{"duration":0.4,"steps":2}`, pb.LogLevel_LOG_LEVEL_DEBUG), func(m *pb.CallToolStreamResponse) error {
			if m.GetProgress().GetProgress() == 1 {
				_, err := s.call(t.Context(), name, "toggle-simulated-logging", `{}`)
				switched <- err
			}
			return nil
		})
		if err != nil || len(all.steps) != 2 || len(all.logs) != 0 {
			t.Errorf("%s: steps %v, log messages %v, %s", name, all.steps, all.logs, explain(err))
		}
		if err := <-switched; err != nil {
			t.Error(explain(err))
		}
	}
}

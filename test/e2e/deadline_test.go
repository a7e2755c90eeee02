package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func TestACallThatIsGivenUpIsCancelledOnceAtTheServer(t *testing.T) {
	for _, s := range []struct {
		name     string
		start    func(t *testing.T) (target, events)
		byStream bool // the server learns it from the closed stream, not from a notification
	}{
		{"HTTP modern", func(t *testing.T) (target, events) { return gosdkHTTP(t, "-stateless") }, true},
		{"HTTP legacy", func(t *testing.T) (target, events) { return gosdkHTTP(t) }, false},
		{"stdio modern", gosdkStdio, false},
		{"stdio legacy", func(t *testing.T) (target, events) { c, e := gosdkStdio(t); return c.pin(legacy), e }, false},
	} {
		t.Run(s.name, func(t *testing.T) {
			free, freeLog := s.start(t)
			limited, limitedLog := s.start(t)
			limited["timeouts"] = map[string]any{"tools": map[string]string{"slow": "700ms"}}
			c := serve(t, map[string]target{"free": free, "limited": limited}).clients(t)
			for _, name := range []string{"free", "limited"} {
				c.result(t, &pb.CallToolRequest{Target: name, Name: "echo", ArgumentsJson: new(`{"text":"connects"}`)})
			}

			t.Run("the caller's deadline passes", func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
				defer cancel()
				err := slow(ctx, c, "free", "deadline")
				if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
					t.Errorf("error %s, want DEADLINE_EXCEEDED", describe(err))
				}
				wantOneCancellation(t, c, "free", freeLog, "deadline", s.byStream)
			})
			t.Run("the configured timeout passes", func(t *testing.T) {
				began := time.Now()
				err := slow(t.Context(), c, "limited", "timeout")
				_, info := wantError(t, err, connect.CodeDeadlineExceeded, "TIMEOUT")
				if took := time.Since(began); took < 700*time.Millisecond || took > 10*time.Second {
					t.Errorf("took %v, want about 700ms; %v", took, info)
				}
				wantOneCancellation(t, c, "limited", limitedLog, "timeout", s.byStream)
			})
			t.Run("the caller goes away", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error, 1)
				go func() { failed <- slow(ctx, c, "free", "gone") }()
				waitStarted(t, freeLog, "gone")
				cancel()
				if err := <-failed; connect.CodeOf(err) != connect.CodeCanceled {
					t.Errorf("error %s, want CANCELED", describe(err))
				}
				wantOneCancellation(t, c, "free", freeLog, "gone", s.byStream)
			})
		})
	}
}

// slow calls the tool slow and returns how it ended.
func slow(ctx context.Context, c clients, target, label string) error {
	response, err := c.tools.CallTool(ctx, &pb.CallToolRequest{Target: target, Name: "slow", ArgumentsJson: new(`{"label":"` + label + `"}`)})
	if err == nil {
		return fmt.Errorf("slow returned %v", response)
	}
	return err
}

// wantOneCancellation checks that the server was told once, and for the right request.
func wantOneCancellation(t *testing.T, c clients, target string, log events, label string, byStream bool) {
	t.Helper()
	calls := log.matching(t, func(e event) bool {
		return e.Kind == "message" && e.Method == "tools/call" && strings.Contains(string(e.Params), `"`+label+`"`)
	})
	if len(calls) != 1 {
		t.Fatalf("the server got the call %d times, want once", len(calls))
	}
	id := string(calls[0].ID)
	closed := func() int {
		return len(log.matching(t, func(e event) bool { return e.Kind == "abandoned" && string(e.ID) == id }))
	}
	told := func() int { return len(log.matching(t, func(e event) bool { return e.cancels() == id })) }
	eventually(t, "the server", func() string {
		// The Go SDK v1.8.0 does not pass the end of a stateless request on to the tool, so its stream is the witness.
		if byStream && closed() == 0 || !byStream && len(log.labelled(t, "slow_cancelled", label)) == 0 {
			return "did not learn that the call was given up"
		}
		return ""
	})
	// What the bridge sent before this call's answer has been recorded when it comes.
	c.result(t, &pb.CallToolRequest{Target: target, Name: "echo", ArgumentsJson: new(`{"text":"barrier"}`)})
	if byStream && (closed() != 1 || told() != 0) {
		t.Errorf("%d closed streams and %d notifications for request %s, want one closed stream alone", closed(), told(), id)
	}
	if !byStream && told() != 1 {
		t.Errorf("%d notifications/cancelled for request %s, want one", told(), id)
	}
	for _, e := range log.matching(t, func(e event) bool { return e.cancels() != "" }) {
		if len(log.matching(t, func(call event) bool {
			return string(call.ID) == e.cancels() && strings.Contains(string(call.Params), `"slow"`)
		})) == 0 {
			t.Errorf("cancellation of a request that is no call of slow: %s", e.Params)
		}
	}
}

// cancels is the id of the request that a notifications/cancelled is about, "" for any other event.
func (e event) cancels() string {
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if e.Kind != "message" || e.Method != "notifications/cancelled" || json.Unmarshal(e.Params, &params) != nil {
		return ""
	}
	return string(params.RequestID)
}

func TestAPythonToolIsCancelledWhenTheCallerGoesAway(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (target, events){
		"HTTP modern":  pythonHTTP,
		"HTTP legacy":  func(t *testing.T) (target, events) { c, e := pythonHTTP(t); return c.pin(legacy), e },
		"stdio modern": pythonStdio,
		"stdio legacy": func(t *testing.T) (target, events) { c, e := pythonStdio(t); return c.pin(legacy), e },
	} {
		t.Run(name, func(t *testing.T) {
			config, log := start(t)
			c := serve(t, map[string]target{"one": config}).clients(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() { failed <- slow(ctx, c, "one", "gone") }()
			waitStarted(t, log, "gone")
			cancel()
			if err := <-failed; connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("error %s, want CANCELED", describe(err))
			}
			eventually(t, "slow", func() string {
				if len(log.labelled(t, "slow_cancelled", "gone")) == 0 {
					return "was not cancelled"
				}
				return ""
			})
		})
	}
}

// waitStarted waits until the tool slow runs.
func waitStarted(t *testing.T, log events, label string) {
	t.Helper()
	eventually(t, "slow", func() string {
		if len(log.labelled(t, "slow_started", label)) == 0 {
			return "did not start"
		}
		return ""
	})
}

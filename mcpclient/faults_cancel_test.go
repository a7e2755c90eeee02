package mcpclient_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestFault89ARequestWithIDZeroCanBeCancelled(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		n := int64(-2)
		c := over(t, s, mcpclient.Options{
			NewID:    func() any { return atomic.AddInt64(&n, 1) }, // -1 for the handshake, then 0
			Version:  mcpclient.VersionOptions{Pin: "2025-11-25"},
			Timeouts: mcpclient.Timeouts{Tool: time.Second},
		})
		connected(t, c)
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "stuck", nil, nil)), mcpclient.KindTimeout, "")
		synctest.Wait()
		got := s.Entries("notifications/cancelled")
		if len(got) != 1 || string(jsonMember(t, got[0].Params(), "requestId")) != "0" {
			t.Errorf("cancellations: %v", got)
		}
	})
}

func TestFault91ACallerIsNotHeldWhileTheCancellationIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Stdio.StopAfter = 3 // initialize, initialized, and the call
		c := overPipe(t, s, mcpclient.Options{Version: mcpclient.VersionOptions{Pin: "2025-11-25"}})
		connected(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(ctx, "stuck", nil, nil)), mcpclient.KindTimeout, "")
		took(t, start, time.Second)
		time.Sleep(time.Minute) // the delivery has a bound of its own
	})
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Status = statusOf("notifications/cancelled", &mcptest.Reply{Stall: true})
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: time.Second}})
		connected(t, c)
		start := time.Now()
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "stuck", nil, nil)), mcpclient.KindTimeout, "")
		took(t, start, time.Second)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFault92OnModernHTTPACancellationIsTheEndOfTheStreamAlone(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := answered(features(mcptest.Modern), "stuck", mcptest.FloodProgress(2, mcptest.Silence()))
			s.SSE.Always = streaming
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_ = wantKind(t, errOf(c.CallTool(ctx, "stuck", nil, &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) {}})), mcpclient.KindCanceled, "")
			synctest.Wait()
			if s.Count("notifications/cancelled") != 0 || s.Count(mcptest.MethodAborted) != 1 {
				t.Errorf("the server saw %v", s.Methods())
			}
			stillWorks(t, c)
		})
	}
}

func TestFault94ProgressFromBeforeTheAnswerIsToldFirstAndLaterOnesNever(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		either(t, func(t *testing.T, over overFunc) {
			s := answered(features(era), "steps", mcptest.FloodProgress(100, mcptest.LateProgress(mcptest.Echo())))
			c := over(t, s, mcpclient.Options{})
			connected(t, c)
			var steps []float64
			returned := false
			_, err := c.CallTool(t.Context(), "steps", nil, &mcpclient.CallOptions{Progress: func(_ context.Context, p mcpclient.Progress) {
				time.Sleep(time.Millisecond) // a slow handler
				if returned {
					t.Error("told after the call had returned")
				}
				steps = append(steps, p.Progress)
			}})
			returned = true
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(time.Second)
			if len(steps) != 100 || !slices.IsSorted(steps) {
				t.Errorf("era %v: %d steps, the last %v", era, len(steps), steps[max(0, len(steps)-3):])
			}
		})
	}
}

func TestFault95ProgressUnderAForeignTokenIsDropped(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		either(t, func(t *testing.T, over overFunc) {
			s := answered(features(era), "foreign", mcptest.ForeignProgress(mcptest.Echo()))
			for _, token := range []func() any{nil, func() any { return 8 }} {
				told := 0
				c := over(t, s, mcpclient.Options{NewProgressToken: token})
				s.ManyClients = true
				options := &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) { told++ }}
				if _, err := c.CallTool(t.Context(), "foreign", nil, options); err != nil || told != 0 {
					t.Errorf("era %v: told %d times, %v", era, told, err)
				}
				if _, err := c.CallTool(t.Context(), "foreign", nil, nil); err != nil { // asks for none at all
					t.Error(err)
				}
				stillWorks(t, c)
			}
		})
	}
}

func TestFault97APanicInAHandlerIsNamedAndCostsNothingElse(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := answered(features(mcptest.Legacy), "steps", func(ctx context.Context, r *mcptest.Request) (any, error) {
			r.LogMessage("error", "x")
			return mcptest.FloodProgress(3, mcptest.Echo())(ctx, r)
		})
		var log faultLog
		c := over(t, s, mcpclient.Options{Logger: log.logger(), Handlers: mcpclient.Handlers{Log: func(context.Context, mcpclient.LogMessage) { panic("log") }}})
		told := 0
		_, err := c.CallTool(t.Context(), "steps", nil, &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) {
			told++
			panic("progress")
		}})
		if err != nil || told != 3 {
			t.Errorf("told %d times: %v", told, err)
		}
		synctest.Wait()
		if log.count("panicked") != 4 || log.count("malformed")+log.count("invalid") != 0 {
			t.Errorf("the log says: %s", log.String())
		}
		stillWorks(t, c)
	})
}

func TestFault98AFloodOfNotificationsAndAHandlerThatCallsTheServerBlockNothing(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := answered(features(mcptest.Legacy), "loud", mcptest.Flood("notifications/message", 10_000, map[string]any{"level": "info", "data": "x"}, mcptest.Echo()))
		answered(s, "busy", mcptest.FloodProgress(1, mcptest.Echo()))
		var c *mcpclient.Client
		var calls atomic.Int64
		c = over(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{
			Log: func(ctx context.Context, _ mcpclient.LogMessage) {
				if calls.Add(1) <= 3 {
					if _, err := c.ReadResource(ctx, "demo://a", nil); err != nil {
						t.Error(err)
					}
				}
			},
		}})
		if _, err := c.CallTool(t.Context(), "loud", nil, nil); err != nil {
			t.Fatal(err)
		}
		_, err := c.CallTool(t.Context(), "busy", nil, &mcpclient.CallOptions{Progress: func(ctx context.Context, _ mcpclient.Progress) {
			if _, err := c.CallTool(ctx, "echo", nil, nil); err != nil {
				t.Error(err)
			}
		}})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if calls.Load() == 0 {
			t.Error("no message was told")
		}
		stillWorks(t, c)
	})
}

func TestFault100WhatComesBeforeTheAnswerThatDefinesItHarmsNothing(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		s.Initialize = func(ctx context.Context, r *mcptest.Request) (any, error) {
			for _, method := range []string{"notifications/tools/list_changed", "notifications/message", "notifications/progress", "notifications/resources/updated", "notifications/subscriptions/acknowledged"} {
				r.Notify(method, map[string]any{"level": "info", "data": 1, "uri": "demo://a", "progressToken": 1, "progress": 1})
			}
			return r.Default(ctx)
		}
		var told atomic.Int64
		c := over(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Notification: map[string]func(context.Context, mcpclient.Notification){
			"": func(context.Context, mcpclient.Notification) { told.Add(1) },
		}}})
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := told.Load(); n != 0 && n != 5 {
			t.Errorf("%d of 5 notifications were told, want all or none", n)
		}
		stillWorks(t, c)
	})
	t.Run("an acknowledgement at once", func(t *testing.T) {
		either(t, func(t *testing.T, over overFunc) {
			s := features(mcptest.Modern)
			s.Listen.Flood = 3 // right behind the acknowledgement
			c := over(t, s, mcpclient.Options{})
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			stillWorks(t, c)
		})
	})
}

func TestFault101NoTimeoutIsNoTimeout(t *testing.T) {
	for name, timeouts := range map[string]mcpclient.Timeouts{
		"for all tools": {Tool: mcpclient.NoTimeout}, "for this tool": {Tools: map[string]time.Duration{"slow": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			either(t, func(t *testing.T, over overFunc) {
				s := answered(features(mcptest.Legacy), "slow", mcptest.Delay(26*time.Hour, mcptest.Respond(mcptest.Text("done"))))
				c := over(t, s, mcpclient.Options{Timeouts: timeouts})
				connected(t, c)
				start := time.Now()
				result, err := c.CallTool(t.Context(), "slow", nil, nil)
				if err != nil || !strings.Contains(string(result.Raw), "done") {
					t.Fatal(err)
				}
				took(t, start, 26*time.Hour)
			})
		})
	}
}

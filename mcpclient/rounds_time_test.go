package mcpclient_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestACancellationDuringARetryNamesTheRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool(asks(`{"k":`+askRoots+`}`, `"s"`), mcptest.Silence())
		c := overPipe(t, s, mcpclient.Options{Roots: []mcpclient.Root{{URI: "file:///r"}}, Timeouts: mcpclient.Timeouts{Tool: time.Second}})
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindTimeout, "1s")
		synctest.Wait()
		retry := s.Entries("tools/call")[1].ID
		got := s.Entries("notifications/cancelled")
		if len(got) != 1 || param(t, got[0], "requestId") != retry {
			t.Errorf("want one cancellation of %s: %v", retry, got)
		}
	})
}

func TestTheTimeAHandlerTakesCountsOnlyAgainstTheWholeCall(t *testing.T) {
	for name, tc := range map[string]struct {
		max, took time.Duration
		kind      mcpclient.Kind // -2 = none
	}{
		"it may take longer than a request": {took: 10*time.Minute + 90*time.Second, kind: -2},
		"but not than the whole call":       {max: 5 * time.Minute, took: 5 * time.Minute, kind: mcpclient.KindTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := mcptest.Delay(45*time.Second, done())
				s := tool(mcptest.Delay(45*time.Second, asks(`{"k":`+askRoots+`}`, "")), slow)
				release := make(chan struct{})
				c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: tc.max}, Handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) {
					select { // it does not heed its context, and holds nobody up
					case <-time.After(10 * time.Minute):
					case <-release:
					}
					return nil, nil
				}}})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err := c.CallTool(t.Context(), "echo", nil, nil)
				if took := time.Since(start); took != tc.took || kindOf(err) != tc.kind {
					t.Errorf("it took %v and ended with %v", took, err)
				}
				if tc.max > 0 {
					_ = wantKind(t, err, tc.kind, "timeouts.max")
				}
				close(release)
			})
		})
	}
}

func TestCloseAndACallerThatLeavesEndTheWaitForAHandler(t *testing.T) {
	for _, closing := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := tool(asks(`{"k":`+askRoots+`}`, ""))
			waiting, left := make(chan struct{}), make(chan error, 1)
			c := overHTTP(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Roots: func(ctx context.Context) ([]mcpclient.Root, error) {
				close(waiting)
				<-ctx.Done()
				left <- context.Cause(ctx)
				return nil, ctx.Err()
			}}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			over := make(chan struct{})
			go func() { _, err = c.CallTool(ctx, "echo", nil, nil); close(over) }()
			<-waiting
			want := mcpclient.KindCanceled
			if closing {
				want = mcpclient.KindClosed
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				cancel()
			}
			<-over
			if cause := <-left; cause == nil {
				t.Error("the handler's context had not ended")
			}
			if e := wantKind(t, err, want, ""); e.SafeToRetry || !e.Sent {
				t.Errorf("it looks as if the tool had not started: %+v", e)
			}
			if n := s.Count("tools/call"); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestEightHandlersOfOneCallRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var questions []string
		for i := range 100 {
			questions = append(questions, fmt.Sprintf(`"k%d":%s`, i, askRoots))
		}
		s := tool(asks("{"+strings.Join(questions, ",")+"}", ""), done())
		var running, most atomic.Int32
		c := overHTTP(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Roots: func(context.Context) ([]mcpclient.Root, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return nil, nil
		}}})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); most.Load() != 8 || took != 13*time.Second {
			t.Errorf("%d ran at once, it took %v", most.Load(), took)
		}
	})
}

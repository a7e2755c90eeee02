package mcpclient_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestFault112PagesThatLoopOrNeverEndAreAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		cursors func(string, int, string) any
		text    string
		pages   int
	}{
		"A, A":           {mcptest.Cursors("A"), "came twice", 2},
		"A, B, A":        {mcptest.Cursors("A", "B"), "came twice", 3},
		"empty for ever": {mcptest.Cursors(""), "came twice", 2},
		"always new":     {mcptest.EndlessCursors(), "pages", 64},
	} {
		t.Run(name, func(t *testing.T) {
			either(t, func(t *testing.T, over overFunc) {
				s := features(mcptest.Legacy)
				s.NextCursor = tc.cursors
				c := over(t, s, mcpclient.Options{MaxPages: 64})
				_ = wantKind(t, errOf(c.ListTools(t.Context())), mcpclient.KindProtocol, tc.text)
				if n := s.Count("tools/list"); n != tc.pages {
					t.Errorf("%d pages were asked for, want %d", n, tc.pages)
				}
				stillWorks(t, c)
			})
		})
	}
	t.Run("and bounded in time, all pages together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.NextCursor = mcptest.EndlessCursors()
			s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Delay(time.Second, nil)}
			c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Max: 10 * time.Second}})
			connected(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			_ = wantKind(t, errOf(c.ListTools(ctx)), mcpclient.KindTimeout, "caller's deadline")
			took(t, start, 5*time.Second)
			_ = wantKind(t, errOf(c.ListTools(t.Context())), mcpclient.KindTimeout, "timeouts.max")
			if d := time.Since(start); d > 15*time.Second {
				t.Errorf("the list took %v of its 10s", d)
			}
		})
	})
}

func TestFault113EachCacheHasItsOwnSwitch(t *testing.T) {
	for bits := range 8 {
		synctest.Test(t, func(t *testing.T) {
			o := mcpclient.CacheOptions{NoTools: bits&1 != 0, NoResources: bits&2 != 0, NoPrompts: bits&4 != 0}
			s := features(mcptest.Modern)
			s.PageSize = 0
			c := overHTTP(t, s, mcpclient.Options{Cache: o})
			for range 3 {
				for _, list := range []func(context.Context) (*mcpclient.List, error){c.ListTools, c.ListResources, c.ListResourceTemplates, c.ListPrompts} {
					if _, err := list(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			for method, off := range map[string]bool{
				"tools/list": o.NoTools, "resources/list": o.NoResources, "resources/templates/list": o.NoResources, "prompts/list": o.NoPrompts,
			} {
				want := 1
				if off {
					want = 3
				}
				if n := s.Count(method); n != want {
					t.Errorf("%+v: %d times %s, want %d", o, n, method, want)
				}
			}
		})
	}
}

func TestFault115AChangedListIsFetchedAgain(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		either(t, func(t *testing.T, over overFunc) {
			s := features(era)
			s.PageSize = 0
			c := over(t, s, mcpclient.Options{})
			for round := range 3 {
				if _, err := c.ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the stream of changes is open
				if _, err := c.ListTools(t.Context()); err != nil || s.Count("tools/list") != round+1 {
					t.Errorf("era %v, round %d: %d fetches, %v", era, round, s.Count("tools/list"), err)
				}
				s.Notify("notifications/tools/list_changed", nil)
				synctest.Wait()
			}
		})
	}
}

func TestFault116TTLAndScopeAreThoseOfTheServer(t *testing.T) {
	for members, want := range map[string]struct {
		ttl     time.Duration
		private bool
		fetches int // of two looks, a second apart
	}{
		``:                                     {0, true, 2},
		`,"ttlMs":0`:                           {0, true, 2},
		`,"ttlMs":-5`:                          {0, true, 2},
		`,"ttlMs":60000`:                       {time.Minute, true, 1},
		`,"ttlMs":60000,"cacheScope":"public"`: {time.Minute, false, 1},
		`,"ttlMs":1,"cacheScope":"public"`:     {time.Millisecond, false, 2},
		`,"ttlMs":60000,"cacheScope":"other"`:  {time.Minute, true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"prompts/list": mcptest.Respond(mcptest.Raw(`{"prompts":[]` + members + `}`))}
			c := overHTTP(t, s, mcpclient.Options{})
			list, err := c.ListPrompts(t.Context())
			if err != nil || list.TTL != want.ttl || list.Private != want.private {
				t.Fatalf("%s: %+v %v", members, list, err)
			}
			synctest.Wait()
			time.Sleep(time.Second)
			if _, err := c.ListPrompts(t.Context()); err != nil || s.Count("prompts/list") != want.fetches {
				t.Errorf("%s: %d fetches, want %d, %v", members, s.Count("prompts/list"), want.fetches, err)
			}
		})
	}
	t.Run("one public page does not make the others public", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"prompts/list": mcptest.Sequence(
				mcptest.Respond(mcptest.Raw(`{"prompts":[],"ttlMs":60000,"cacheScope":"private","nextCursor":"2"}`)),
				mcptest.Respond(mcptest.Raw(`{"prompts":[],"ttlMs":9000,"cacheScope":"public"}`)),
			)}
			c := overHTTP(t, s, mcpclient.Options{})
			if list, err := c.ListPrompts(t.Context()); err != nil || !list.Private || list.TTL != 9*time.Second {
				t.Errorf("%+v %v", list, err)
			}
		})
	})
}

func TestFault118AStreamOfChangesThatEndsAtOnceIsReopenedEverMoreSlowly(t *testing.T) {
	for _, end := range []string{"drop", "graceful"} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Listen.End = end
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			time.Sleep(10 * time.Minute)
			if n := s.Count("subscriptions/listen"); n < 5 || n > 40 {
				t.Errorf("%s: %d subscriptions in ten minutes", end, n)
			}
			stillWorks(t, c)
		})
	}
	t.Run("one that is refused is not asked for again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Listen.Reject = &mcptest.Error{Code: -32601, Message: "Method not found"}
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			time.Sleep(time.Hour)
			if n := s.Count("subscriptions/listen"); n != 1 {
				t.Errorf("%d subscriptions", n)
			}
			stillWorks(t, c)
		})
	})
}

func TestFault119CloseIsPromptWithAnOpenSubscription(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Modern)
		c := over(t, s, mcpclient.Options{})
		sub, err := c.Listen(t.Context(), mcpclient.Filter{Resources: []string{"demo://a"}}, func(context.Context, mcpclient.Notification) {})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		took(t, start, 0)
		<-sub.Done()
		synctest.Wait()
		if s.Subscriptions() != 0 {
			t.Error("the server still has it")
		}
	})
}

func TestFault121NotificationsOfNobodysSubscriptionAreNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // over HTTP the stream itself says whose they are
		s := features(mcptest.Modern)
		s.Listen.Foreign = true
		var told atomic.Int64
		c := overPipe(t, s, mcpclient.Options{})
		sub, err := c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) { told.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := told.Load(); n != 0 {
			t.Errorf("%d notifications without the subscription's id reached it", n)
		}
		s.Notify("notifications/tools/list_changed", nil)
		synctest.Wait()
		if n := told.Load(); n != 1 || sub.Err() != nil {
			t.Errorf("its own notification was told %d times, %v", n, sub.Err())
		}
		stillWorks(t, c)
	})
}

func TestFault122ASubscriptionThatLostADeliveryEndsAndTheOthersLive(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Modern)
		gate := make(chan struct{})
		var log faultLog
		c := over(t, s, mcpclient.Options{
			Logger: log.logger(), Dispatch: mcpclient.DispatchOptions{MaxInFlight: 1},
			Changes: mcpclient.ChangeOptions{NoTools: true, NoPrompts: true, NoResources: true},
		})
		slow, err := c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) { <-gate })
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.Listen(t.Context(), mcpclient.Filter{PromptsList: true}, func(context.Context, mcpclient.Notification) {})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.Notify("notifications/tools/list_changed", nil)
		}
		synctest.Wait()
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Errorf("answers are never shed: %v", err)
		}
		close(gate)
		<-slow.Done()
		if !errors.Is(slow.Err(), mcpclient.ErrDeliveryDropped) || log.count("subscription was ended") != 1 {
			t.Errorf("%v; the log says: %s", slow.Err(), log.String())
		}
		synctest.Wait()
		if other.Err() != nil || s.Subscriptions() != 1 {
			t.Errorf("the other one: %v; %d are open at the server", other.Err(), s.Subscriptions())
		}
		stillWorks(t, c)
	})
}

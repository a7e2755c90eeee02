package mcpclient_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestAnEndInGoodOrderIsTheEndAndLosesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		gate := make(chan struct{})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(ctx context.Context, n mcpclient.Notification) {
			<-gate
			got.put(ctx, n)
		})
		for range 3 {
			s.Notify("notifications/tools/list_changed", nil)
		}
		s.EndSubscriptions()
		synctest.Wait()
		select {
		case <-sub.Done():
			t.Error("it is done before its deliveries")
		default:
		}
		close(gate)
		wantEnd(t, sub, nil)
		got.want(t, "tools/list_changed", "tools/list_changed", "tools/list_changed")
		time.Sleep(10 * time.Minute)
		if n := s.Count("subscriptions/listen"); n != 1 {
			t.Errorf("%d requests; the server has said goodbye", n)
		}
	})
}

func TestAServerMayCancelASubscriptionAndIsNotAnswered(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"subscriptions/listen": func(ctx context.Context, r *mcptest.Request) (any, error) {
			meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(r.ID) + `}`
			r.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`)
			for _, id := range []string{`"` + string(r.ID) + `"`, "99", "null", `1.5`} {
				r.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil, mcptest.ErrSilent
			}
			r.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(r.ID) + `,` + meta + `}}`)
			<-ctx.Done()
			return nil, mcptest.ErrSilent
		}}
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
		wantOpen(t, sub)
		time.Sleep(time.Second)
		wantEnd(t, sub, nil)
		time.Sleep(time.Minute)
		if s.Count("notifications/cancelled") != 0 || s.Count("subscriptions/listen") != 1 {
			t.Errorf("the wire saw %v", wire(s))
		}
	})
}

func TestALostStreamIsOpenedAgainAndSaysThatThereWasAGap(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, got.put)
		for round := range 3 {
			s.Notify("notifications/resources/updated", update("demo://a"))
			got.want(t, "resources/updated demo://a")
			s.DropSubscriptions()
			synctest.Wait()
			time.Sleep(10 * time.Second)
			got.want(t, "resync")
			wantOpen(t, sub)
			if n := s.Subscriptions(); n != 1 {
				t.Fatalf("round %d: %d subscriptions are open", round, n)
			}
		}
		s.Notify("notifications/resources/updated", update("demo://a"))
		got.want(t, "resources/updated demo://a")
		ids := map[string]bool{}
		for _, e := range s.Entries("subscriptions/listen") {
			ids[e.ID] = true
		}
		if len(ids) != 4 {
			t.Errorf("the ids are %v, want 4 different ones", ids)
		}
	})
}

func TestFault118AcceptingAndClosingForEverIsMetWithGrowingPauses(t *testing.T) {
	for name, o := range map[string]mcptest.ListenOptions{"acknowledged": {End: "drop"}, "not acknowledged": {End: "drop", NoAck: true}} {
		t.Run(name, func(t *testing.T) {
			for kind, changes := range map[string]mcpclient.ChangeOptions{"of a caller": noChanges, "automatic": {}} {
				t.Run(kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := features(mcptest.Modern)
						s.Listen = o
						c := overHTTP(t, s, mcpclient.Options{Changes: changes})
						if kind == "automatic" {
							if err := c.Connect(t.Context()); err != nil {
								t.Fatal(err)
							}
						} else {
							_ = mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
						}
						time.Sleep(10 * time.Minute)
						if n := s.Count("subscriptions/listen"); n < 20 || n > 40 {
							t.Errorf("%d attempts in ten minutes, want about 1s, 2s, 4s, 8s, 16s, then every half minute", n)
						}
						if s.Count("server/discover") > 30 {
							t.Errorf("the connection suffered: %v", s.Methods())
						}
					})
				})
			}
		})
	}
}

func TestPausesBeginAnewOnceAStreamBroughtSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Listen = mcptest.ListenOptions{Flood: 1, End: "drop"}
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
		_ = mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
		time.Sleep(time.Minute)
		if n := s.Count("subscriptions/listen"); n < 45 || n > 90 {
			t.Errorf("%d attempts in a minute, want about one a second", n)
		}
	})
}

func TestARejectionIsFinal(t *testing.T) {
	for name, tc := range map[string]struct {
		reject *mcptest.Error
		kind   mcpclient.Kind
	}{
		"unknown method":     {&mcptest.Error{Code: -32601, Message: "Method not found"}, mcpclient.KindRPC},
		"invalid":            {&mcptest.Error{Code: -32602, Message: "no"}, mcpclient.KindRPC},
		"missing capability": {&mcptest.Error{Code: -32021, Message: "Missing required client capability"}, mcpclient.KindRPC},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := features(mcptest.Modern)
				s.Listen.Reject = tc.reject
				c := dial(t, s, mcpclient.Options{Changes: noChanges})
				_, err := c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
				if e := wantKind(t, err, tc.kind, tc.reject.Message); e.RPC.Code != int64(tc.reject.Code) {
					t.Errorf("%+v", e)
				}
				time.Sleep(10 * time.Minute)
				if n := s.Count("subscriptions/listen"); n != 1 {
					t.Errorf("%d attempts", n)
				}
			})
		})
	}
	t.Run("HTTP 404", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"subscriptions/listen": mcptest.HTML(404)}
			c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
			_, err := c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
			if e := wantKind(t, err, mcpclient.KindHTTP, "404"); e.Status != 404 {
				t.Errorf("%+v", e)
			}
		})
	})
}

func TestARejectionAfterAGapEndsTheSubscriptionWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"subscriptions/listen": mcptest.Sequence(nil, mcptest.HTML(503), mcptest.Fail(-32602, "no more", nil, 400))}
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
		s.DropSubscriptions()
		time.Sleep(time.Minute)
		wantEnd(t, sub, &mcpclient.Error{Kind: mcpclient.KindRPC})
		if n := s.Count("subscriptions/listen"); n != 3 {
			t.Errorf("%d attempts; a 503 passes, a rejection does not", n)
		}
	})
}

func TestASubscriptionIsCancelledOnTheWireOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, carrier string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		var sub *mcpclient.Subscription
		var got box
		sub = mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(ctx context.Context, n mcpclient.Notification) {
			got.put(ctx, n)
			sub.Close() // from inside of a delivery
			<-sub.Done()
		})
		for range 3 {
			s.Notify("notifications/tools/list_changed", nil)
		}
		wantEnd(t, sub, nil)
		got.want(t, "tools/list_changed")
		id := s.Entries("subscriptions/listen")[0].ID
		cancelled, aborted := s.Entries("notifications/cancelled"), s.Entries(mcptest.MethodAborted)
		if carrier == "http" && (len(cancelled) != 0 || len(aborted) != 1 || aborted[0].ID != id) ||
			carrier == "stream" && (len(cancelled) != 1 || !strings.Contains(string(cancelled[0].Raw), `"requestId":`+id)) {
			t.Errorf("%s: the server saw cancellations %v and closed streams %v", carrier, cancelled, aborted)
		}
		if n := s.Subscriptions(); n != 0 {
			t.Errorf("%d subscriptions are open at the server", n)
		}
	})
}

func TestFault119ClosingWithOpenSubscriptionsIsPrompt(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(era)
			c := dial(t, s, mcpclient.Options{})
			var subs []*mcpclient.Subscription
			for range 3 {
				subs = append(subs, mustListen(t, c, mcpclient.Filter{ToolsList: true, Resources: []string{"demo://a"}}, func(ctx context.Context, _ mcpclient.Notification) {
					<-ctx.Done() // a handler that goes on as long as it may
				}))
			}
			s.Notify("notifications/tools/list_changed", nil)
			s.Notify("notifications/resources/updated", update("demo://a"))
			synctest.Wait()
			start := time.Now()
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("era %v: closing took %v", era, took)
			}
			for _, sub := range subs {
				wantEnd(t, sub, nil)
				sub.Close()
			}
			_ = wantKind(t, errOf(c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})), mcpclient.KindClosed, "")
		})
	}
}

func TestASubscriptionIsGivenUpWhenTheClientGivesUp(t *testing.T) {
	for name, o := range map[string]mcpclient.ReconnectOptions{"no reconnect": {Disabled: true}, "a bounded one": {MaxAttempts: 3}} {
		for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := features(era)
					c := overPipe(t, s, mcpclient.Options{Changes: noChanges, Reconnect: o})
					sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
					s.SetDown(true)
					time.Sleep(10 * time.Minute)
					wantEnd(t, sub, mcpclient.ErrStreamLost)
				})
			})
		}
	}
}

func TestASubscriptionSurvivesALongOutage(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		for _, lazy := range []bool{false, true} {
			onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := features(era)
				c := dial(t, s, mcpclient.Options{Changes: noChanges, Lazy: lazy})
				var got box
				sub := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, got.put)
				s.SetDown(true)
				time.Sleep(20 * time.Minute)
				wantOpen(t, sub)
				s.SetDown(false)
				if era == mcptest.Legacy {
					s.ExpireSessions()
				}
				time.Sleep(3 * time.Minute)
				got.want(t, "resync")
				s.Notify("notifications/resources/updated", update("demo://a"))
				got.want(t, "resources/updated demo://a")
			})
		}
	}
}

func TestWhichFailuresOfASubscriptionPass(t *testing.T) {
	reply := func(status int, header map[string][]string) mcptest.Handler {
		return mcptest.Respond(&mcptest.Reply{Status: status, ContentType: "text/plain", Header: header, Body: "x"})
	}
	for name, tc := range map[string]struct {
		h    mcptest.Handler
		kind mcpclient.Kind // of the end; 0 = it passes
		wait time.Duration  // until the next attempt, at least
	}{
		"unavailable":      {h: reply(503, nil)},
		"request timeout":  {h: reply(408, nil)},
		"too many":         {h: reply(429, map[string][]string{"Retry-After": {"20"}}), wait: 20 * time.Second},
		"hangup":           {h: mcptest.Hangup()},
		"not authorized":   {h: reply(401, nil), kind: mcpclient.KindUnauthorized},
		"a page":           {h: mcptest.HTML(200), kind: mcpclient.KindProtocol},
		"wrong resultType": {h: mcptest.Respond(mcptest.Raw(`{"resultType":"input_required"}`)), kind: mcpclient.KindProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Modern)
				s.Handle = map[string]mcptest.Handler{"subscriptions/listen": mcptest.Sequence(tc.h, nil)}
				c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
				start := time.Now()
				sub, err := c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
				if tc.kind != 0 {
					_ = wantKind(t, err, tc.kind, "")
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				second, err := s.WaitFor(t.Context(), "subscriptions/listen", 2)
				if err != nil || second.Time.Sub(start) < tc.wait {
					t.Errorf("the next attempt came after %v: %v", second.Time.Sub(start), err)
				}
				wantOpen(t, sub)
				if !sub.Acknowledged().ToolsList {
					t.Error("it was acknowledged")
				}
			})
		})
	}
}

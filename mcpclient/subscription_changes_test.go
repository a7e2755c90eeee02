package mcpclient_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// asked are the filters of all subscriptions/listen, as sent.
func asked(s *mcptest.Server) []string {
	var out []string
	for _, e := range s.Entries("subscriptions/listen") {
		_, rest, _ := strings.Cut(string(e.Params()), `"notifications":`)
		filter, _, _ := strings.Cut(rest, "}")
		out = append(out, filter+"}")
	}
	return out
}

func TestListChangesAreSubscribedToWhereTheServerOffersThem(t *testing.T) {
	for name, tc := range map[string]struct {
		era      mcptest.Era
		declared string
		changes  mcpclient.ChangeOptions
		want     []string
	}{
		"all of them":  {want: []string{`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`}},
		"some":         {declared: `{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":false}}`, want: []string{`{"toolsListChanged":true}`}},
		"none":         {declared: `{"tools":{},"prompts":{},"resources":{"subscribe":true}}`},
		"switched off": {changes: mcpclient.ChangeOptions{NoTools: true, NoResources: true}, want: []string{`{"promptsListChanged":true}`}},
		"all off":      {changes: noChanges},
		"forced":       {declared: `{"tools":{}}`, changes: mcpclient.ChangeOptions{Force: true, NoPrompts: true}, want: []string{`{"toolsListChanged":true,"resourcesListChanged":true}`}},
		"legacy":       {era: mcptest.Legacy},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := features(tc.era)
				s.Capabilities = tc.declared
				c := dial(t, s, mcpclient.Options{Changes: tc.changes})
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := asked(s); !slices.Equal(got, tc.want) {
					t.Errorf("asked for %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestReportedChangesMakeListsStaleAndReachHandlers(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.PageSize = 0
		var handled, heard box
		c := dial(t, s, mcpclient.Options{
			Handlers:  mcpclient.Handlers{Notification: map[string]func(context.Context, mcpclient.Notification){mcpclient.MethodToolsChanged: handled.put}},
			Listeners: []mcpclient.Listener{{Notification: heard.put}},
		})
		lists := []func(context.Context) (*mcpclient.List, error){c.ListTools, c.ListPrompts, c.ListResources, c.ListResourceTemplates}
		methods := []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
		fetched := func(want ...int) {
			t.Helper()
			synctest.Wait()
			for i, list := range lists {
				if _, err := list(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := s.Count(methods[i]); n != want[i] {
					t.Errorf("%s was fetched %d times, want %d", methods[i], n, want[i])
				}
			}
		}
		fetched(1, 1, 1, 1)
		fetched(1, 1, 1, 1)
		s.Notify(mcpclient.MethodToolsChanged, nil)
		fetched(2, 1, 1, 1)
		s.Notify(mcpclient.MethodResourcesChanged, nil)
		s.Notify(mcpclient.MethodPromptsChanged, nil)
		fetched(2, 2, 2, 2)
		handled.want(t, "tools/list_changed")
		heard.want(t, "tools/list_changed", "resources/list_changed", "prompts/list_changed")

		// after a gap everything is stale once, and the handlers are told
		s.DropSubscriptions()
		time.Sleep(20 * time.Second)
		got := heard.take()
		slices.Sort(got)
		if !slices.Equal(got, []string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"}) {
			t.Errorf("the listener heard %q", got)
		}
		handled.want(t, "tools/list_changed")
		before := s.Count("tools/list")
		for range 3 {
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Count("tools/list") - before; n != 1 {
			t.Errorf("%d fetches after the gap", n)
		}
		s.Notify(mcpclient.MethodToolsChanged, nil)
		handled.want(t, "tools/list_changed")
	})
}

func TestWithoutAnAcknowledgementListsLiveForTheirTime(t *testing.T) {
	for name, o := range map[string]mcptest.ListenOptions{"none": {NoAck: true}, "of nothing": {Subset: "{}"}, "refused": {Reject: &mcptest.Error{Code: -32601, Message: "no"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Modern)
				s.Listen, s.PageSize, s.TTLMs = o, 0, 10_000
				c := overHTTP(t, s, mcpclient.Options{})
				for i, want := range []int{1, 1, 2} {
					if _, err := c.ListTools(t.Context()); err != nil {
						t.Fatal(err)
					}
					if n := s.Count("tools/list"); n != want {
						t.Errorf("look %d: %d fetches, want %d", i, n, want)
					}
					time.Sleep(9 * time.Second)
				}
			})
		})
	}
}

func TestAServerWithoutSubscriptionsIsServedAllTheSame(t *testing.T) {
	for name, prepare := range map[string]func(*mcptest.Server){
		"404": func(s *mcptest.Server) {
			s.Handle = map[string]mcptest.Handler{"subscriptions/listen": mcptest.HTML(404)}
		},
		"-32601": func(s *mcptest.Server) { s.Listen.Reject = &mcptest.Error{Code: -32601, Message: "Method not found"} },
		"-32603": func(s *mcptest.Server) { s.Listen.Reject = &mcptest.Error{Code: -32603, Message: "no"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Modern)
				prepare(s)
				log, logged := logTo()
				c := overHTTP(t, s, mcpclient.Options{Logger: log})
				c.Start()
				for range 100 {
					if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
						t.Fatal(err)
					}
					time.Sleep(3 * time.Second)
				}
				if st := c.Status(); st.Connects != 1 || st.State != mcpclient.StateReady || s.Count("subscriptions/listen") != 1 {
					t.Errorf("%+v, %d attempts", st, s.Count("subscriptions/listen"))
				}
				text := logged()
				if n := strings.Count(text, "does not serve list changes"); n != 1 || strings.Contains(text, "level=WARN") != (name == "-32603") {
					t.Errorf("said %d times: %s", n, text)
				}
			})
		})
	}
}

func TestListChangesAreSubscribedToAgainAfterEveryEnd(t *testing.T) {
	t.Run("in good order", func(t *testing.T) {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(mcptest.Modern)
			c := dial(t, s, mcpclient.Options{})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				synctest.Wait()
				s.EndSubscriptions()
				time.Sleep(30 * time.Second)
				if n := s.Subscriptions(); n != 1 {
					t.Errorf("%d subscriptions are open", n)
				}
			}
		})
	})
	t.Run("with the connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			var handled box
			c := overPipe(t, s, mcpclient.Options{Handlers: mcpclient.Handlers{Notification: map[string]func(context.Context, mcpclient.Notification){mcpclient.MethodToolsChanged: handled.put}}})
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			handled.want(t)
			s.Hangup()
			time.Sleep(time.Minute)
			handled.want(t, "tools/list_changed") // it may have changed meanwhile
			if n := s.Subscriptions(); n != 1 || s.Count("notifications/cancelled") != 0 {
				t.Errorf("%d subscriptions are open; %v", n, wire(s))
			}
		})
	})
}

func TestSubscribeResourceFeedsTheHandlersOnce(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(era)
			var mu sync.Mutex
			var updated []string
			var heard, handled box
			c := dial(t, s, mcpclient.Options{
				Changes: noChanges,
				Handlers: mcpclient.Handlers{
					ResourceUpdated: func(_ context.Context, uri string) {
						mu.Lock()
						defer mu.Unlock()
						updated = append(updated, uri)
					},
					Notification: map[string]func(context.Context, mcpclient.Notification){mcpclient.MethodResourceUpdated: handled.put},
				},
				Listeners: []mcpclient.Listener{{Notification: heard.put}},
			})
			for range 3 {
				if err := c.SubscribeResource(t.Context(), "demo://a"); err != nil {
					t.Fatal(err)
				}
			}
			s.Notify("notifications/resources/updated", update("demo://a"))
			s.Notify("notifications/resources/updated", update("demo://b"))
			heard.want(t, "resources/updated demo://a")
			handled.want(t, "resources/updated demo://a")
			if !slices.Equal(updated, []string{"demo://a"}) {
				t.Errorf("era %v: the handler was told %q", era, updated)
			}
			s.DropSubscriptions()
			s.Hangup()
			s.ExpireSessions()
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); kindOf(err) == -1 {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if !slices.Equal(updated, []string{"demo://a", "demo://a"}) {
				t.Errorf("era %v: the handler was told %q; after a gap it is told once", era, updated)
			}
			for range 2 {
				if err := c.UnsubscribeResource(t.Context(), "demo://a"); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			s.Notify("notifications/resources/updated", update("demo://a"))
			synctest.Wait()
			if len(updated) != 2 || s.Subscriptions() != 0 {
				t.Errorf("era %v: it was told %q, %d subscriptions are open", era, updated, s.Subscriptions())
			}
			if err := c.SubscribeResource(t.Context(), "demo://a"); err != nil {
				t.Errorf("subscribing again: %v", err)
			}
		})
	}
}

func TestSubscribeResourceNeedsAServerThatAgrees(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			s.Capabilities, s.Listen.Subset = `{"resources":{"listChanged":true}}`, `{}`
			c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
			e := wantKind(t, c.SubscribeResource(t.Context(), "demo://a"), mcpclient.KindUnsupported, "does not report")
			if e.Name != "demo://a" {
				t.Errorf("%+v", e)
			}
			synctest.Wait()
			if n := s.Subscriptions(); n != 0 {
				t.Errorf("%d subscriptions are open", n)
			}
		})
	}
}

func TestListenersWatchSubscriptionsAsOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"subscriptions/listen": mcptest.Sequence(nil, nil, nil, mcptest.Fail(-32602, "no", nil, 400))}
		var mu sync.Mutex
		var got []string
		note := func(what string) func(context.Context, mcpclient.Operation) {
			return func(_ context.Context, op mcpclient.Operation) {
				mu.Lock()
				defer mu.Unlock()
				if op.Method == "subscriptions/listen" {
					got = append(got, what)
				}
			}
		}
		before, after, failed := note("before"), note("after"), note("error")
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges, Listeners: []mcpclient.Listener{{
			Before: before,
			After:  func(ctx context.Context, op mcpclient.Operation, _ *mcpclient.Result) { after(ctx, op) },
			Error:  func(ctx context.Context, op mcpclient.Operation, _ error) { failed(ctx, op) },
		}}})
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, want) {
				t.Errorf("the listener saw %q, want %q", got, want)
			}
			got = nil
		}
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, ignore)
		expect("before")
		s.DropSubscriptions()
		time.Sleep(10 * time.Second)
		expect("error", "before")
		sub.Close()
		expect("after")
		_ = mustListen(t, c, mcpclient.Filter{ToolsList: true}, ignore)
		s.EndSubscriptions()
		expect("before", "after")
		if _, err := c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, ignore); err == nil {
			t.Error("it was rejected")
		}
		expect("before", "error")
	})
}

package mcpclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// noChanges keeps the client's own subscription out of a test.
var noChanges = mcpclient.ChangeOptions{NoTools: true, NoPrompts: true, NoResources: true}

// carriers are the ways to reach a server: with a stream for each request, and
// with one for all.
var carriers = map[string]func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client{"http": overHTTP, "stream": overPipe}

// onBoth runs a test over each carrier, in a bubble.
func onBoth(t *testing.T, f func(t *testing.T, carrier string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client)) {
	t.Helper()
	for name, dial := range carriers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, name, dial) })
		})
	}
}

// box collects deliveries as "method uri".
type box struct {
	mu  sync.Mutex
	got []string
}

func (b *box) put(_ context.Context, n mcpclient.Notification) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what := strings.TrimPrefix(n.Method, "notifications/")
	if _, rest, ok := strings.Cut(string(n.Params), `"uri":"`); ok {
		uri, _, _ := strings.Cut(rest, `"`)
		what += " " + uri
	}
	b.got = append(b.got, what)
}

// take returns what came since it was last asked, once all is quiet.
func (b *box) take() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got
	b.got = nil
	return got
}

func (b *box) want(t *testing.T, want ...string) {
	t.Helper()
	if got := b.take(); !slices.Equal(got, want) {
		t.Errorf("the deliveries are %q, want %q", got, want)
	}
}

func mustListen(t *testing.T, c *mcpclient.Client, f mcpclient.Filter, deliver func(context.Context, mcpclient.Notification)) *mcpclient.Subscription {
	t.Helper()
	sub, err := c.Listen(t.Context(), f, deliver)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// wantEnd checks that a subscription has ended with the error.
func wantEnd(t *testing.T, sub *mcpclient.Subscription, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case <-sub.Done():
	default:
		t.Fatal("the subscription has not ended")
	}
	if err := sub.Err(); !errors.Is(err, want) {
		t.Errorf("it ended with %v, want %v", err, want)
	}
}

func wantOpen(t *testing.T, sub *mcpclient.Subscription) {
	t.Helper()
	synctest.Wait()
	select {
	case <-sub.Done():
		t.Fatalf("the subscription has ended: %v", sub.Err())
	default:
	}
}

func update(uri string) map[string]string { return map[string]string{"uri": uri} }

// logTo returns a logger and what it wrote.
func logTo() (*slog.Logger, func() string) {
	var b bytes.Buffer
	w := &lockedWriter{w: &b}
	return slog.New(slog.NewTextHandler(w, nil)), func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return b.String()
	}
}

func TestSubscriptionsOfOneClientDoNotMix(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(era)
			c := dial(t, s, mcpclient.Options{Changes: noChanges})
			var a, b, lists box
			filter := mcpclient.Filter{Resources: []string{"demo://a", "demo://a"}}
			subA := mustListen(t, c, filter, a.put)
			subB := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://b"}}, b.put)
			subLists := mustListen(t, c, mcpclient.Filter{ToolsList: true, PromptsList: true}, lists.put)
			synctest.Wait()
			if diff := cmp.Diff(mcpclient.Filter{Resources: []string{"demo://a"}}, subA.Acknowledged()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(mcpclient.Filter{ToolsList: true, PromptsList: true}, subLists.Acknowledged()); diff != "" {
				t.Error(diff)
			}
			s.Notify("notifications/resources/updated", update("demo://a"))
			s.Notify("notifications/resources/updated", update("demo://b"))
			s.Notify("notifications/prompts/list_changed", nil)
			s.Notify("notifications/resources/list_changed", nil)
			s.Notify("notifications/tools/list_changed", nil)
			a.want(t, "resources/updated demo://a")
			b.want(t, "resources/updated demo://b")
			lists.want(t, "prompts/list_changed", "tools/list_changed")

			subA.Close()
			subA.Close()
			s.Notify("notifications/resources/updated", update("demo://a"))
			s.Notify("notifications/resources/updated", update("demo://b"))
			a.want(t)
			b.want(t, "resources/updated demo://b")
			wantEnd(t, subA, nil)
			wantOpen(t, subB)
		})
	}
}

func TestAFilterIsCheckedBeforeAnythingIsSent(t *testing.T) {
	c := newClient(t, nowhere{}, mcpclient.Options{})
	deliver := func(context.Context, mcpclient.Notification) {}
	for name, f := range map[string]mcpclient.Filter{"is empty": {}, "empty resource URI": {Resources: []string{"a", ""}}, "empty task id": {Tasks: []string{""}}} {
		_ = wantKind(t, errOf(c.Listen(t.Context(), f, deliver)), mcpclient.KindInvalid, name)
	}
	_ = wantKind(t, errOf(c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, nil)), mcpclient.KindInvalid, "deliveries")
	_ = wantKind(t, errOf(c.Listen(t.Context(), mcpclient.Filter{ToolsList: true}, deliver)), mcpclient.KindUnavailable, "nothing listens there")
	_ = wantKind(t, c.SubscribeResource(t.Context(), ""), mcpclient.KindInvalid, "URI")
}

func TestAPartialAcknowledgementIsVisible(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.Listen.Subset = `{"toolsListChanged":true,"resourceSubscriptions":["demo://b"],"later":7}`
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true, PromptsList: true, Resources: []string{"demo://a", "demo://b"}}, got.put)
		if diff := cmp.Diff(mcpclient.Filter{ToolsList: true, Resources: []string{"demo://b"}}, sub.Acknowledged()); diff != "" {
			t.Error(diff)
		}
		s.Notify("notifications/prompts/list_changed", nil)
		s.Notify("notifications/tools/list_changed", nil)
		got.want(t, "tools/list_changed")
	})
}

func TestTheTasksExtensionIsDeclaredForTaskSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
		_ = mustListen(t, c, mcpclient.Filter{Tasks: []string{"t1", "t2"}}, func(context.Context, mcpclient.Notification) {})
		_ = mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
		sent := s.Entries("subscriptions/listen")
		if p := string(sent[0].Params()); !strings.HasPrefix(p, `{"notifications":{"taskIds":["t1","t2"]},`) ||
			!strings.Contains(p, `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`) {
			t.Errorf("the params are %s", p)
		}
		if p := string(sent[1].Params()); !strings.HasPrefix(p, `{"notifications":{"toolsListChanged":true},`) || strings.Contains(p, "tasks") {
			t.Errorf("the params are %s", p)
		}
	})
}

func TestAnOverdueAcknowledgementIsWaitedForFiveSecondsOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.Listen.AckDelay = 8 * time.Second
		log, logged := logTo()
		c := dial(t, s, mcpclient.Options{Changes: noChanges, Logger: log})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var got box
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, got.put)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if f := sub.Acknowledged(); f.ToolsList {
			t.Error("nothing was acknowledged yet")
		}
		synctest.Wait()
		if n := strings.Count(logged(), "has not acknowledged"); n != 1 {
			t.Errorf("%d warnings: %s", n, logged())
		}
		time.Sleep(4 * time.Second)
		if f := sub.Acknowledged(); !f.ToolsList {
			t.Error("a late acknowledgement counts")
		}
		s.Notify("notifications/tools/list_changed", nil)
		got.want(t, "resync", "tools/list_changed") // what changed before the acknowledgement was not promised
	})
}

func TestNotificationsBeforeTheAcknowledgementAreDelivered(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"subscriptions/listen": func(ctx context.Context, r *mcptest.Request) (any, error) {
			meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(r.ID) + `}`
			r.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://a",` + meta + `}}`)
			return r.Default(ctx)
		}}
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, got.put)
		got.want(t, "resources/updated demo://a")
		if len(sub.Acknowledged().Resources) != 1 {
			t.Error("it was acknowledged")
		}
	})
}

func TestTheWaitForAnAcknowledgementEndsWithItsCaller(t *testing.T) {
	onBoth(t, func(t *testing.T, carrier string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.Listen.NoAck = true
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.Listen(ctx, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {})
		_ = wantKind(t, err, mcpclient.KindTimeout, "deadline")
		synctest.Wait()
		if n := s.Subscriptions(); n != 0 {
			t.Errorf("%d subscriptions are open at the server (%s)", n, carrier)
		}
	})
}

func TestDeliveriesOutliveTheContextOfListenAndKeepItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
		type key struct{}
		var values []any
		var last context.Context
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		sub, err := c.Listen(ctx, mcpclient.Filter{ToolsList: true}, func(ctx context.Context, _ mcpclient.Notification) {
			values, last = append(values, ctx.Value(key{}), ctx.Err()), ctx
		})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		s.Notify("notifications/tools/list_changed", nil)
		synctest.Wait()
		if !slices.Equal(values, []any{"v", nil}) {
			t.Errorf("deliver saw %v", values)
		}
		sub.Close()
		synctest.Wait()
		if last.Err() == nil {
			t.Error("the deliveries' context lives on")
		}
	})
}

func TestFault121ForeignAndMissingIDsReachNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.PageSize = 0
		log, logged := logTo()
		var general, own box
		c := overPipe(t, s, mcpclient.Options{
			Changes: noChanges, Logger: log,
			Handlers: mcpclient.Handlers{Notification: map[string]func(context.Context, mcpclient.Notification){"": general.put}},
		})
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, own.put)
		if err := errOf(c.ListTools(t.Context())); err != nil {
			t.Fatal(err)
		}
		id := s.Entries("subscriptions/listen")[0].ID
		changed := func(id string) {
			s.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`)
		}
		for _, foreign := range []string{`"` + id + `"`, id + ".0", `"nobody's"`, "{}", "-1"} {
			changed(foreign)
		}
		general.want(t)
		own.want(t)
		if err := errOf(c.ListTools(t.Context())); err != nil || s.Count("tools/list") != 1 {
			t.Errorf("%v, %d fetches: a foreign notification changes nothing", err, s.Count("tools/list"))
		}
		s.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		changed("null")
		general.want(t, "tools/list_changed", "tools/list_changed")
		own.want(t)
		if err := errOf(c.ListTools(t.Context())); err != nil || s.Count("tools/list") != 2 {
			t.Errorf("%v, %d fetches: an untagged change is one all the same", err, s.Count("tools/list"))
		}
		changed(id)
		own.want(t, "tools/list_changed")
		general.want(t)
		if text := logged(); strings.Count(text, "none of ours") != 1 || strings.Count(text, "lacks its subscription id") != 1 {
			t.Errorf("want one warning of each kind: %s", text)
		}
		sub.Close()
		synctest.Wait()
		before := strings.Count(logged(), "none of ours")
		for range 200 {
			changed(id)
		}
		general.want(t)
		own.want(t)
		if strings.Count(logged(), "none of ours") != before {
			t.Error("what comes late is not wrong")
		}
	})
}

func TestFault122AShedDeliveryEndsItsSubscriptionAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, carrier string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		log, logged := logTo()
		c := dial(t, s, mcpclient.Options{Changes: noChanges, Logger: log, Dispatch: mcpclient.DispatchOptions{MaxInFlight: 5}})
		gate := make(chan struct{})
		var ran int
		slow := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {
			<-gate
			ran++
		})
		var got box
		other := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, got.put)
		for range 5 {
			s.Notify("notifications/tools/list_changed", nil)
		}
		wantOpen(t, slow)
		for range 5 {
			s.Notify("notifications/tools/list_changed", nil)
		}
		wantEnd(t, slow, mcpclient.ErrDeliveryDropped)
		if n := strings.Count(logged(), "a subscription was ended"); n != 1 {
			t.Errorf("%d warnings: %s", n, logged())
		}
		if n := s.Subscriptions(); n != 1 {
			t.Errorf("%s: %d subscriptions are open at the server, want the other one", carrier, n)
		}
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Errorf("calls are no deliveries: %v", err)
		}
		close(gate)
		synctest.Wait()
		if ran != 1 {
			t.Errorf("%d deliveries ran; those behind the first belong to an ended subscription", ran)
		}
		s.Notify("notifications/resources/updated", update("demo://a"))
		got.want(t, "resources/updated demo://a")
		wantOpen(t, other)
	})
}

func TestAThousandUpdatesReachASlowHandlerInOrder(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(era)
			c := dial(t, s, mcpclient.Options{Changes: noChanges})
			var got []string
			sub := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, func(_ context.Context, n mcpclient.Notification) {
				time.Sleep(10 * time.Millisecond)
				_, rest, _ := strings.Cut(string(n.Params), `"n":"`)
				number, _, _ := strings.Cut(rest, `"`)
				got = append(got, number)
			})
			synctest.Wait()
			for i := range 1000 {
				s.Notify("notifications/resources/updated", map[string]string{"uri": "demo://a", "n": fmt.Sprint(i)})
			}
			synctest.Wait()
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Errorf("a slow handler holds up calls: %v", err)
			}
			time.Sleep(11 * time.Second)
			wantOpen(t, sub)
			for i := range 1000 {
				if i >= len(got) || got[i] != fmt.Sprint(i) {
					t.Fatalf("%d deliveries, out of order at %d", len(got), i)
				}
			}
		})
	}
}

func TestAPanicInADeliveryCostsThatDeliveryOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges})
		n := 0
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, func(context.Context, mcpclient.Notification) {
			if n++; n == 1 {
				panic("a bug")
			}
		})
		s.Notify("notifications/tools/list_changed", nil)
		s.Notify("notifications/tools/list_changed", nil)
		wantOpen(t, sub)
		if n != 2 {
			t.Errorf("%d deliveries", n)
		}
	})
}

func TestAMalformedAcknowledgementAgreesToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"subscriptions/listen": func(ctx context.Context, r *mcptest.Request) (any, error) {
			for _, filter := range []string{`7`, `{"toolsListChanged":true}`} { // the second one corrects the first
				r.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + filter + `,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(r.ID) + `}}}`)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			<-ctx.Done()
			return nil, mcptest.ErrSilent
		}}
		c := overPipe(t, s, mcpclient.Options{Changes: noChanges})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, got.put)
		if sub.Acknowledged().ToolsList {
			t.Error("a number is no filter")
		}
		time.Sleep(2 * time.Second)
		if !sub.Acknowledged().ToolsList {
			t.Error("the newest acknowledgement counts")
		}
		got.want(t)
	})
}

package mcpclient_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// resourceRequests are the requests that subscribe and unsubscribe, with their URIs.
func resourceRequests(s *mcptest.Server) []string {
	var out []string
	for _, e := range s.Transcript() {
		if e.Method == "resources/subscribe" || e.Method == "resources/unsubscribe" {
			var uri string
			_, _ = fmt.Sscanf(string(e.Params()), `{"uri":%q`, &uri)
			out = append(out, e.Method[len("resources/"):]+" "+uri)
		}
	}
	return out
}

func ignore(context.Context, mcpclient.Notification) {}

func TestALegacyServerAgreesToWhatItDeclares(t *testing.T) {
	for declared, want := range map[string]mcpclient.Filter{
		`{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}}`:    {ToolsList: true, Resources: []string{"demo://a"}},
		`{"tools":{"listChanged":false},"prompts":{"listChanged":true},"resources":{}}`: {PromptsList: true},
		`{}`: {},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Capabilities = declared
			c := overHTTP(t, s, mcpclient.Options{})
			sub := mustListen(t, c, mcpclient.Filter{ToolsList: true, PromptsList: true, ResourcesList: true, Resources: []string{"demo://a"}, Tasks: []string{"t"}}, ignore)
			if diff := cmp.Diff(want, sub.Acknowledged()); diff != "" {
				t.Errorf("%s: %s", declared, diff)
			}
			if n := s.Count("resources/subscribe"); n != len(want.Resources) {
				t.Errorf("%s: %d requests", declared, n)
			}
			wantOpen(t, sub)
		})
	}
}

func TestALegacyResourceIsSubscribedToOnceForAll(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"resources/subscribe": mcptest.Delay(time.Second, nil)}
		c := dial(t, s, mcpclient.Options{})
		subs := make([]*mcpclient.Subscription, 20)
		var wg sync.WaitGroup
		for i := range subs {
			wg.Go(func() { subs[i] = mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, ignore) })
		}
		wg.Wait()
		for _, sub := range subs[1:] {
			sub.Close()
		}
		synctest.Wait()
		if got := resourceRequests(s); !slices.Equal(got, []string{"subscribe demo://a"}) {
			t.Fatalf("the server saw %v", got)
		}
		// the last one leaves while another comes: the server must end up with it
		subs[0].Close()
		again := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, ignore)
		synctest.Wait()
		got := resourceRequests(s)
		if last := got[len(got)-1]; last != "subscribe demo://a" {
			t.Errorf("the server saw %v", got)
		}
		again.Close()
		synctest.Wait()
		if got := resourceRequests(s); got[len(got)-1] != "unsubscribe demo://a" {
			t.Errorf("the server saw %v", got)
		}
	})
}

func TestOneRefusedLegacyResourceDoesNotCostTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"resources/subscribe": func(ctx context.Context, r *mcptest.Request) (any, error) {
			switch r.Text("uri") {
			case "demo://nope":
				return nil, &mcptest.Error{Code: -32002, Message: "Resource not found"}
			case "demo://mute":
				return nil, mcptest.ErrSilent
			}
			return r.Default(ctx)
		}}
		c := overHTTP(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Resource: 2 * time.Second}})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://nope", "demo://a", "demo://mute", "demo://b"}}, got.put)
		if diff := cmp.Diff(mcpclient.Filter{Resources: []string{"demo://a", "demo://b"}}, sub.Acknowledged()); diff != "" {
			t.Error(diff)
		}
		s.Notify("notifications/resources/updated", update("demo://b"))
		got.want(t, "resources/updated demo://b")

		_, err := c.Listen(t.Context(), mcpclient.Filter{Resources: []string{"demo://nope"}}, ignore)
		if e := wantKind(t, err, mcpclient.KindRPC, "Resource not found"); e.RPC.Code != mcpclient.CodeResourceNotFound || e.Name != "demo://nope" {
			t.Errorf("%+v", e)
		}
		_, err = c.Listen(t.Context(), mcpclient.Filter{Resources: []string{"demo://mute"}}, ignore)
		_ = wantKind(t, err, mcpclient.KindTimeout, "timeouts.resource")
	})
}

func TestALegacyUpdateOfAPartReachesWhoWatchesTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overPipe(t, s, mcpclient.Options{})
		var dir, file box
		_ = mustListen(t, c, mcpclient.Filter{Resources: []string{"file:///d"}}, dir.put)
		_ = mustListen(t, c, mcpclient.Filter{Resources: []string{"file:///d/f"}}, file.put)
		for _, uri := range []string{"file:///d/f", "file:///dx", "file:///d/f#1", "file:///d"} {
			s.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`)
		}
		dir.want(t, "resources/updated file:///d/f", "resources/updated file:///d/f#1", "resources/updated file:///d")
		file.want(t, "resources/updated file:///d/f", "resources/updated file:///d/f#1")
	})
}

func TestLegacyResourcesAreSubscribedToAgainAfterASessionWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true, Resources: []string{"demo://a", "demo://b"}}, got.put)
		for range 3 {
			s.ExpireSessions()
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil { // finds out
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			got.want(t, "resync")
			s.Notify("notifications/resources/updated", update("demo://b"))
			s.Notify("notifications/tools/list_changed", nil)
			got.want(t, "resources/updated demo://b", "tools/list_changed")
			time.Sleep(time.Minute)
		}
		if s.Count("resources/subscribe") != 8 || s.Count("resources/unsubscribe") != 0 || s.Count("initialize") != 4 {
			t.Errorf("the wire saw %v", wire(s))
		}
		sub.Close()
		synctest.Wait()
		if n := s.Count("resources/unsubscribe"); n != 2 {
			t.Errorf("%d resources were given back", n)
		}
	})
}

func TestLegacyResourcesAreSubscribedToAgainAfterAProcessRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overPipe(t, s, mcpclient.Options{})
		var got box
		sub := mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, got.put)
		for range 3 {
			s.Hangup()
			time.Sleep(time.Minute)
			got.want(t, "resync")
			s.Notify("notifications/resources/updated", update("demo://a"))
			got.want(t, "resources/updated demo://a")
			wantOpen(t, sub)
		}
		if n := s.Count("resources/subscribe"); n != 4 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestASessionForgottenAtEverySubscriptionIsNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Status = func(method string, _ int) *mcptest.Reply {
			if method == "resources/subscribe" {
				return &mcptest.Reply{Status: 404}
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		_ = mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, ignore)
		time.Sleep(10 * time.Minute)
		if n := s.Count("initialize"); n < 5 || n > 40 {
			t.Errorf("%d handshakes in ten minutes", n)
		}
	})
}

func TestFault100WhatComesBeforeItsAnswerIsNotLost(t *testing.T) {
	t.Run("an update before the answer to the subscription", func(t *testing.T) {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(mcptest.Legacy)
			s.Handle = map[string]mcptest.Handler{"resources/subscribe": func(ctx context.Context, r *mcptest.Request) (any, error) {
				r.Notify("notifications/resources/updated", update(r.Text("uri")))
				return r.Default(ctx)
			}}
			c := dial(t, s, mcpclient.Options{})
			var got box
			_ = mustListen(t, c, mcpclient.Filter{Resources: []string{"demo://a"}}, got.put)
			got.want(t, "resources/updated demo://a")
		})
	})
	t.Run("changes before the session", func(t *testing.T) {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(mcptest.Legacy)
			s.Session.None = true // the fake's stream is open before it has an id to give
			s.Initialize = func(ctx context.Context, r *mcptest.Request) (any, error) {
				r.Notify("notifications/tools/list_changed", nil)
				r.Notify("notifications/resources/updated", update("demo://a"))
				return r.Default(ctx)
			}
			c := dial(t, s, mcpclient.Options{})
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("everything in one packet", func(t *testing.T) {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(mcptest.Modern)
			s.Listen = mcptest.ListenOptions{Flood: 50, End: "graceful"}
			c := dial(t, s, mcpclient.Options{Changes: noChanges})
			var got box
			sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, got.put)
			wantEnd(t, sub, nil)
			if n := len(got.take()); n != 50 {
				t.Errorf("%d deliveries of 50", n)
			}
			if !sub.Acknowledged().ToolsList {
				t.Error("the acknowledgement was lost")
			}
		})
	})
}

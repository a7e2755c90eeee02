package mcpclient_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestBrokenPaginationIsAnErrorNotASilentEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		cursor func(n int) any // of the nth page sent, from 0
		text   string          // "" = the list is complete
		items  int
	}{
		"the same cursor again": {func(int) any { return "A" }, "came twice", 0},
		"a cycle":               {func(n int) any { return []string{"A", "B"}[n%2] }, "came twice", 0},
		"no end":                {func(n int) any { return fmt.Sprint("cursor ", n) }, "more than 5 pages", 0},
		"null is the end":       {func(int) any { return mcptest.Raw("null") }, "", 1},
		"empty is no end":       {func(n int) any { return map[bool]any{true: "", false: nil}[n == 0] }, "", 2},
		"a number is no cursor": {func(int) any { return 7 }, "not a list", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Modern)
				n := -1
				s.NextCursor = func(string, int, string) any { n++; return tc.cursor(n) }
				c := overHTTP(t, s, mcpclient.Options{MaxPages: 5})
				list, err := c.ListResources(t.Context())
				if tc.text != "" {
					_ = wantKind(t, err, mcpclient.KindProtocol, tc.text)
				} else if err != nil || len(list.Items) != tc.items {
					t.Errorf("got %+v, %v", list, err)
				}
				s.ForgiveViolations()
			})
		})
	}
}

func TestAWrongEntryDoesNotCostTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{
			"tools/list":   mcptest.Respond(mcptest.Raw(`{"tools":[null,{"name":"a"},7,{"title":"nameless"},{"name":5},{"name":"b","inputSchema":null}],"nextCursor":null}`)),
			"prompts/list": mcptest.Respond(mcptest.Raw(`{"prompts":null}`)),
		}
		c := overHTTP(t, s, mcpclient.Options{})
		list, err := c.ListTools(t.Context())
		if err != nil || len(list.Items) != 2 || !list.Has("a") || !list.Has("b") {
			t.Errorf("got %+v, %v", list, err)
		}
		if list, err := c.ListPrompts(t.Context()); err != nil || len(list.Items) != 0 {
			t.Errorf("a null list is empty: %+v, %v", list, err)
		}
	})
}

func TestCachesObeyTheServer(t *testing.T) {
	for name, tc := range map[string]struct {
		era     mcptest.Era
		ttl     int64
		off     bool
		advance time.Duration
		change  bool
		fetches int
	}{
		"fresh for its time":           {ttl: 60_000, advance: 59 * time.Second, fetches: 1},
		"stale after its time":         {ttl: 60_000, advance: 60 * time.Second, fetches: 2},
		"stale at once without a time": {ttl: 0, fetches: 2},
		"legacy without a time":        {era: mcptest.Legacy, advance: 24 * time.Hour, fetches: 1},
		"legacy until it changes":      {era: mcptest.Legacy, change: true, fetches: 2},
		"switched off":                 {ttl: 60_000, off: true, fetches: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(tc.era)
				s.PageSize, s.TTLMs = 0, tc.ttl
				c := overHTTP(t, s, mcpclient.Options{Cache: mcpclient.CacheOptions{NoPrompts: tc.off}})
				first, err := c.ListPrompts(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(tc.advance)
				if tc.change {
					s.Notify("notifications/prompts/list_changed", nil)
					synctest.Wait()
				}
				second, err := c.ListPrompts(t.Context())
				if err != nil || first.Fingerprint != second.Fingerprint {
					t.Errorf("%v %v", err, second)
				}
				if n := s.Count("prompts/list"); n != tc.fetches {
					t.Errorf("%d fetches, want %d", n, tc.fetches)
				}
			})
		})
	}
}

func TestOneFetchServesAllWhoAskMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.PageSize = 0
		s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Delay(time.Second, nil)}
		c := overHTTP(t, s, mcpclient.Options{})
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_ = wantKind(t, errOf(c.ListTools(ctx)), mcpclient.KindTimeout, "")
		})
		for range 50 {
			wg.Go(func() {
				if _, err := c.ListTools(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.Count("tools/list"); n != 1 {
			t.Errorf("%d fetches, want 1", n)
		}
	})
}

func TestAChangeDuringAFetchIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.PageSize = 0
		gate := make(chan struct{})
		s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Sequence(mcptest.After(gate, nil), nil)}
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first := make(chan error, 1)
		go func() { first <- errOf(c.ListTools(t.Context())) }()
		synctest.Wait()
		s.Notify("notifications/tools/list_changed", nil)
		synctest.Wait()
		close(gate)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListTools(t.Context()); err != nil || s.Count("tools/list") != 2 {
			t.Errorf("%v, %d fetches: the list from before the change was kept", err, s.Count("tools/list"))
		}
	})
}

func TestAFailedFetchIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Sequence(mcptest.Fail(-32603, "fetch failed", nil, 200), nil)}
		c := overHTTP(t, s, mcpclient.Options{})
		_ = wantKind(t, errOf(c.ListTools(t.Context())), mcpclient.KindRPC, "fetch failed")
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAListThatAnswersNothingUsefulSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Respond(mcptest.Raw(`{"items":[]}`))}
		c := overHTTP(t, s, mcpclient.Options{})
		e := wantKind(t, errOf(c.ListTools(t.Context())), mcpclient.KindProtocol, "not a list of tools")
		if !strings.Contains(e.Err.Error(), `"tools"`) {
			t.Errorf("the cause is %v", e.Err)
		}
	})
}

func TestEvictedListsAreFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.PageSize = 0
		c := overHTTP(t, s, mcpclient.Options{})
		for range 2 {
			for _, list := range []func(context.Context) (*mcpclient.List, error){c.ListTools, c.ListResources, c.ListResourceTemplates, c.ListPrompts} {
				for range 2 {
					if _, err := list(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.EvictTools()
			c.EvictResources()
			c.EvictPrompts()
		}
		for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
			if n := s.Count(method); n != 2 {
				t.Errorf("%s was asked %d times, want once per eviction", method, n)
			}
		}
	})
}

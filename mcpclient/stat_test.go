package mcpclient_test

import (
	"context"
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

func TestListsAreCountedByWhereTheyCameFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, features(mcptest.Modern), mcpclient.Options{Cache: mcpclient.CacheOptions{NoPrompts: true}})
		for range 3 { // the tools once, the prompts each time
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := c.ListPrompts(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(mcpclient.Stat{Connects: 1, CacheHits: 2, CacheMisses: 4}, c.Stat()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestTheEndsOfConnectionsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ends []mcpclient.SessionEnd
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{
			Version: mcpclient.VersionOptions{Pin: mcpclient.Version20251125},
			OnSessionEnd: func(e mcpclient.SessionEnd) {
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, e)
			},
		})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.ExpireSessions()
		if _, err := c.ListTools(t.Context()); err != nil { // begins the next session
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := c.Stat(); got.Connects != 2 || got.Reconnects != 1 {
			t.Errorf("%+v, want a second connection", got)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(ends) != 2 || ends[0].Err == nil || ends[1].Err != nil {
			t.Fatalf("told of %+v, want one lost connection and one that was closed", ends)
		}
		ends[0].Err = nil
		want := mcpclient.SessionEnd{
			Era: mcpclient.EraLegacy, ProtocolVersion: "2025-11-25", Transport: "streamable_http", Endpoint: "mcptest.invalid", Duration: time.Minute,
		}
		if diff := cmp.Diff(want, ends[0]); diff != "" {
			t.Errorf("the first (-want +got):\n%s", diff)
		}
		if ends[1].Duration != time.Hour {
			t.Errorf("the second served for %v", ends[1].Duration)
		}
	})
}

func TestACallCanHaveTheListReadThatItsNameShouldBeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		lists := map[string]string{}
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{
			Version: mcpclient.VersionOptions{Pin: mcpclient.Version20251125},
			Interceptors: []mcpclient.Interceptor{func(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
				result, err := next(ctx, call)
				if !strings.HasSuffix(call.Method, "/list") {
					call.Relist()
				}
				return result, err
			}},
			OnList: func(method string, list *mcpclient.List) {
				mu.Lock()
				defer mu.Unlock()
				lists[method] = itemNames(list)
			},
		})
		for _, call := range []func() error{
			func() error { _, err := c.CallTool(t.Context(), "echo", nil, nil); return err },
			func() error { _, err := c.GetPrompt(t.Context(), "hi", nil, nil); return err },
			func() error { _, err := c.ReadResource(t.Context(), "demo://a", nil); return err },
		} {
			if err := call(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		want := map[string]string{"tools/list": "echo,Grüße, 世界,fail,stuck", "prompts/list": "hi"}
		if diff := cmp.Diff(want, lists); diff != "" {
			t.Errorf("told of lists (-want +got):\n%s", diff)
		}
	})
}

func itemNames(list *mcpclient.List) string {
	var all []string
	for item := range slices.Values(list.Items) {
		all = append(all, item.Name)
	}
	return strings.Join(all, ",")
}

package zoo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

func TestEveryServerIsDetectedListedCalledAndClosed(t *testing.T) {
	for _, s := range zoo(t) {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			c := dial(t, s.dial(t), func(o *mcpclient.Options) { o.Version.Pin = s.pin })
			found := c.connect()
			if found.Era != s.era || found.ProtocolVersion != s.version {
				t.Errorf("found %v %s, want %v %s", found.Era, found.ProtocolVersion, s.era, s.version)
			}
			for _, list := range []struct {
				what string
				want int
				get  func(context.Context) (*mcpclient.List, error)
			}{
				{"tools", s.tools, c.ListTools},
				{"resources", s.resources, c.ListResources},
				{"templates", s.templates, c.ListResourceTemplates},
				{"prompts", s.prompts, c.ListPrompts},
			} {
				checkList(t, list.what, list.want, list.get)
			}
			if s.tool != "" {
				got := describe(c.call(s.tool, s.arguments))
				if !strings.HasPrefix(got, s.outcome+" ") || !strings.Contains(got, s.text) {
					t.Errorf("%s: got %s, want %s with %q", s.tool, got, s.outcome, s.text)
				}
			}
			if got := describe(c.call("no_such_tool", `{}`)); !strings.HasPrefix(got, s.unknown+" ") {
				t.Errorf("an unknown tool: got %s, want %s", got, s.unknown)
			}
			if known, err := c.KnowsTool(t.Context(), "no_such_tool"); known || err != nil {
				t.Errorf("KnowsTool of an unknown tool is %v, %v", known, err)
			}
			if status := c.Status(); status.Connects != 1 || status.State != mcpclient.StateReady {
				t.Errorf("the client is %v after %d connections, want one", status.State, status.Connects)
			}
			t.Logf("done after %v", time.Since(began))
		})
	}
}

// checkList reads a list until it has the wanted length: server-everything adds tools once it knows what the client
// can do, and reports each.
func checkList(t *testing.T, what string, want int, get func(context.Context) (*mcpclient.List, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		list, err := get(ctx)
		if want == none {
			if e, ok := asError(err); !ok || e.Kind != mcpclient.KindUnsupported {
				t.Errorf("%s: got %v, want that the server does not declare them", what, err)
			}
			return
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, item := range list.Items {
			if item.Name == "" || !list.Has(item.Name) {
				t.Errorf("%s: an item has the name %q", what, item.Name)
			}
		}
		if len(list.Items) == want {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Errorf("%d %s, want %d", len(list.Items), what, want)
			return
		}
	}
}

func asError(err error) (*mcpclient.Error, bool) { return errors.AsType[*mcpclient.Error](err) }

package mcpclient_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// The tests named TestFaultNN reproduce faults that were seen in MCP clients in
// the wild, each as a server's behaviour; faults_index_test.go lists them.

// faultScripts are the child processes of these tests.
var faultScripts = map[string]func() *mcptest.Server{
	"fault 5: exits on discover, and of a tool": func() *mcptest.Server {
		s := features(mcptest.Legacy)
		s.Discover = mcptest.Exit(1)
		s.Tools = append(s.Tools, mcptest.Tool{Name: "die", Call: mcptest.Exit(3)})
		return s
	},
	"fault 59: large lines": func() *mcptest.Server { return large() },
	"fault 62: floods stderr": func() *mcptest.Server {
		s := features(mcptest.Modern)
		s.Stdio.StderrFlood, s.Stdio.Stderr = 1<<20, []string{"a last word"}
		return s
	},
	"fault 64: stubborn": func() *mcptest.Server {
		s := features(mcptest.Modern)
		s.Stdio = mcptest.StdioOptions{IgnoreEOF: true, IgnoreTERM: true, Grandchild: true}
		return s
	},
	"fault 65: answers and exits": func() *mcptest.Server {
		s := features(mcptest.Modern)
		s.Stdio.ExitAfter = 2
		return s
	},
	"fault 67: stops reading": func() *mcptest.Server {
		s := features(mcptest.Modern)
		s.Stdio.StopAfter = 1
		return s
	},
	"fault 68: exits when cancelled": func() *mcptest.Server {
		s := features(mcptest.Legacy)
		s.OnNotification = func(r *mcptest.Request) {
			if r.Method == "notifications/cancelled" {
				_, _ = mcptest.Exit(0)(context.Background(), r)
			}
		}
		return s
	},
}

// They are added to scripts before TestMain looks there.
var _ = func() bool { maps.Copy(scripts, faultScripts); return true }()

// faultLog collects what a client logs.
type faultLog struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *faultLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns all that was logged.
func (l *faultLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *faultLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// count returns how many warnings hold text.
func (l *faultLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.SplitSeq(l.text.String(), "\n") {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// overFunc serves a fake and returns a client of it.
type overFunc func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client

// either runs a test in a bubble over in-memory HTTP, and in another over a
// stream with stdio framing.
func either(t *testing.T, test func(t *testing.T, over overFunc)) {
	t.Helper()
	t.Run("http", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, overHTTP) }) })
	t.Run("stdio", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, overPipe) }) })
}

// answered replaces the answer of one tool of the fake.
func answered(s *mcptest.Server, tool string, h mcptest.Handler) *mcptest.Server {
	for i := range s.Tools {
		if s.Tools[i].Name == tool {
			s.Tools[i].Call = h
			return s
		}
	}
	s.Tools = append(s.Tools, mcptest.Tool{Name: tool, Call: h})
	return s
}

// stillWorks checks that the connection lives on: the same one, and it answers.
func stillWorks(t *testing.T, c *mcpclient.Client) {
	t.Helper()
	if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
		t.Errorf("the connection does not work any more: %v", err)
	}
	if st := c.Status(); st.Connects != 1 || st.State != mcpclient.StateReady {
		t.Errorf("the connection was replaced: %v after %d connections, %v", st.State, st.Connects, st.LastError)
	}
}

// connected connects within the bubble and lets everything settle.
func connected(t *testing.T, c *mcpclient.Client) {
	t.Helper()
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// took checks for how long something ran.
func took(t *testing.T, since time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(since); got != want {
		t.Errorf("it took %v, want exactly %v", got, want)
	}
}

// large offers a tool whose result holds as many letters as asked for.
func large() *mcptest.Server {
	s := features(mcptest.Modern)
	return answered(s, "letters", func(_ context.Context, r *mcptest.Request) (any, error) {
		var n int
		if err := json.Unmarshal(r.Param("arguments"), &struct{ N *int }{&n}); err != nil {
			return nil, err
		}
		return mcptest.Text(strings.Repeat("x", n)), nil
	})
}

// jsonMember returns one member of an object; nil when there is none.
func jsonMember(t *testing.T, object []byte, name string) json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	return members[name]
}

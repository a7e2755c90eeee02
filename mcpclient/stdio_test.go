package mcpclient_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// scripts are the child processes that tests of this package start.
var scripts = map[string]func() *mcptest.Server{
	"modern": func() *mcptest.Server { return features(mcptest.Modern) },
	"legacy": func() *mcptest.Server { return features(mcptest.Legacy) },
	"exits on a method it does not know": func() *mcptest.Server {
		s := features(mcptest.Legacy)
		s.Discover = mcptest.Exit(1)
		return s
	},
	"talks before it answers": func() *mcptest.Server {
		s := features(mcptest.Dual)
		s.Stdio = mcptest.StdioOptions{Banner: []string{"Starting server v1...", "", "42", `{"level":"info"}`, "[]"}, JunkEvery: 2, StderrFlood: 1 << 20}
		return s
	},
	"dies of a tool": func() *mcptest.Server {
		s := features(mcptest.Modern)
		s.Tools = append(s.Tools, mcptest.Tool{Name: "die", Call: mcptest.Exit(3)})
		return s
	},
}

func overStdio(t *testing.T, script string, o mcpclient.Options) (*mcptest.Child, *mcpclient.Client) {
	t.Helper()
	child := mcptest.StartChild(t, script)
	return child, newClient(t, &transport.Command{Path: child.Path, Env: child.Env}, o)
}

func TestChildProcessesWorkInBothEras(t *testing.T) {
	for script, era := range map[string]mcpclient.Era{
		"modern": mcpclient.EraModern, "legacy": mcpclient.EraLegacy, "talks before it answers": mcpclient.EraModern,
		"exits on a method it does not know": mcpclient.EraLegacy,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			child, c := overStdio(t, script, mcpclient.Options{})
			list, err := c.ListTools(t.Context())
			if err != nil || len(list.Items) != 4 {
				t.Fatalf("%+v %v", list, err)
			}
			if result, err := c.CallTool(t.Context(), "Grüße, 世界", nil, nil); err != nil || !strings.Contains(string(result.Raw), "héllo") {
				t.Errorf("%+v %v", result, err)
			}
			if got := c.Status().Server.Era; got != era {
				t.Errorf("the era is %v, want %v", got, era)
			}
			opened := 1
			if strings.HasPrefix(script, "exits") {
				opened = 2
			}
			if _, err := child.WaitFor(t.Context(), mcptest.MethodOpened, opened); err != nil || child.Count(mcptest.MethodOpened) != opened {
				t.Errorf("%d processes, want %d: %v", child.Count(mcptest.MethodOpened), opened, err)
			}
		})
	}
}

func TestAProcessThatDiesOfAToolIsReplacedAndTheToolNotRepeated(t *testing.T) {
	child, c := overStdio(t, "dies of a tool", mcpclient.Options{})
	e := wantKind(t, errOf(c.CallTool(t.Context(), "die", nil, nil)), mcpclient.KindLost, "")
	if e.SafeToRetry || !e.Sent {
		t.Errorf("%+v", e)
	}
	if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
		t.Errorf("the next call needs a fresh process: %v", err)
	}
	if last, err := child.WaitFor(t.Context(), "tools/call", 2); err != nil || !strings.Contains(string(last.Raw), `"echo"`) {
		t.Errorf("want the two calls at the server and no third: %s %v", last.Raw, err)
	}
}

func TestACommandThatDoesNotExistIsNamed(t *testing.T) {
	c := newClient(t, &transport.Command{Path: "no-such-mcp-server"}, mcpclient.Options{})
	_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "no-such-mcp-server")
}

// overPipe serves the fake on an in-memory stream, as often as it is dialed.
func overPipe(t *testing.T, s *mcptest.Server, o mcpclient.Options) *mcpclient.Client {
	t.Helper()
	tr, server := transport.NewPipe()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			rw, err := server.Accept(ctx)
			if err != nil {
				return
			}
			wg.Go(func() { _ = s.ServeStream(ctx, rw) })
		}
	})
	t.Cleanup(func() { stop(); s.Close(); wg.Wait() })
	mcptest.Check(t, s)
	return newClient(t, tr, o)
}

func TestCancellationOnASharedStreamIsOneNotificationInBothEras(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			s := features(era)
			c := overPipe(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 4 * time.Second}})
			start := time.Now()
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "stuck", nil, nil)), mcpclient.KindTimeout, "4s")
			if took := time.Since(start); took != 4*time.Second {
				t.Errorf("it took %v", took)
			}
			synctest.Wait()
			id := s.Entries("tools/call")[0].ID
			got := s.Entries("notifications/cancelled")
			if len(got) != 1 || !strings.Contains(string(got[0].Params()), `"requestId":`+id+`,"reason":"timeout"`) {
				t.Errorf("era %v: want one cancellation of %s, got %v", era, id, got)
			}
		})
	}
}

func TestALateAnswerToTheProbeWinsOnAFreshStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mcptest.Server{
			Era:      mcptest.Dual,
			Discover: mcptest.Sequence(mcptest.Delay(7*time.Second, nil), nil),
			Handle:   map[string]mcptest.Handler{"initialize": mcptest.Silence()},
		}
		c := overPipe(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil || c.Status().Server.Era != mcpclient.EraModern {
			t.Fatalf("%v %+v", err, c.Status())
		}
		if n := s.Count(mcptest.MethodOpened); n != 2 {
			t.Errorf("%d streams, want a fresh one", n)
		}
		if n := s.Count("notifications/cancelled"); n != 0 {
			t.Error("negotiation is never cancelled by a message")
		}
	})
}

func TestALostStreamIsReplacedAtOnceButNotInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Stdio.ExitAfter = 1 // every stream ends after the handshake
		c := overPipe(t, s, mcpclient.Options{})
		c.Start()
		time.Sleep(10 * time.Minute)
		if n := s.Count(mcptest.MethodOpened); n < 8 || n > 30 {
			t.Errorf("%d streams in ten minutes", n)
		}
	})
}

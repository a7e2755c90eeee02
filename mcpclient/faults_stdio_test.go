package mcpclient_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestFault56LinesThatAreNoMessagesAreSkippedAndLogged(t *testing.T) {
	banner := []string{"Starting server v1.0.0…", "\x1b[32mready\x1b[0m", "", "   ", "npm WARN deprecated", `{"level":"info"}`, "42", "[]", "null", `"text"`, "{", "\xff\xfe", `{"jsonrpc":"2.0"}`}
	for range 500 {
		banner = append(banner, "loading…")
	}
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Stdio = mcptest.StdioOptions{Banner: banner, JunkEvery: 1, Junk: `{"level":"debug","msg":"call"}`}
		var log faultLog
		c := overPipe(t, s, mcpclient.Options{Logger: log.logger()})
		for range 10 {
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		stillWorks(t, c)
	})
	t.Run("a program that never says anything else is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.Stdio = mcptest.StdioOptions{Banner: banner, StopReading: true}
			c := overPipe(t, s, mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{Timeout: 20 * time.Second}})
			start := time.Now()
			_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "")
			if time.Since(start) > 20*time.Second {
				t.Errorf("after %v", time.Since(start))
			}
		})
	})
}

func TestFault58WhiteSpaceAroundAMessageAndAMissingLastLineEndAreForgiven(t *testing.T) {
	for name, form := range map[string]mcptest.StdioOptions{
		"BOM and CRLF":        {BOM: true, EOL: "\r\n"},
		"trailing space":      {EOL: " \t\n"},
		"no last line end":    {NoFinalNewline: true, ExitAfter: 2},
		"nor a clean one":     {NoFinalNewline: true, ExitAfter: 2, BOM: true, EOL: "\r\n"},
		"leading blank lines": {Banner: []string{"", "\r", " "}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Modern)
				s.Stdio = form
				c := overPipe(t, s, mcpclient.Options{Lazy: true})
				if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFault59LongLinesArriveAndTooLongOnesFailTheirCallAlone(t *testing.T) {
	child := mcptest.StartChild(t, "fault 59: large lines")
	c := newClient(t, &transport.Command{Path: child.Path, Env: child.Env, MaxReplyBytes: 16 << 20}, mcpclient.Options{})
	for _, n := range []int{100 << 10, 5 << 20} {
		result, err := c.CallTool(t.Context(), "letters", jsontext.Value(fmt.Sprintf(`{"n":%d}`, n)), nil)
		if err != nil || len(result.Raw) < n {
			t.Fatalf("%d letters: %v", n, err)
		}
		text := jsontext.Value(`{"text":"` + strings.Repeat("y", n) + `"}`)
		if result, err = c.CallTool(t.Context(), "echo", text, nil); err != nil || len(result.Raw) < 2*n {
			t.Fatalf("%d letters there and back: %v", n, err)
		}
	}
	e := wantKind(t, errOf(c.CallTool(t.Context(), "letters", jsontext.Value(`{"n":17825792}`), nil)), mcpclient.KindTooLarge, "limit")
	if e.Limit != 16<<20 {
		t.Errorf("the limit is named as %d", e.Limit)
	}
	stillWorks(t, c)
}

func TestFault61OnlyLineFeedsEndLines(t *testing.T) {
	const text = "a\u2028b\u2029c\u0085d\u000be\u000cf\\n"
	synctest.Test(t, func(t *testing.T) {
		raw := `{"text":"a` + "\u2028b\u2029c\u0085d" + `"}`
		s := answered(features(mcptest.Modern), "raw", mcptest.Respond(mcptest.Raw(`{"content":[],"structuredContent":`+raw+`}`)))
		c := overPipe(t, s, mcpclient.Options{})
		result, err := c.CallTool(t.Context(), "raw", nil, nil)
		if err != nil || !strings.Contains(string(result.Raw), raw) {
			t.Errorf("%v %v", result, err)
		}
		if result, err = c.CallTool(t.Context(), "echo", jsontext.Value(raw), nil); err != nil || !strings.Contains(string(result.Raw), `"structuredContent":`+raw) {
			t.Errorf("%v %v", result, err)
		}
		if _, err := c.GetPrompt(t.Context(), "hi", map[string]string{"text": text + "\n"}, nil); err != nil {
			t.Error(err)
		}
	})
	either(t, func(t *testing.T, over overFunc) { // nor is one ever sent
		s := features(mcptest.Modern)
		c := over(t, s, mcpclient.Options{})
		if kind := kindOf(errOf(c.CallTool(t.Context(), "echo", jsontext.Value("{\n\"a\":\r\n1}"), nil))); kind != -2 && kind != mcpclient.KindInvalid {
			t.Errorf("want it sent on one line, or refused here: kind %v", kind)
		}
		if s.Count(mcptest.MethodInvalid) != 0 {
			t.Errorf("the server saw %v", s.Methods())
		}
		stillWorks(t, c)
	})
}

func TestFault62AFloodOfStderrBlocksNothingAndItsEndIsKept(t *testing.T) {
	child := mcptest.StartChild(t, "fault 62: floods stderr")
	tr := &transport.Command{Path: child.Path, Env: child.Env}
	c := newClient(t, tr, mcpclient.Options{})
	if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	tail := strings.Join(tr.StderrTail(), "\n")
	if len(tail) > 64<<10 || !strings.HasSuffix(tail, "0123456789abcde") {
		t.Errorf("%d bytes of stderr are kept, ending in %q", len(tail), tail[max(0, len(tail)-20):])
	}
}

func TestFault64AStubbornProcessAndItsChildrenAreGoneAfterClose(t *testing.T) {
	child := mcptest.StartChild(t, "fault 64: stubborn")
	c := newClient(t, &transport.Command{Path: child.Path, Env: child.Env, StopTimeout: 2 * time.Second}, mcpclient.Options{})
	if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
		t.Fatal(err)
	}
	grandchild, err := child.WaitFor(t.Context(), mcptest.MethodGrandchild, 1)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v of 2s", d)
	}
	for deadline := time.Now().Add(5 * time.Second); alive(grandchild.ID); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the grandchild lives")
		}
	}
}

// alive looks at a process that is not ours to wait for. A zombie that nobody
// has collected yet counts as gone.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
}

func TestFault65TheAnswerOfAProcessThatExitsAtOnceIsNotLost(t *testing.T) {
	for i := range 10 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			_, c := overStdio(t, "fault 65: answers and exits", mcpclient.Options{Lazy: true, Version: mcpclient.VersionOptions{Pin: "2026-07-28"}})
			if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFault67AServerThatStopsReadingHoldsNobodyPastTheDeadline(t *testing.T) {
	child, c := overStdio(t, "fault 67: stops reading", mcpclient.Options{Version: mcpclient.VersionOptions{Pin: "2026-07-28"}})
	connected(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	huge := jsontext.Value(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	_ = wantKind(t, errOf(c.CallTool(ctx, "echo", huge, nil)), mcpclient.KindTimeout, "caller's deadline")
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err := child.WaitFor(t.Context(), mcptest.MethodOpened, 2); err != nil {
		t.Errorf("half a line was written, nothing can follow it, and yet the process is kept: %v", err)
	}
}

func TestFault68AProcessThatExitsUnderACancellationHarmsNobody(t *testing.T) {
	_, c := overStdio(t, "fault 68: exits when cancelled", mcpclient.Options{Version: mcpclient.VersionOptions{Pin: "2025-11-25"}, Reconnect: mcpclient.ReconnectOptions{Interval: time.Millisecond, MaxInterval: time.Millisecond}})
	for range 5 {
		connected(t, c)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				switch kindOf(errOf(c.CallTool(ctx, "stuck", nil, nil))) {
				case mcpclient.KindTimeout, mcpclient.KindLost, mcpclient.KindUnavailable:
				default:
					t.Errorf("want the deadline, or the end of the process")
				}
			})
		}
		wg.Wait()
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := c.ReadResource(t.Context(), "demo://a", nil)
		if err == nil {
			break
		}
		if kindOf(err) != mcpclient.KindUnavailable && kindOf(err) != mcpclient.KindLost || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

package mcptest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// dial opens a stdio connection to s and returns writer, reader and a func
// that closes it and returns ServeStream's error.
func dial(t *testing.T, s *Server) (send func(string), next func(*testing.T) string, hangup func() error) {
	client, server := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStream(t.Context(), server) }()
	send = func(line string) {
		t.Helper()
		if _, err := io.WriteString(client, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	return send, lines(client), func() error {
		client.Close()
		return <-served
	}
}

func TestStdioServesTheLegacyLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Era: Legacy, Tools: []Tool{{Name: "slow", Call: Delay(time.Hour, Respond(Text("done")))}}}
		Check(t, s)
		send, next, hangup := dial(t, s)
		send(request(`"probe"`, "server/discover"))
		if got := next(t); !strings.Contains(got, "-32601") {
			t.Errorf("probe = %s", got)
		}
		send(initializeBody)
		if got := next(t); !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
			t.Errorf("initialize = %s", got)
		}
		send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		began := time.Now()
		send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow"}}`)
		send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow"}}`)
		send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if got := next(t); !strings.Contains(got, `"id":3`) || time.Since(began) != time.Hour {
			t.Errorf("only the uncancelled call is answered, after an hour: %s after %v", got, time.Since(began))
		}
		s.Notify("notifications/tools/list_changed", nil)
		if got := next(t); !strings.Contains(got, "list_changed") {
			t.Errorf("notification = %s", got)
		}
		send("")
		next(t)
		wantViolation(t, &s.Log, "stdin line")
		if err := hangup(); err != nil {
			t.Errorf("ServeStream = %v", err)
		}
		if got := s.Methods()[len(s.Methods())-1]; got != MethodEOF {
			t.Errorf("last entry = %s", got)
		}
	})
}

func TestStdioServesModernRequestsAndCancelsByNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Handle: map[string]Handler{"wait": Silence()}, AnswerCancelled: false}
		Check(t, s)
		send, next, hangup := dial(t, s)
		send(`{"jsonrpc":"2.0","id":1,"method":"wait","params":{` + modernMeta + `}}`)
		send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`)
		if got := next(t); !strings.Contains(got, `"tools":[]`) {
			t.Errorf("list = %s", got)
		}
		if err := hangup(); err != nil {
			t.Errorf("ServeStream = %v", err)
		}
	})
}

func TestStdioFaultsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Stdio: StdioOptions{BOM: true, Banner: []string{"Starting…"}, JunkEvery: 1, EOL: "\r\n", ExitAfter: 2, NoFinalNewline: true}}
		Check(t, s)
		send, next, hangup := dial(t, s)
		list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`
		send(list)
		if got := next(t) + next(t); got != "\uFEFFStarting…\rnpm WARN deprecated something\r" {
			t.Errorf("banner and junk = %q", got)
		}
		if got := next(t); !strings.HasSuffix(got, "}\r") {
			t.Errorf("answer = %q", got)
		}
		send(list)
		next(t)
		if got := next(t); !strings.HasSuffix(got, "}") {
			t.Errorf("last answer = %q", got)
		}
		if err := hangup(); err != nil {
			t.Errorf("ServeStream = %v", err)
		}
	})
}

func TestMemoryHTTPWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Tools: []Tool{{Name: "slow", Call: Delay(time.Hour, nil)}}, Discover: Delay(7*time.Second, nil)}
		url, hc := StartMemoryHTTP(t, s)
		c := newClient(t, url)
		c.http = hc
		began := time.Now()
		if status, _ := c.modern("1", "server/discover", ""); status != 200 || time.Since(began) != 7*time.Second {
			t.Errorf("discover = %d after %v", status, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow",`+modernMeta+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		req.Header.Set("MCP-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "slow")
		if resp, err := hc.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("the call outlived its deadline: %d", resp.StatusCode)
		}
		if _, err := s.WaitFor(t.Context(), MethodAborted, 1); err != nil {
			t.Error(err)
		}
	})
}

// start runs a child and returns its pipes.
func start(t *testing.T, c *Child) (*exec.Cmd, io.WriteCloser, func(*testing.T) string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.Path)
	cmd.Env = c.Env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, lines(out)
}

func TestAChildServesItsScriptAndReportsToTheParent(t *testing.T) {
	c := StartChild(t, "legacy")
	cmd, in, next := start(t, c)
	if _, err := io.WriteString(in, initializeBody+"\n"); err != nil {
		t.Fatal(err)
	}
	if got := next(t); !strings.Contains(got, `"serverInfo"`) {
		t.Errorf("initialize = %s", got)
	}
	if e, err := c.WaitFor(t.Context(), "initialize", 1); err != nil || e.ID != "1" {
		t.Errorf("entry = %+v, %v", e, err)
	}
	if _, err := io.WriteString(in, "[]\n"); err != nil {
		t.Fatal(err)
	}
	next(t)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if _, err := c.WaitFor(t.Context(), MethodEOF, 1); err != nil {
		t.Error(err)
	}
	wantViolation(t, &c.Log, "batch")
}

func TestChildrenExitAsScripted(t *testing.T) {
	for script, want := range map[string]int{"exit on discover": 1, "one answer": 0} {
		c := StartChild(t, script)
		cmd, in, _ := start(t, c)
		if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+modernMeta+`}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
		if c.Count(MethodOpened) != 1 {
			if _, err := c.WaitFor(t.Context(), MethodOpened, 1); err != nil {
				t.Error(err)
			}
		}
	}
}

// pipes is an Acceptor of two prepared connections.
type pipes chan io.ReadWriteCloser

func (p pipes) Accept(ctx context.Context) (io.ReadWriteCloser, error) {
	select {
	case c := <-p:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (pipes) Close() {}

func TestStartPipeServesEachConnectionAsANewProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Era: Legacy}
		accept := make(pipes)
		StartPipe(t, s, accept)
		for range 2 {
			client, server := net.Pipe()
			accept <- server
			if _, err := io.WriteString(client, initializeBody+"\n"); err != nil {
				t.Fatal(err)
			}
			if got := lines(client)(t); !strings.Contains(got, "serverInfo") {
				t.Errorf("initialize = %s", got)
			}
			s.Hangup()
			if _, err := client.Read(make([]byte, 1)); err == nil {
				t.Error("the connection outlived Hangup")
			}
		}
		if got := s.Count(MethodOpened); got != 2 {
			t.Errorf("connections = %d", got)
		}
	})
}

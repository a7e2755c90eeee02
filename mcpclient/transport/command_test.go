//go:build unix

package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// The test binary runs itself as the server; these variables say what it does.
const (
	childRole = "MCPBRIDGE_TEST_CHILD"
	// lifeline names a FIFO that the server and its children keep open, so
	// that its end tells that all of them are gone.
	lifeline = "MCPBRIDGE_TEST_LIFELINE"
)

func runChild(role string) int {
	var held *os.File
	if path := os.Getenv(lifeline); path != "" {
		held, _ = os.OpenFile(path, os.O_WRONLY, 0)
		_, _ = held.WriteString("up\n")
	}
	switch role {
	case "banner":
		fmt.Print("Starting server\n\n\x1b[32mready\x1b[0m\r\n")
	case "flood":
		fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 200<<10))
		fmt.Fprintln(os.Stderr, "last words")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "family", "orphan":
		cmd := exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & wait; wait")
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{held}
		if err := cmd.Start(); err != nil {
			return 1
		}
	case "tree": // a child, one in a session of its own, and an orphan of that kind
		for i, script := range []string{"trap '' TERM; sleep 1000 & wait; wait", "trap '' TERM; sleep 1000 & wait; wait", "trap '' TERM; sleep 1000 &"} {
			cmd := exec.Command("sh", "-c", script)
			cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{held}, &syscall.SysProcAttr{Setsid: i > 0}
			if err := cmd.Start(); err != nil {
				return 1
			}
			if !strings.HasSuffix(script, "wait") {
				_ = cmd.Wait()
			}
		}
	case "bridge", "supervising bridge":
		tr := child("stubborn", os.Getenv("INNER_LIFELINE"))
		if role != "bridge" {
			tr = child("tree", os.Getenv("INNER_LIFELINE"))
			tr.Supervisor = []string{tr.Path, "supervise"}
		}
		conn, err := tr.Dial(context.Background(), nil)
		if err != nil {
			return 1
		}
		if _, err := conn.Call(context.Background(), legacy(1, "x")); err != nil {
			return 1
		}
		fmt.Println("ready")
		select {}
	case "deaf":
		select {}
	}
	r := bufio.NewReader(os.Stdin)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if role == "stubborn" {
				select {}
			}
			return 0
		}
		m, err := jsonrpc.Decode(line)
		if err != nil {
			return 4
		}
		if m.Kind != jsonrpc.Request {
			continue
		}
		dir, _ := os.Getwd()
		result := fmt.Sprintf(`{"pid":%d,"env":%d,"args":%q,"dir":%q}`, os.Getpid(), len(os.Environ()), strings.Join(os.Args[1:], " "), dir)
		fmt.Printf("%s\n", jsonrpc.AppendResult(nil, m.ID, []byte(result)))
		if role == "exit" || role == "orphan" {
			return 3
		}
	}
}

// child is a command that runs this binary in a role.
func child(role, fifo string) *Command {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := &Command{Path: exe, Env: []string{childRole + "=" + role}}
	if fifo != "" {
		c.Env = append(c.Env, lifeline+"="+fifo, "PATH="+os.Getenv("PATH"))
	}
	return c
}

// bothWays runs a test with and, where there is one, without a supervisor.
func bothWays(t *testing.T, test func(t *testing.T, child func(role, fifo string) *Command)) {
	t.Run("alone", func(t *testing.T) { test(t, child) })
	if canSupervise {
		t.Run("supervised", func(t *testing.T) { test(t, supervised) })
	}
}

// supervised is a child under a supervisor, which is this binary too.
func supervised(role, fifo string) *Command {
	c := child(role, fifo)
	c.Supervisor = []string{c.Path, "supervise"}
	return c
}

// fifo returns a path for a lifeline, a function that waits until a process
// holds it, and one that waits until none does any more.
func fifo(t *testing.T) (path string, up, gone func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lifeline")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// Read and write, so that opening does not wait; the write side goes away
	// once the server holds its own.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	up = func() {
		t.Helper()
		if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, len("up\n"))); err != nil {
			t.Fatalf("the process did not come up: %v", err)
		}
	}
	return path, up, func() {
		t.Helper()
		_ = f.Close()
		if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("a process lives on: %v", err)
		}
	}
}

func pidOf(t *testing.T, m *jsonrpc.Message) int {
	t.Helper()
	_, rest, _ := strings.Cut(string(m.Result), `"pid":`)
	digits, _, _ := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("result %s: %v", m.Result, err)
	}
	return pid
}

func TestAProcessServesAndLeavesNothingBehind(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		c := child("banner", "")
		c.Args, c.Dir = []string{"a", "b c"}, dir
		conn := dial(t, c, nil)
		if c.Name() != NameStdio {
			t.Error(c.Name())
		}
		var pid int
		for id := range int64(100) {
			m, err := conn.Call(t.Context(), legacy(id, "x"))
			if err != nil {
				t.Fatal(err)
			}
			if got := pidOf(t, m); pid != 0 && got != pid {
				t.Fatal("a second process")
			} else {
				pid = got
			}
			if want := fmt.Sprintf(`"env":1,"args":"a b c","dir":%q}`, dir); !strings.HasSuffix(string(m.Result), want) {
				t.Fatalf("result %s, want %s", m.Result, want)
			}
		}
		start := time.Now()
		for range 2 {
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("a polite server took %v to close", took)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
		wantError(t, conn.Err(), Closed)
		// A transport can be dialed again.
		if _, err := dial(t, c, nil).Call(t.Context(), legacy(1, "x")); err != nil {
			t.Error(err)
		}
	})
}

func TestFault62_StderrIsDrainedAndItsEndKept(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		c := child("flood", "")
		if c.StderrTail() != nil {
			t.Error("lines before the first process")
		}
		conn := dial(t, c, nil)
		if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := c.StderrTail()
		if !slices.Contains(lines, "last words") { // a coverage build adds a line
			t.Errorf("%d lines", len(lines))
		}
		if n := len(strings.Join(lines, "\n")); n > stderrBytes {
			t.Errorf("%d bytes kept", n)
		}
	})
}

func TestFault65_TheEndOfAProcessIsNamedAfterItsLastWords(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		conn := dial(t, child("exit", ""), nil)
		if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
			t.Fatal(err)
		}
		<-conn.Done()
		if e := wantError(t, conn.Err(), Lost); !strings.Contains(e.Message, "exit status 3") {
			t.Errorf("message %q", e.Message)
		}
		_, err := conn.Call(t.Context(), legacy(2, "x"))
		wantError(t, err, NotSent)
	})
}

func TestAKilledProcessLosesItsCalls(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		conn := dial(t, child("deaf", ""), nil)
		out := call(t.Context(), conn, 1)
		p, ok := conn.(*processConn)
		if !ok {
			t.Fatalf("connection is %T", conn)
		}
		if err := syscall.Kill(p.process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// Written into the pipe before the end, or not.
		e, ok := errors.AsType[*Error]((<-out).err)
		if !ok || e.Kind != Lost && e.Kind != NotSent {
			t.Errorf("error: %v", e)
		}
		<-conn.Done()
		if e := wantError(t, conn.Err(), Lost); !strings.Contains(e.Message, "signal: killed") && !strings.Contains(e.Message, "closed its input") {
			t.Errorf("message %q", e.Message)
		}
	})
}

func TestFault64_AStubbornProcessIsKilledWithinTheBudget(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		path, _, gone := fifo(t)
		c := child("stubborn", path)
		c.StopTimeout = 800 * time.Millisecond
		conn := dial(t, c, nil)
		if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 500*time.Millisecond || took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		gone()
	})
}

func TestFault64_AnEndedContextKillsAtOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		path, _, gone := fifo(t)
		c := child("stubborn", path)
		c.StopTimeout = time.Hour
		conn := dial(t, c, nil)
		if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
		gone()
	})
}

func TestFault64_GrandchildrenThatHoldThePipesDieToo(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		for _, role := range []string{"family", "orphan"} {
			t.Run(role, func(t *testing.T) {
				path, _, gone := fifo(t)
				c := child(role, path)
				c.StopTimeout = 2 * time.Second
				conn := dial(t, c, nil)
				if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
					t.Fatal(err)
				}
				if role == "orphan" { // the server exits by itself, its child stays
					<-conn.Done()
					if e := wantError(t, conn.Err(), Lost); !strings.Contains(e.Message, "exit status 3") {
						t.Errorf("message %q", e.Message)
					}
				}
				if err := conn.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				gone()
			})
		}
	})
}

func TestFault67_ADeafProcessDoesNotHoldACallPastItsDeadline(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		c := child("deaf", "")
		c.StopTimeout = 400 * time.Millisecond
		conn := dial(t, c, nil)
		r := legacy(1, "x")
		r.Body = jsonrpc.AppendRequest(nil, r.ID, "x", []byte(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := conn.Call(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStartFailuresNameTheCommandAndTheReason(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		dir := t.TempDir()
		write := func(name, text string, mode os.FileMode) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			return path
		}
		write("plain", "x", 0o600)
		for name, tt := range map[string]struct {
			c    *Command
			says string
		}{
			"empty":          {&Command{}, "empty"},
			"not in PATH":    {&Command{Path: "no-such-mcp-server", Args: []string{"secret"}}, `"no-such-mcp-server": it is in no directory of PATH`},
			"PATH of Env":    {&Command{Path: "sh", Env: []string{"PATH=" + dir}}, "PATH"},
			"not executable": {&Command{Path: "plain", Env: []string{"PATH=" + dir}}, "not executable"},
			"no file":        {&Command{Path: dir + "/none"}, "does not exist"},
			"no permission":  {&Command{Path: dir + "/plain"}, "permission denied"},
			"no interpreter": {&Command{Path: write("bad", "#!/no/such/interpreter\n", 0o700)}, "interpreter"},
			"no program":     {&Command{Path: write("text", "hello", 0o700)}, "no program"},
			"no directory":   {&Command{Path: "sh", Dir: dir + "/none"}, "working directory"},
		} {
			t.Run(name, func(t *testing.T) {
				tt.c.Supervisor = child("", "").Supervisor
				_, err := tt.c.Dial(t.Context(), nil)
				e := wantError(t, err, NotSent)
				if !strings.Contains(e.Message, tt.says) || strings.Contains(e.Message, "secret") {
					t.Errorf("message %q does not say %q, or too much", e.Message, tt.says)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := child("banner", "").Dial(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Dial with a dead context: %v", err)
		}
	})
}

func TestTheProgramIsLookedUpInThePATHOfItsEnvironment(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.Symlink(exe, filepath.Join(dir, "my-server")); err != nil {
			t.Fatal(err)
		}
		c := child("banner", "")
		c.Path, c.Env = "my-server", append(c.Env, "PATH=.:/no/such/dir:"+dir)
		if _, err := dial(t, c, nil).Call(t.Context(), legacy(1, "x")); err != nil {
			t.Error(err)
		}
	})
}

func TestTheLastWordsOfAServerThatCannotStartAreThereWithDone(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		c := &Command{Path: "sh", Args: []string{"-c", "echo 'missing API_KEY' >&2; exit 1"}, Supervisor: child("", "").Supervisor}
		conn := dial(t, c, nil)
		<-conn.Done()
		if got := c.StderrTail(); len(got) != 1 || got[0] != "missing API_KEY" {
			t.Errorf("stderr %q", got)
		}
	})
}

package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEverythingDiesWithASupervisedServersBridge(t *testing.T) {
	path, _, gone := fifo(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bridge := exec.CommandContext(t.Context(), exe)
	bridge.Env = []string{childRole + "=supervising bridge", "INNER_LIFELINE=" + path, "PATH=" + os.Getenv("PATH")}
	out, err := bridge.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bridge.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the bridge says %q, %v", line, err)
	}
	if err := bridge.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = bridge.Wait() // killed, as it should be
	gone()
}

func TestCloseLeavesNothingOfASupervisedServer(t *testing.T) {
	path, _, gone := fifo(t)
	conn := dial(t, supervised("tree", path), nil)
	if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > superviseGrace+4*time.Second { // -race adds a second to the end of each
		t.Errorf("took %v", took)
	}
	gone()
}

func TestTheEndOfASupervisedServerIsToldAsItWas(t *testing.T) {
	for signal, says := range map[syscall.Signal]string{0: "exit status 3", syscall.SIGKILL: "signal: killed", syscall.SIGSEGV: "signal: segmentation fault", syscall.SIGTERM: "signal: terminated"} {
		t.Run(says, func(t *testing.T) {
			c := &Command{
				Path: "sh", Args: []string{"-c", `read line; case $0 in 0) exit 3;; esac; kill -$0 $$; sleep 10`, map[bool]string{true: "0"}[signal == 0] + signalName(signal)},
				Supervisor: supervised("", "").Supervisor,
			}
			conn := dial(t, c, nil)
			_, err := conn.Call(t.Context(), legacy(1, "x"))
			if e := wantError(t, err, Lost); !strings.Contains(e.Message, says) {
				t.Errorf("message %q", e.Message)
			}
		})
	}
}

func signalName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGSEGV: "SEGV", syscall.SIGTERM: "TERM"}[s]
}

func TestAServerDiesWithItsSupervisor(t *testing.T) {
	path, _, gone := fifo(t)
	conn := dial(t, supervised("family", path), nil)
	if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
		t.Fatal(err)
	}
	p, ok := conn.(*processConn)
	if !ok {
		t.Fatalf("connection is %T", conn)
	}
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone() // before Close
	<-conn.Done()
	wantError(t, conn.Err(), Lost)
}

func TestTheSupervisorHoldsNoPipeOfItsServer(t *testing.T) {
	c := &Command{Path: "sh", Args: []string{"-c", `exec >&-; read line; read line; exit 0`}, Supervisor: supervised("", "").Supervisor}
	conn := dial(t, c, nil)
	<-conn.Done()
	if e := wantError(t, conn.Err(), Lost); !strings.Contains(e.Message, "closed its output") {
		t.Errorf("message %q", e.Message)
	}
}

func TestWhatIsNoSupervisorIsCalledThat(t *testing.T) {
	for name, prefix := range map[string][]string{"another program": {"/bin/true"}, "no program": {"/no/such/file"}} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Command{Path: "sh", Supervisor: prefix}).Dial(t.Context(), nil)
			if e := wantError(t, err, NotSent); !strings.Contains(e.Message, "transport.Supervise") {
				t.Errorf("message %q", e.Message)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := (&Command{Path: "sh", Supervisor: []string{"/bin/sh", "-c", "sleep 1000; true"}}).Dial(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent one: %v", err)
	}
}

func TestSuperviseRunsOnlyForABridge(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"supervise"}, {"supervise", "/bin/true", "true"}} {
		cmd := exec.CommandContext(t.Context(), exe, args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "bridge itself") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

func BenchmarkDialSupervised(b *testing.B) {
	for name, prefix := range map[string][]string{"alone": nil, "supervised": supervised("", "").Supervisor} {
		b.Run(name, func(b *testing.B) {
			c := &Command{Path: "/bin/cat", Supervisor: prefix}
			for b.Loop() {
				conn, err := c.Dial(b.Context(), nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := conn.Close(b.Context()); err != nil && !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			}
		})
	}
}

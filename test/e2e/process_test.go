package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for another process. The machine of a CI job may be slow.
const patience = time.Minute

// process is a child process in a group of its own, whose output is kept.
type process struct {
	name string
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when the process has ended
	err  error         // of Wait; read after done
}

// start runs cmd and ends its whole group with the test. The output is logged if the test failed.
func start(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	p.out.changed = make(chan struct{})
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, tail(p.out.String(), 8000))
		}
	})
	return p
}

// stop asks the process to end, and kills what is left of its group.
func (p *process) stop(t *testing.T) {
	t.Helper()
	group := -p.cmd.Process.Pid
	select {
	case <-p.done:
	default:
		syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s did not end within 20s of SIGTERM", p.name)
		}
	}
	if err := syscall.Kill(group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Logf("kill the group of %s: %v", p.name, err)
	}
	<-p.done
}

// exited waits for the end of the process and returns its exit code and output.
func (p *process) exited(t *testing.T) (int, string) {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), p.out.String()
	case <-time.After(patience):
		t.Fatalf("%s is still running; output:\n%s", p.name, p.out.String())
		return 0, ""
	}
}

// waitOutput waits until the output matches and returns the submatches.
func (p *process) waitOutput(t *testing.T, re *regexp.Regexp) []string {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		text, changed := p.out.snapshot()
		if match := re.FindStringSubmatch(text); match != nil {
			return match
		}
		select {
		case <-changed:
		case <-p.done:
			if match := re.FindStringSubmatch(p.out.String()); match != nil {
				return match
			}
			t.Fatalf("%s ended (%v) before it printed %q:\n%s", p.name, p.err, re, p.out.String())
		case <-deadline.C:
			t.Fatalf("%s did not print %q:\n%s", p.name, re, p.out.String())
		}
	}
}

// output keeps what a process writes and tells when there is more.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{} // closed and replaced by each write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.buf.Write(b)
}

func (o *output) snapshot() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.changed
}

func (o *output) String() string {
	text, _ := o.snapshot()
	return text
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

// eventually polls until check returns "" and fails with its last answer.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := check()
		if problem == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, problem)
		}
	}
}

// run executes a command to its end and returns its exit code and output.
func run(t *testing.T, stdin string, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	cmd.Env = append(os.Environ(), "BUF_CACHE_DIR="+cacheDir("buf"))
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("run %s: %v", name, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

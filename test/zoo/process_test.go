package zoo

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// patience bounds every wait. Node needs many seconds to start on a busy machine.
const patience = 90 * time.Second

// program is how a server is started.
type program struct {
	path string
	args []string
	env  []string // beside PATH, HOME and the mark
}

func cached(parts ...string) string {
	path, err := filepath.Abs(filepath.Join(append([]string{"..", ".cache", "zoo"}, parts...)...))
	if err != nil {
		panic(err) // there is no working directory
	}
	return path
}

// npm is a program of an npm package.
func npm(script string, args ...string) program {
	return program{path: "node", args: append([]string{cached("npm", "node_modules", script)}, args...)}
}

// binary is a program that setup.sh built.
func binary(name string, args ...string) program {
	return program{path: cached("bin", name), args: args}
}

// with adds a variable to the environment.
func (p program) with(name string, value any) program {
	p.env = append(p.env[:len(p.env):len(p.env)], fmt.Sprintf("%s=%v", name, value))
	return p
}

// mark returns a variable that all descendants inherit, and checks at the end of the test that none is left.
func mark(t *testing.T) string {
	t.Helper()
	variable := "MCPBRIDGE_ZOO=" + rand.Text()
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second) // a killed process is gone only when its parent has seen it
		for {
			left := descendants(variable)
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("orphans: %s", strings.Join(left, "; "))
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return variable
}

// descendants returns the command lines of the living processes with this variable.
func descendants(variable string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is constant
	}
	var found []string
	for _, file := range files {
		environment, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environment, []byte(variable)) {
			continue // it ended meanwhile, or is not ours
		}
		if line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")); err == nil {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func (p program) environment(mark string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), mark}, p.env...)
}

// stdio is the transport that starts the program.
func (p program) stdio(t *testing.T) transport.Transport {
	return &transport.Command{Path: p.path, Args: p.args, Env: p.environment(mark(t)), Dir: t.TempDir(), Logger: logger(t)}
}

// daemon is a server that runs beside the client.
type daemon struct {
	program program
	address string
	mark    string
	cmd     *exec.Cmd
	out     *tail
}

// serve starts a program and waits until something listens on the port.
func (p program) serve(t *testing.T, port int) *daemon {
	t.Helper()
	d := &daemon{program: p, address: fmt.Sprint("127.0.0.1:", port), mark: mark(t)}
	t.Cleanup(func() { d.kill() })
	d.start(t)
	return d
}

func (d *daemon) start(t *testing.T) {
	t.Helper()
	d.out = &tail{}
	d.cmd = exec.Command(d.program.path, d.program.args...)
	d.cmd.Env, d.cmd.Dir = d.program.environment(d.mark), t.TempDir()
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.address)
		if err == nil {
			conn.Close()
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("nothing listens on %s: %v\n%s", d.address, err, d.out)
		}
		time.Sleep(20 * time.Millisecond) // no server tells in one way that it listens
	}
}

// kill ends the whole group at once, as a crash does.
func (d *daemon) kill() {
	if d.cmd != nil {
		_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
		_ = d.cmd.Wait() // killed
		d.cmd = nil
	}
}

// tail keeps the last output of a daemon.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (o *tail) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	o.buf = o.buf[max(0, len(o.buf)-8000):]
	return len(b), nil
}

func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf)
}

// freePort returns a port that was free a moment ago; the servers cannot choose one themselves.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

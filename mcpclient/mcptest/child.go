package mcptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	scriptEnv = "MCPTEST_SCRIPT"
	logEnv    = "MCPTEST_LOG"
)

// MainStdio turns the test binary into a child server when [StartChild] runs
// it so: it serves the named script on stdin and stdout and exits. Otherwise it
// returns at once. Call it first in TestMain.
func MainStdio(scripts map[string]func() *Server) {
	name := os.Getenv(scriptEnv)
	if name == "" {
		return
	}
	script := scripts[name]
	if script == nil {
		fmt.Fprintf(os.Stderr, "mcptest: no script %q\n", name)
		os.Exit(2)
	}
	s := script()
	if path := os.Getenv(logEnv); path != "" {
		if err := s.mirrorTo(path); err != nil {
			fmt.Fprintf(os.Stderr, "mcptest: %v\n", err)
			os.Exit(2)
		}
	}
	s.serveChild()
	os.Exit(0)
}

func (s *Server) serveChild() {
	opt := s.Stdio
	if opt.IgnoreTERM {
		signal.Ignore(syscall.SIGTERM)
	}
	if opt.Grandchild {
		helper := exec.Command("sleep", "3600") //nolint:noctx // it is meant to outlive this process
		helper.Stdout, helper.Stderr = os.Stdout, os.Stderr
		if err := helper.Start(); err != nil {
			fmt.Fprintf(os.Stderr, "mcptest: grandchild: %v\n", err)
			os.Exit(2)
		}
		s.add(Entry{Method: MethodGrandchild, ID: itoa(helper.Process.Pid)})
	}
	for _, line := range opt.Stderr {
		fmt.Fprintln(os.Stderr, line)
	}
	if opt.StderrFlood > 0 {
		_, _ = os.Stderr.Write(bytes.Repeat([]byte("0123456789abcde\n"), opt.StderrFlood/16)) // whoever reads it or not
	}
	err := s.ServeStream(context.Background(), &stdio{ignoreEOF: opt.IgnoreEOF})
	if err != nil {
		fmt.Fprintf(os.Stderr, "mcptest: %v\n", err)
	}
	if opt.IgnoreEOF {
		time.Sleep(math.MaxInt64) // until a signal ends the process
	}
}

// MethodGrandchild is the log entry of a started grandchild; ID is its pid.
const MethodGrandchild = "$grandchild"

// stdio joins the process's streams. Closing them ends the process, since a
// read of stdin cannot be interrupted.
type stdio struct {
	ignoreEOF bool
	eof       atomic.Bool
}

func (f *stdio) Read(p []byte) (int, error) {
	n, err := os.Stdin.Read(p)
	if err != nil {
		f.eof.Store(true)
	}
	return n, err
}

func (f *stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }

func (f *stdio) Close() error {
	if !f.ignoreEOF || !f.eof.Load() {
		os.Exit(0)
	}
	return nil
}

// mirrorTo copies the log to the parent's socket.
func (s *Server) mirrorTo(path string) error {
	c, err := net.Dial("unix", path) //nolint:noctx // a local socket that the parent has open
	if err != nil {
		return err
	}
	enc := json.NewEncoder(c)
	s.mirror = func(r record) { _ = enc.Encode(r) } // a parent that is gone has no use for it
	return nil
}

// Child is a script that runs as child processes of the test. Its Log merges
// what all of them received; [MethodOpened] counts the starts.
type Child struct {
	Log
	// Path and Env are what starts it; it takes no arguments.
	Path string
	Env  []string
}

// StartChild prepares a child with a script of [MainStdio]; the process itself
// is started by whoever uses Path and Env, as often as it likes. The test fails
// for every violation in any of the processes.
func StartChild(t TB, script string) *Child {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcptest") // t.TempDir may exceed what a socket's name may have
	if err != nil {
		t.Fatalf("mcptest: %v", err)
	}
	socket := filepath.Join(dir, "log")
	l, err := net.Listen("unix", socket) //nolint:noctx // local
	if err != nil {
		t.Fatalf("mcptest: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("mcptest: %v", err)
	}
	c := &Child{Path: self, Env: []string{
		scriptEnv + "=" + script, logEnv + "=" + socket, "PATH=" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0", // a child built with -race would take a second to exit
	}}
	var (
		work  sync.WaitGroup
		mu    sync.Mutex // protects conns
		conns []net.Conn
	)
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			work.Go(func() { c.collect(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the accept loop
		mu.Lock()
		for _, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // what dead children still sent is read at once
		}
		mu.Unlock()
		work.Wait()
		_ = os.RemoveAll(dir) // best effort in the temporary directory
		for _, v := range c.Violations() {
			t.Errorf("mcptest: the client broke the protocol: %s", v)
		}
	})
	return c
}

func (c *Child) collect(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // only read from
	dec := json.NewDecoder(conn)
	for {
		var r record
		if dec.Decode(&r) != nil {
			return
		}
		if r.Entry != nil {
			c.add(*r.Entry)
		} else {
			c.violate("%s", r.Violation)
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait of the driver for another process.
const patience = 30 * time.Second

// servers are the processes behind the targets. HTTP servers are children of the driver; stdio servers are children of
// the bridge and known by their pid files.
type servers struct {
	dir, self string
	boot      map[kind]time.Duration // from the start of a process until it serves, the longest seen
	proxies   map[string]*tcpProxy

	mu   sync.Mutex // guards http
	http map[string]*httpServer
}

// httpServer is one process of an HTTP target.
type httpServer struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for
}

// startServers measures the boot times, and starts what does not belong to the bridge.
func startServers(ctx context.Context, dir string, all []*target) (*servers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir, self: self, boot: map[kind]time.Duration{}, proxies: map[string]*tcpProxy{}, http: map[string]*httpServer{}}
	if err := s.startAll(ctx, all); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *servers) startAll(ctx context.Context, all []*target) error {
	proxies := newProxyServer()
	for _, t := range all {
		began := time.Now()
		if t.kind == kindStdio {
			if err := s.bootStdio(ctx, t); err != nil {
				return fmt.Errorf("measure the boot time of %s: %w", t.name, err)
			}
		} else {
			address, err := freeAddress()
			if err != nil {
				return err
			}
			t.address, t.via = address, address
			began = time.Now()
			if err := s.startHTTP(ctx, t); err != nil {
				return err
			}
		}
		s.boot[t.kind] = max(s.boot[t.kind], time.Since(began))
		if !t.proxied {
			continue
		}
		p, err := proxies.start(t.name, t.address)
		if err != nil {
			return fmt.Errorf("proxy of %s: %w", t.name, err)
		}
		s.proxies[t.name], t.via = p, p.address()
	}
	return nil
}

// freeAddress finds a port outside the range of outgoing connections, so that none takes it while its server is down.
func freeAddress() (string, error) {
	var last error
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000)))
		l, err := net.Listen("tcp", address)
		if err == nil {
			return address, l.Close()
		}
		last = err
	}
	return "", fmt.Errorf("found no free port: %w", last)
}

// startHTTP starts the server of an HTTP target and returns once it listens.
func (s *servers) startHTTP(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.Command(s.self, serverCommand(s.dir, t)...)
	stderr, err := os.OpenFile(filepath.Join(s.dir, t.name+".stderr"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if _, err := cmd.StdinPipe(); err != nil { // its end tells the server that the driver has ended
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &httpServer{cmd: cmd, done: make(chan struct{})}
	ready := make(chan bool, 1)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		ready <- lines.Scan() && lines.Text() == "listening"
		for lines.Scan() {
		}
		_ = cmd.Wait() // how it ends is the driver's doing
	}()
	s.mu.Lock()
	s.http[t.name] = p
	s.mu.Unlock()
	select {
	case ok := <-ready:
		if !ok {
			return fmt.Errorf("the server of %s ended before it listened; see %s", t.name, stderr.Name())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the server of %s does not listen: %w", t.name, ctx.Err())
	}
}

// killHTTP kills the server of an HTTP target and waits for its end.
func (s *servers) killHTTP(t *target) error {
	s.mu.Lock()
	p := s.http[t.name]
	s.mu.Unlock()
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the server of %s: %w", t.name, err)
	}
	<-p.done
	return nil
}

// process finds the running process of a target's server. Its handle stays with that process, even when its id is
// used again.
func (s *servers) process(t *target) (*os.Process, error) {
	raw, err := os.ReadFile(pidFile(s.dir, t.name))
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(string(raw))
	if err != nil {
		return nil, err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", string(raw), "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("the server of %s, process %d, is gone: %w", t.name, pid, err)
	}
	if !bytes.Contains(cmdline, []byte("\x00"+t.name+"\x00-dir\x00"+s.dir+"\x00")) {
		return nil, fmt.Errorf("process %d is not the server of %s", pid, t.name)
	}
	return p, nil
}

// awaitProcess waits for the process of a target that has just begun to serve again.
func (s *servers) awaitProcess(ctx context.Context, t *target) (*os.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		p, err := s.process(t)
		if err == nil || !pause(ctx, 20*time.Millisecond) {
			return p, err
		}
	}
}

// setMode tells the server of a target how to behave; "" is well.
func (s *servers) setMode(t *target, mode string) error {
	return replaceFile(modeFile(s.dir, t.name), mode)
}

// bootStdio measures how long a stdio server takes to answer its first request.
func (s *servers) bootStdio(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.self, serverCommand(s.dir, t)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, writeErr := io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"chaos","version":"1"}}}`+"\n")
	answer, readErr := bufio.NewReader(stdout).ReadString('\n')
	_ = cmd.Process.Kill() // its end is of no interest
	_ = cmd.Wait()
	if err := cmp.Or(writeErr, readErr); err != nil {
		return err
	}
	if !strings.Contains(answer, `"result"`) {
		return fmt.Errorf("the answer to initialize was %q", answer)
	}
	return nil
}

// stop ends everything that was started.
func (s *servers) stop() {
	for _, p := range s.proxies {
		p.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.http {
		_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails when it has ended
		<-p.done
	}
}

func (s *servers) bootTimes() string {
	var b strings.Builder
	for _, k := range []kind{kindStdio, kindLegacy, kindModern} {
		fmt.Fprintf(&b, "%s %v  ", k, s.boot[k].Round(time.Millisecond))
	}
	return strings.TrimSpace(b.String())
}

// readExecutions reads the ids that the servers recorded, by target.
func readExecutions(dir string, all []*target) (map[string][]string, error) {
	found := map[string][]string{}
	for _, t := range all {
		raw, err := os.ReadFile(callsFile(dir, t.name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		found[t.name] = strings.Fields(string(raw))
	}
	return found, nil
}

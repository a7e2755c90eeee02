package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// canSupervise says whether Command.Supervisor has a meaning here.
const canSupervise = true

var errSupervisor = errors.New("the supervisor of Command.Supervisor did not answer; check that its command line runs transport.Supervise")

const (
	// supervisorWait bounds the wait for a supervisor to start the server.
	supervisorWait = 30 * time.Second
	// supervisorGrace is how long it has to kill everything.
	supervisorGrace = 2 * time.Second
)

// supervisor is our end of the socket to a [Supervise]. It stays open for as
// long as the server may live.
type supervisor struct {
	conn  *net.UnixConn
	lines *bufio.Reader
	child int // the server's process id
}

// startSupervised starts a supervisor that starts cmd.
func (p *processConn) startSupervised(ctx context.Context, cmd *exec.Cmd, prefix []string) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	cmd.Args = append(append(append([]string{}, prefix...), cmd.Path), cmd.Args...)
	cmd.Path = prefix[0]
	cmd.ExtraFiles = []*os.File{theirs}
	// No death signal: it shall outlive us for as long as killing takes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.under = &supervisor{conn: ours, lines: bufio.NewReader(ours)}
	attached := make(chan struct{})
	err = p.start(cmd, attached)
	_ = theirs.Close() // it has its own
	if err != nil {
		_ = ours.Close()
		close(attached)
		return fmt.Errorf("%w: %w", errSupervisor, err)
	}
	err = p.under.attach(ctx)
	close(attached)
	if err != nil {
		_ = ours.CloseWrite()
		if !p.under.kills(p.exited) {
			signalGroup(p.process, true)
			<-p.exited
		}
		closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
	}
	return err
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "supervisor")
	file := os.NewFile(uintptr(fds[0]), "supervisor")
	conn, err := net.FileConn(file) // which makes a copy
	closeAll([]*os.File{file})
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	ours, ok := conn.(*net.UnixConn)
	if !ok {
		closeAll([]*os.File{theirs})
		_ = conn.Close()
		return nil, nil, fmt.Errorf("a socket pair is a %T", conn)
	}
	return ours, theirs, nil
}

// attach waits for the word that the server has been started.
func (s *supervisor) attach(ctx context.Context) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(supervisorWait)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word, value, err := s.line()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errSupervisor, err)
	case word == "failed":
		return syscall.Errno(value)
	}
	s.child = value
	return nil
}

// line reads one word and a number.
func (s *supervisor) line() (word string, value int, err error) {
	line, err := s.lines.ReadString('\n')
	if err != nil {
		return "", 0, err
	}
	word, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
	value, err = strconv.Atoi(digits)
	return word, value, err
}

// status returns how the server has ended, once its supervisor has. Without a
// word about it the supervisor was killed, and with it the server.
func (s *supervisor) status(own error) error {
	defer func() { _ = s.conn.Close() }()                       // all has been said
	_ = s.conn.SetReadDeadline(time.Now().Add(supervisorGrace)) // nobody else has the other end
	if word, value, err := s.line(); err == nil && word == "ended" {
		return exitError(syscall.WaitStatus(value))
	}
	if s.child > 0 {
		_ = syscall.Kill(-s.child, syscall.SIGKILL) // the rest of its group
	}
	return own
}

// exitError says how a process has ended; nil for status 0.
func exitError(ws syscall.WaitStatus) error {
	switch {
	case ws.Signaled() && ws.CoreDump():
		return fmt.Errorf("signal: %v (core dumped)", ws.Signal())
	case ws.Signaled():
		return fmt.Errorf("signal: %v", ws.Signal())
	case ws.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", ws.ExitStatus())
	}
	return nil
}

// signal asks the server's group to end, or has everything killed.
func (s *supervisor) signal(process *os.Process, kill bool) {
	if kill {
		_ = s.conn.CloseWrite() // it may have ended, which is the aim
		return
	}
	_ = process.Signal(syscall.SIGTERM)
}

// pid is the server's process id; 0 = it is that of the process we started.
func (s *supervisor) pid() int {
	if s == nil {
		return 0
	}
	return s.child
}

// kills reports whether the supervisor ends soon.
func (s *supervisor) kills(exited <-chan struct{}) bool {
	timer := time.NewTimer(supervisorGrace)
	defer timer.Stop()
	select {
	case <-exited:
		return true
	case <-timer.C:
		return false
	}
}

package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// superviseFD is where Supervise finds the socket to who has started it.
	superviseFD = 3
	// superviseGrace is what the children of a server that has ended get to end
	// as well, after SIGTERM.
	superviseGrace = 500 * time.Millisecond
	// superviseLimit is for how long it is tried to kill what does not die.
	superviseLimit = 5 * time.Second
	supervisePoll  = 5 * time.Millisecond
)

// Supervise runs a server's process for [Command.Supervisor] and returns the
// exit status to end with. Call it first thing in main, on the main goroutine,
// with the arguments behind that command line; it uses the standard files, the
// signals and all children of this process.
//
// The server inherits stdin, stdout and stderr. When it ends, or when the
// process that has started the supervisor does, everything that descends from
// the server is killed, whatever group or session it is in.
func Supervise(args []string) int {
	runtime.LockOSThread() // the server dies with the thread that has forked it
	defer runtime.UnlockOSThread()
	var peer unix.Stat_t
	if err := unix.Fstat(superviseFD, &peer); len(args) < 2 || err != nil || peer.Mode&unix.S_IFMT != unix.S_IFSOCK {
		_, _ = fmt.Fprintln(os.Stderr, "this command is for the use of the bridge itself, which starts servers with it")
		return 2
	}
	syscall.CloseOnExec(superviseFD)
	life := os.NewFile(superviseFD, "bridge")
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // orphans become our children
	var pid int
	if err == nil {
		pid, err = syscall.ForkExec(args[0], args[1:], &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		errno, _ := errors.AsType[syscall.Errno](err)
		_, _ = fmt.Fprintf(life, "failed %d\n", int(errno))
		return 126
	}
	releaseStandardFiles()
	_, _ = fmt.Fprintf(life, "started %d\n", pid) // if nobody reads it, reading ends too
	go func() {
		for range signals {
			_ = syscall.Kill(-pid, syscall.SIGTERM)
		}
	}()
	var hurry atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, life) // its end is what counts
		for hurry.Store(true); ; time.Sleep(supervisePoll) {
			killChildren()
		}
	}()
	status := await(pid)
	reapRest(pid, &hurry)
	_, _ = fmt.Fprintf(life, "ended %d\n", int(status))
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// releaseStandardFiles leaves the pipes to the server alone, so that their ends
// are seen.
func releaseStandardFiles() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		if err != nil || unix.Dup3(null, fd, 0) != nil {
			_ = unix.Close(fd)
		}
	}
}

// await reaps children until pid has ended.
func await(pid int) syscall.WaitStatus {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if got == pid || err != nil && !errors.Is(err, syscall.EINTR) {
			return ws
		}
	}
}

// reapRest ends what is left of the server, politely at first.
func reapRest(pid int, hurry *atomic.Bool) {
	_ = syscall.Kill(-pid, syscall.SIGTERM) // the group may be empty
	for start := time.Now(); time.Since(start) < superviseLimit; time.Sleep(supervisePoll) {
		got, err := 1, error(nil)
		for got > 0 && err == nil {
			got, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		if errors.Is(err, syscall.ECHILD) { // nor has anybody descendants that are not ours by now
			return
		}
		if hurry.Load() || time.Since(start) >= superviseGrace {
			killChildren()
		}
	}
}

// killChildren kills our children; theirs become ours then.
func killChildren() {
	self := os.Getpid()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …; the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(self) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

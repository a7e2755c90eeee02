package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what a process has used so far, its children not included: the kernel's CPU clock of the process, which
// counts nanoseconds, all threads, and those that have ended; /proc has ticks of 10 ms, or loses ended threads. Pid 0
// is this process.
func cpuTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: clock ids of processes are the inverted pid and 3 bits of kind
	clock := int32(unix.CLOCK_PROCESS_CPUTIME_ID)
	if pid != 0 {
		clock = int32(^pid<<3 | sched)
	}
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory is what a process holds now, and the most it held since resetPeak, in bytes.
func memory(pid int) (now, peak int, err error) {
	status, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "VmHWM" {
			continue
		}
		kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
		if err != nil {
			return 0, 0, err
		}
		if name == "VmRSS" {
			now = kb << 10
		} else {
			peak = kb << 10
		}
	}
	if now == 0 {
		return 0, 0, errors.New("the kernel does not say how much memory the process holds")
	}
	return now, peak, nil
}

// resetPeak makes the peak of a process what it holds now.
func resetPeak(pid int) error {
	return os.WriteFile(procFile(pid, "clear_refs"), []byte("5"), 0)
}

func procFile(pid int, name string) string {
	if pid == 0 {
		return "/proc/self/" + name
	}
	return fmt.Sprintf("/proc/%d/%s", pid, name)
}

// processors are those that this process may use.
func processors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	var all []int
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all, nil
}

// pinRole becomes a command on some processors. The affinity is set before the command is executed, so that it holds
// for all threads of it and for its children, and the Go runtime counts only these processors.
func pinRole(_ context.Context, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("takes processors and a command, got %q", args)
	}
	var set unix.CPUSet
	for field := range strings.SplitSeq(args[0], ",") {
		cpu, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		set.Set(cpu)
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the thread that executes the command is the one that is pinned
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to the processors %s: %w", args[0], err)
	}
	return syscall.Exec(path, args[1:], os.Environ())
}

// loadAverage is that of the last minute: above 0, something else ran, and the figures are worth less.
func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one, nil
}

// machine says what was measured on.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d processors, Linux %s, %s", model, runtime.NumCPU(), release(), runtime.Version())
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(name.Release[:])
}

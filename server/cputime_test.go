package server

import (
	"syscall"
	"testing"
)

// cpuTime is what this process has used of the CPU, in nanoseconds.
func cpuTime(tb testing.TB) int64 {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

//go:build unix

package transport

import (
	"os"
	"syscall"
)

// signalGroup sends SIGTERM, or SIGKILL, to the process group that p leads or
// has led.
func signalGroup(p *os.Process, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.Pid, signal) // the group may be empty, which is the aim
}

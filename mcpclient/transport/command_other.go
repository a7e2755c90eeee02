//go:build !unix

package transport

import (
	"os"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return nil }

// signalGroup kills p alone: there are no process groups here, and no polite
// signals.
func signalGroup(p *os.Process, kill bool) {
	if kill {
		_ = p.Kill() // it may have ended, which is the aim
	}
}

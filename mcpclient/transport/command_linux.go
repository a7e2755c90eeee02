package transport

import "syscall"

// processAttributes puts a child into a group of its own, to be killed as a
// whole, and has the kernel kill it when we die.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

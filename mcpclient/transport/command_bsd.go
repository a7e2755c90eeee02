//go:build unix && !linux

package transport

import "syscall"

// processAttributes puts a child into a group of its own, to be killed as a
// whole. That it dies with us is up to it: it sees the end of its stdin.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

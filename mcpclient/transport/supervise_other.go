//go:build !linux

package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// canSupervise says whether Command.Supervisor has a meaning here.
const canSupervise = false

var errSupervisor = errors.New("processes are supervised on Linux only; leave Command.Supervisor empty")

// supervisor exists on Linux only.
type supervisor struct{}

func (*processConn) startSupervised(context.Context, *exec.Cmd, []string) error { return errSupervisor }

func (*supervisor) status(own error) error { return own }

func (*supervisor) signal(*os.Process, bool) {}

func (*supervisor) pid() int { return 0 }

func (*supervisor) kills(<-chan struct{}) bool { return false }

// Supervise runs a server's process for [Command.Supervisor], on Linux. Here it
// only says so and returns 2.
func Supervise([]string) int {
	_, _ = fmt.Fprintln(os.Stderr, errSupervisor)
	return 2
}

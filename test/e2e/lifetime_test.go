package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestACallInFlightIsNotCutByShutdown(t *testing.T) {
	config, log := gosdkHTTP(t, "-stateless")
	b := serve(t, map[string]target{"one": config})
	c := b.clients(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- slow(ctx, c, "one", "drain") }()
	waitStarted(t, log, "drain")
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bridge", func() string {
		conn, err := net.DialTimeout("tcp", b.addr, patience)
		if err != nil {
			return ""
		}
		conn.Close()
		return "still accepts connections"
	})
	select {
	case err := <-ended:
		t.Errorf("the call ended with %s while the bridge drained", describe(err))
	default:
	}
	cancel()
	<-ended
	if code, _ := b.exited(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// running tells whether a process exists that is more than an entry nobody has waited for.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

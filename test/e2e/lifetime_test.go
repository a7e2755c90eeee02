package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func TestNoChildOutlivesTheBridge(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			if signal == syscall.SIGKILL && runtime.GOOS != "linux" {
				t.Skip("SKIP: only Linux can end the children of a killed process")
			}
			config, log := gosdkStdio(t)
			b := serve(t, map[string]target{"one": config})
			b.clients(t).result(t, &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"text":"x"}`)})
			children := log.matching(t, func(e event) bool { return e.Kind == "start" })
			if len(children) != 1 {
				t.Fatalf("%d children, want one", len(children))
			}
			if err := b.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if code, _ := b.exited(t); signal == syscall.SIGTERM && code != 0 {
				t.Errorf("exit code %d after SIGTERM, want 0", code)
			}
			eventually(t, "the child", func() string {
				if running(children[0].PID) {
					return "is still there"
				}
				return ""
			})
		})
	}
}

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

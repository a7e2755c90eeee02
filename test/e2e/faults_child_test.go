package e2e

import (
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// stubborn ignores the end of its input and SIGTERM, and has a child of its own.
func stubborn() *mcptest.Server {
	s := ownPID()
	s.Stdio = mcptest.StdioOptions{IgnoreEOF: true, IgnoreTERM: true, Grandchild: true}
	return s
}

// pids returns a child of the bridge and those that it started itself.
func pids(t *testing.T, s stubs, name string, child *mcptest.Child) []int {
	t.Helper()
	texts := []string{s.must(t, name, "pid", "{}")}
	for _, e := range child.Entries(mcptest.MethodGrandchild) {
		texts = append(texts, e.ID)
	}
	list := make([]int, len(texts))
	for i, text := range texts {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = pid
	}
	return list
}

func wantGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprint("process ", pid), func() string {
			if running(pid) {
				return "is still there"
			}
			return ""
		})
	}
}

func TestFault36AChildThatIgnoresEverythingDelaysTheShutdownByItsGraceAlone(t *testing.T) {
	const children, grace = 3, 2 * time.Second
	targets := map[string]target{}
	logs := map[string]*mcptest.Child{}
	for i := range children {
		name := fmt.Sprint("child-", i)
		targets[name], logs[name] = fakeChild(t, "stubborn")
		targets[name]["restart"] = map[string]string{"stop_timeout": grace.String()}
	}
	b := serve(t, targets)
	s := b.stubs(t)
	var all []int
	for name, log := range logs {
		all = append(all, pids(t, s, name, log)...)
	}
	if len(all) != 2*children {
		t.Fatalf("processes %v, want %d", all, 2*children)
	}
	began := time.Now()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code, _ := b.exited(t)
	// one grace for all of them, and some time for the machine; one after the other they would take 6s
	if took := time.Since(began); code != 0 || took > 2*grace {
		t.Errorf("exit code %d after %v, want 0 within %v", code, took, grace)
	}
	wantGone(t, all)
}

func TestFault63CallsShareOneChild(t *testing.T) {
	config, child := fakeChild(t, "process")
	s := serve(t, map[string]target{"one": config}).stubs(t)
	first := s.must(t, "one", "pid", "{}")
	for range 100 {
		if pid := s.must(t, "one", "pid", "{}"); pid != first {
			t.Fatalf("process %s answered after process %s", pid, first)
		}
	}
	each(100, func(int) {
		if pid, err := s.call(t.Context(), "one", "pid", "{}"); err != nil || pid != first {
			t.Errorf("process %s answered after process %s: %s", pid, first, explain(err))
		}
	})
	wantCount(t, &child.Log, mcptest.MethodOpened, 1)
}

func TestFault65NoChildOutlivesTheBridge(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		for _, script := range []string{"process", "stubborn"} {
			t.Run(name+" "+script, func(t *testing.T) {
				t.Parallel()
				if signal == syscall.SIGKILL && runtime.GOOS != "linux" {
					t.Skip("SKIP: only Linux can end the children of a killed process")
				}
				config, child := fakeChild(t, script)
				config["restart"] = map[string]string{"stop_timeout": "1s"}
				for range 2 { // nor do they pile up over restarts
					b := serve(t, map[string]target{"one": config})
					processes := pids(t, b.stubs(t), "one", child)
					if err := b.cmd.Process.Signal(signal); err != nil {
						t.Fatal(err)
					}
					if code, _ := b.exited(t); signal == syscall.SIGTERM && code != 0 {
						t.Errorf("exit code %d after SIGTERM, want 0", code)
					}
					wantGone(t, processes)
				}
			})
		}
	}
}

func TestFault66AKilledChildIsStartedAgainAndItsHealthTellsIt(t *testing.T) {
	config, child := fakeChild(t, "process")
	s := serve(t, map[string]target{"one": config.quick()}).stubs(t)
	pid := pids(t, s, "one", child)[0]
	states := s.watch(t, "one")
	wantState(t, states, healthpb.HealthCheckResponse_SERVING)
	for round := range 3 {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wantState(t, states, healthpb.HealthCheckResponse_NOT_SERVING)
		if _, err := s.call(t.Context(), "one", "pid", "{}"); err != nil {
			wantReason(t, err, codes.Unavailable, "TARGET_UNAVAILABLE") // until the next attempt is due
		}
		wantState(t, states, healthpb.HealthCheckResponse_SERVING)
		again := pids(t, s, "one", child)[0]
		if again == pid {
			t.Fatalf("process %d answers after it was killed", pid)
		}
		pid = again
		wantCount(t, &child.Log, mcptest.MethodOpened, round+2)
	}
}

package transport

import (
	"os"
	"os/exec"
	"testing"
)

func TestTheProcessDiesWhenWeAreKilled(t *testing.T) {
	path, up, gone := fifo(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A bridge with a server that ignores the end of stdin and SIGTERM.
	bridge := exec.CommandContext(t.Context(), exe)
	bridge.Env = []string{childRole + "=bridge", "INNER_LIFELINE=" + path, "PATH=" + os.Getenv("PATH")}
	if err := bridge.Start(); err != nil {
		t.Fatal(err)
	}
	up()
	if err := bridge.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = bridge.Wait() // killed, as it should be
	gone()
}

//go:build unix

package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestFault68_WritingToAProcessThatEndsIsAnErrorAndNothingElse(t *testing.T) {
	conn := dial(t, child("exit", ""), nil)
	if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
		t.Fatal(err)
	}
	for { // until the end has been noticed
		err := conn.Notify(t.Context(), notification("notifications/cancelled"))
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != NotSent && e.Kind != Lost {
			t.Errorf("error: %v", err)
		}
		break
	}
	<-conn.Done()
	wantError(t, conn.Notify(t.Context(), notification("notifications/cancelled")), NotSent)
}

func TestTheStatusOfAProcessThatEndsAtOnceIsInEveryError(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		for i := range 30 { // the end is seen by the reader, the writer or neither yet
			c := &Command{Path: "sh", Args: []string{"-c", fmt.Sprintf("exec <&-; [ %d = 0 ] || sleep 0.0%d; exit 3", i, i%4)}, Supervisor: child("", "").Supervisor, patience: time.Minute}
			conn := dial(t, c, nil)
			for id := range int64(3) {
				_, err := conn.Call(t.Context(), legacy(id, "x"))
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Kind != Lost && e.Kind != NotSent || !strings.Contains(e.Message, "exit status 3") {
					t.Fatalf("call %d: %+v", id, err)
				}
			}
			if err := conn.Notify(t.Context(), notification("n")); !strings.Contains(fmt.Sprint(err), "exit status 3") {
				t.Errorf("Notify: %v", err)
			}
		}
	})
}

func TestTheLastLinesAreLoggedWithTheEndOfAProcess(t *testing.T) {
	script := "for i in 1 2 3 4 5 6 7; do echo line $i of " + secret + " >&2; done; "
	for name, tt := range map[string]struct {
		script string
		warns  int
	}{
		"error": {script + "exit 3", 1}, "success": {script + "exit 0", 0}, "closed": {script + "read line; exit 3", 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(lines)
			c := &Command{Path: "sh", Args: []string{"-c", tt.script}, Logger: log.debug(), Redact: hide}
			conn := dial(t, c, nil)
			if name != "closed" {
				<-conn.Done()
			}
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := log.count("level=WARN"); n != tt.warns || tt.warns == 1 && (log.count(`status="exit status 3" stderr="[line 3 of [redacted]`) != 1) {
				t.Errorf("%d warnings: %s", n, log.text())
			}
			if log.count(`level=DEBUG msg="the server wrote to stderr" line="line 1 of [redacted]"`) != 1 || log.count(secret) != 0 {
				t.Errorf("log: %s", log.text())
			}
		})
	}
}

func TestAProcessThatPrintsTextAndEndsIsSaidToDoSo(t *testing.T) {
	bothWays(t, func(t *testing.T, child func(role, fifo string) *Command) {
		c := &Command{Path: "sh", Args: []string{"-c", "echo hello " + secret + " there"}, Supervisor: child("", "").Supervisor, Redact: hide, patience: time.Minute}
		conn := dial(t, c, nil)
		<-conn.Done()
		_, err := conn.Call(t.Context(), legacy(1, "x"))
		const want = `the server process has ended (exit status 0) after it wrote to stdout what is no JSON-RPC message: hello [redacted] there; check that the command starts an MCP server`
		if e, ok := errors.AsType[*Error](err); !ok || e.Message != want || e.Error() != want {
			t.Errorf("error: %v", err)
		}
	})
}

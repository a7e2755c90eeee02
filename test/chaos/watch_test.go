package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsNotAsBeforeIsNamed(t *testing.T) {
	before := reading{Goroutines: 100, Heap: 1000, FDs: 50, Sockets: 20, Children: 14}
	for name, tt := range map[string]struct {
		change func(*reading)
		want   []string
	}{
		"nothing":              {func(*reading) {}, nil},
		"a smaller heap":       {func(r *reading) { r.Heap = 1 }, nil},
		"a heap in the margin": {func(r *reading) { r.Heap = 1100 }, nil},
		"a heap beyond it":     {func(r *reading) { r.Heap = 1101 }, []string{"heap 1000 → 1101"}},
		"a goroutine more":     {func(r *reading) { r.Goroutines++ }, []string{"goroutines 100 → 101"}},
		"a goroutine less":     {func(r *reading) { r.Goroutines-- }, []string{"goroutines 100 → 99"}},
		"a socket more":        {func(r *reading) { r.FDs++; r.Sockets++ }, []string{"fds 50 → 51", "sockets 20 → 21"}},
		"a socket less":        {func(r *reading) { r.FDs--; r.Sockets-- }, []string{"fds 50 → 49", "sockets 20 → 19"}},
		"a child more":         {func(r *reading) { r.Children++ }, []string{"child processes 14 → 15"}},
		"a child that is gone": {func(r *reading) { r.Children-- }, []string{"child processes 14 → 13"}},
	} {
		after := before
		tt.change(&after)
		if diff := cmp.Diff(tt.want, after.differs(before)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTheUsualReadingIsThatOfTheMajority(t *testing.T) {
	rest := reading{Goroutines: 10, FDs: 5, Heap: 100}
	probe, less, later := rest, rest, rest
	probe.Goroutines, less.FDs, later.Heap = 12, 4, 90
	for name, tt := range map[string]struct {
		readings []reading
		want     reading
		found    bool
	}{
		"probes stand out":      {[]reading{probe, rest, less, later, rest}, later, true},
		"no two of three agree": {[]reading{probe, rest, less}, reading{Heap: 100}, false},
		"half is not most":      {[]reading{rest, probe}, reading{Heap: 100}, false},
	} {
		if got, found := usual(tt.readings); got != tt.want || found != tt.found {
			t.Errorf("%s: %+v %v", name, got, found)
		}
	}
}

func TestAProcessIsReadFromItsStatLine(t *testing.T) {
	got, err := parseStat("42 (a) b (c)) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1\n")
	if want := (process{pid: 42, name: "a) b (c)", parent: 7, started: "98765"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, line := range []string{"", "42", "42 (x) S 7", ") 4 ("} {
		if p, err := parseStat(line); err == nil {
			t.Errorf("%q gives %+v", line, p)
		}
	}
}

func TestDescendantsIncludeTheDeadUntilTheyAreWaitedFor(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here:", err)
	}
	cmd := exec.Command("cat") // which ends with its stdin
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	has := func() bool {
		return slices.ContainsFunc(descendants(os.Getpid()), func(p process) bool { return p.pid == cmd.Process.Pid && p.alive() })
	}
	if !has() {
		t.Error("the child is missing")
	}
	stdin.Close()
	if _, err := stdout.Read(make([]byte, 1)); err == nil { // until all that held it are gone
		t.Error("unexpected output")
	}
	if !has() {
		t.Error("a child that was not waited for is missing")
	}
	cmd.Wait()
	if has() {
		t.Error("a child that has gone is there")
	}
}

package transport

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStderrTailKeepsWholeLines(t *testing.T) {
	s := new(stderrTail)
	for i := range 100000 {
		s.write(fmt.Appendf(nil, "line %d\r\n", i))
	}
	got := s.last(-1)
	first, _ := strconv.Atoi(strings.TrimPrefix(got[0], "line "))
	if got[len(got)-1] != "line 99999" || got[0] != fmt.Sprintf("line %d", 100000-len(got)) || first == 0 {
		t.Errorf("%q to %q, %d lines", got[0], got[len(got)-1], len(got))
	}
	if n := len(strings.Join(got, "\n")); n > stderrBytes || n < stderrBytes-100 {
		t.Errorf("%d bytes kept", n)
	}
	if got := s.last(2); len(got) != 2 || got[1] != "line 99999" {
		t.Errorf("the last two: %q", got)
	}
	short := new(stderrTail)
	for _, b := range []byte("a\xff\n\n\r\nb") { // however it arrives
		short.write([]byte{b})
	}
	if got := strings.Join(short.last(-1), "|"); got != "a\uFFFD||b" {
		t.Errorf("lines %q", got)
	}
	long := new(stderrTail)
	long.write([]byte(strings.Repeat("x", 1<<20)))
	long.write([]byte("\nend\n"))
	if got := long.last(-1); len(got) != 2 || len(got[0]) > stderrLine || got[1] != "end" {
		t.Errorf("%d lines, the first has %d bytes", len(got), len(got[0]))
	}
}

func TestSecretsOnStderrAreReplaced(t *testing.T) {
	log := new(lines)
	s := &stderrTail{redact: hide, log: log.debug()}
	s.write([]byte(strings.Repeat("x", stderrLine-10) + secret + "\n"))
	s.write([]byte(strings.Repeat("x", stderrLogged-10)))
	s.write([]byte(secret[:5]))
	s.write([]byte(secret[5:] + "\n" + secret))
	if got := strings.Join(s.last(-1), "\n") + log.text(); strings.Contains(got, secret[:5]) || !strings.Contains(got, "[redacted]") {
		t.Error(got)
	}
	// One of several lines, whatever their ends.
	s = &stderrTail{redact: strings.NewReplacer("first\nsecond", "[redacted]").Replace}
	s.write([]byte("a first\r\nsecond b\r\n"))
	if got := strings.Join(s.last(-1), "|"); got != "a [redacted] b" {
		t.Errorf("lines %q", got)
	}
}

func TestLinesOnStderrAreLoggedButNotWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		s := &stderrTail{log: log.debug()}
		for range 2 {
			for i := range 1000 {
				s.write(fmt.Appendf(nil, "line %d %s\n", i, strings.Repeat("x", 2*stderrLogged)))
			}
			time.Sleep(time.Second)
		}
		if n := log.count("level=DEBUG"); n != 2*stderrRate {
			t.Errorf("%d records", n)
		}
		if log.count("suppressed_before=800") != 1 || len(log.text()) > 2*stderrRate*(stderrLogged+300) {
			t.Errorf("%d bytes", len(log.text()))
		}
	})
}

func TestTheLastLinesStayUntilTheNextProcessHasSaidSomething(t *testing.T) {
	c := new(Command)
	first, second, third := c.newTail(nil), c.newTail(nil), c.newTail(nil)
	if c.StderrTail() != nil {
		t.Error("lines before the first")
	}
	for _, step := range []struct {
		tail *stderrTail
		text string
		want string
	}{
		{first, "one\n", "one"}, {second, "", "one"}, {second, "\n", "one"}, {third, "three", "three"}, {second, "two\n", "three"}, {first, "late\n", "three"},
	} {
		step.tail.write([]byte(step.text))
		if got := strings.Join(c.StderrTail(), "|"); got != step.want {
			t.Errorf("after %q: %q, want %q", step.text, got, step.want)
		}
	}
}

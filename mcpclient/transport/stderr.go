package transport

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// stderrBytes is how much of a process's stderr is kept.
	stderrBytes = 64 << 10
	// stderrLine is how much of one line is kept.
	stderrLine = 4 << 10
	// stderrLogged is how much of one line is logged.
	stderrLogged = 1 << 10
	// stderrRate is how many lines are logged in a second.
	stderrRate = 200
)

// stderrTail keeps the end of what a process writes to stderr.
type stderrTail struct {
	redact redactor
	log    *slog.Logger // nil = no logs
	first  func()       // called before the first byte is taken; may be nil

	// The reader's own.
	begun   bool
	second  time.Time // when the current second of logging began
	logged  int       // lines in it
	skipped int       // lines since the last one that was logged

	mu   sync.Mutex // guards what follows
	part []byte     // the line that has not ended, as far as it counts
	kept []string
	size int // bytes of kept, with line ends
}

// fill reads r to its end, so that the process never blocks on a full pipe.
func (t *stderrTail) fill(r io.Reader) {
	chunk := make([]byte, 4<<10)
	for {
		n, err := r.Read(chunk)
		t.write(chunk[:n])
		if err != nil {
			t.write([]byte("\n")) // what it said last
			return
		}
	}
}

func (t *stderrTail) write(b []byte) {
	if !t.begun && len(bytes.TrimSpace(b)) > 0 {
		t.begun = true
		if t.first != nil {
			t.first()
		}
	}
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte("\n"))
		t.mu.Lock()
		t.part = append(t.part, part[:min(len(part), stderrLine+2*longestSecret+1-len(t.part))]...)
		var line string
		if ended = ended && len(t.part) > 0; ended {
			line = t.line()
			t.part = t.part[:0]
			t.keep(line)
		}
		t.mu.Unlock()
		if ended {
			t.debug(line)
		}
		b = rest
	}
}

// line returns the current line; the lock must be held.
func (t *stderrTail) line() string {
	return t.redact.clip(bytes.TrimRight(t.part, "\r"), stderrLine)
}

// keep adds a line and drops the oldest beyond the limit; the lock must be
// held.
func (t *stderrTail) keep(line string) {
	t.kept = append(t.kept, line)
	t.size += len(line) + 1
	drop := 0
	for t.size > stderrBytes {
		t.size -= len(t.kept[drop]) + 1
		drop++
	}
	t.kept = t.kept[drop:]
}

// debug logs a line, if there were not too many already.
func (t *stderrTail) debug(line string) {
	if t.log == nil || !t.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	if now := time.Now(); now.Sub(t.second) >= time.Second {
		t.second, t.logged = now, 0
	}
	if t.logged++; t.logged > stderrRate {
		t.skipped++
		return
	}
	t.log.Debug("the server wrote to stderr", "line", redactor(nil).clip([]byte(line), stderrLogged), "suppressed_before", t.skipped)
	t.skipped = 0
}

// last returns up to n of the newest lines, the oldest first, as valid UTF-8;
// n < 0 = all.
func (t *stderrTail) last(n int) []string {
	t.mu.Lock()
	lines := append([]string(nil), t.kept...)
	if len(t.part) > 0 {
		lines = append(lines, t.line())
	}
	t.mu.Unlock()
	if t.redact != nil && len(lines) > 0 { // a secret may have several lines
		lines = strings.Split(t.redact(strings.Join(lines, "\n")), "\n")
	}
	if n >= 0 && len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return lines
}

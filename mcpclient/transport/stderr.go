package transport

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// stderrBytes is how much of a process's stderr is kept.
const stderrBytes = 64 << 10

// stderrTail keeps the end of what a process writes to stderr.
type stderrTail struct {
	mu  sync.Mutex // guards what follows
	buf []byte     // at most twice stderrBytes, so that bytes seldom move
	cut bool       // something was dropped
}

// fill reads r to its end, so that the process never blocks on a full pipe.
func (t *stderrTail) fill(r io.Reader) {
	chunk := make([]byte, 4<<10)
	for {
		n, err := r.Read(chunk)
		t.write(chunk[:n])
		if err != nil {
			return
		}
	}
}

func (t *stderrTail) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if len(t.buf) > 2*stderrBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-stderrBytes:]...)
		t.cut = true
	}
}

// lines returns the kept lines, the oldest first, as valid UTF-8.
func (t *stderrTail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, cut := t.buf, t.cut
	if len(b) > stderrBytes {
		b, cut = b[len(b)-stderrBytes:], true
	}
	if first, rest, ok := bytes.Cut(b, []byte("\n")); cut && ok && len(first) < len(b) {
		b = rest // half a line
	}
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(string(b), "\uFFFD")) {
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return lines
}

package transport

import (
	"bufio"
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// read is the reader goroutine. It reads to the end of the stream even after
// the connection has failed, so that the server is never blocked by us.
func (s *Stream) read() {
	lines := &lineReader{r: bufio.NewReaderSize(s.rwc, 64<<10), limit: s.limit}
	for {
		line, over, err := lines.next()
		if s.alive() {
			switch {
			case over != nil:
				s.oversize(over)
			case len(line) > 0:
				s.line(line)
			}
		}
		if err != nil {
			if s.alive() {
				s.fail(s.explain(err))
			}
			return
		}
	}
}

func (s *Stream) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// line handles one line.
func (s *Stream) line(line []byte) {
	if line[0] == '[' { // 2025-03-26 and older
		if elements, ok, err := jsonrpc.DecodeBatch(line); ok && err == nil && len(elements) > 0 && elements[0][0] == '{' {
			for _, element := range elements {
				s.message(element)
			}
			return
		}
	}
	s.message(line)
}

func (s *Stream) message(data []byte) {
	m, err := jsonrpc.Decode(data)
	switch {
	case err != nil:
		if m != nil && s.settle(m.ID, reply{err: &Error{Kind: Malformed, Err: err,
			Message: "the response is not valid JSON-RPC; it starts with: " + excerpt(data)}}) {
			return
		}
		s.junk.warn(s.log, "skipped a line of the server that is no JSON-RPC message", "error", err, "line", excerpt(data))
	case m.Kind != jsonrpc.Response:
		s.handler(Inbound{Message: m})
	case m.ID.IsZero() && m.Error != nil && s.settleOnly(m):
	case m.ID.IsZero() || !s.settle(m.ID, reply{msg: m}):
		s.stray.warn(s.log, "skipped a response that no request waits for; it is late, or its id is wrong", "id", m.ID.String())
	}
}

// settleOnly gives an error without an id to the one call that is pending, if
// there is just one: servers that cannot read a request answer so.
func (s *Stream) settleOnly(m *jsonrpc.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) != 1 {
		return false
	}
	for id, answer := range s.pending {
		m.ID = id
		answer <- reply{msg: m}
		delete(s.pending, id)
	}
	return true
}

// oversize fails the call whose response was too large.
func (s *Stream) oversize(o *oversized) {
	err := &Error{Kind: TooLarge, Limit: s.limit, Message: errTooLargeText(s.limit)}
	if id, ok := jsonrpc.PeekID(o.head, o.tail); ok && s.settle(id, reply{err: err}) {
		return
	}
	s.junk.warn(s.log, "skipped a line of the server that exceeds the limit", "limit", s.limit, "line", excerpt(o.head))
}

// lineReader splits a stream at LF, and at nothing else: JSON may hold other
// characters that some call line ends.
type lineReader struct {
	r     *bufio.Reader
	limit int64 // <0 = none
}

// oversized is what is kept of a line beyond the limit.
type oversized struct{ head, tail []byte }

const (
	keptHead = 64 << 10
	keptTail = 256
)

// next returns the next line without white space and BOM around it, in memory
// of its own, or what is kept of it. The last line comes with the error that
// ended the stream.
func (l *lineReader) next() ([]byte, *oversized, error) {
	var line []byte
	var over *oversized
	for {
		part, err := l.r.ReadSlice('\n')
		if over != nil {
			over.tail = append(over.tail, part...)
			if n := len(over.tail) - keptTail; n > 0 {
				over.tail = append(over.tail[:0], over.tail[n:]...)
			}
		} else if line = append(line, part...); l.limit >= 0 && int64(len(bytes.TrimRight(line, "\r\n"))) > l.limit {
			over = &oversized{
				head: bytes.Clone(line[:min(len(line), keptHead)]),
				tail: bytes.Clone(line[max(0, len(line)-keptTail):]),
			}
			line = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return trimLine(line), over, err
	}
}

func trimLine(line []byte) []byte {
	line = bytes.Trim(line, " \t\r\n")
	return bytes.TrimLeft(bytes.TrimPrefix(line, []byte(bom)), " \t")
}

// limiter keeps one kind of warning from flooding the log.
type limiter struct {
	mu      sync.Mutex // guards what follows
	last    time.Time
	skipped int
}

// warnEvery is the least time between two warnings of one kind.
const warnEvery = 10 * time.Second

func (l *limiter) warn(log *slog.Logger, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < warnEvery {
		l.skipped++
		return
	}
	//nolint:sloglint // the callers' messages are literals
	log.Warn(message, append(args, "suppressed_before", l.skipped)...)
	l.last, l.skipped = now, 0
}

package transport

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
	"time"
)

// event is one event of an event stream.
type event struct {
	name string // "" when the stream names none
	data []byte // the joined data lines; not reused by the reader
}

var errEventTooLarge = errors.New("event exceeds the limit")

// eventReader parses an event stream as WHATWG HTML 9.2.6 says: lines end
// with LF, CR or CRLF wherever the bytes are split, one leading BOM is
// ignored. It differs in one point: an event that the end of the stream cut
// off before its blank line is returned if complete says so, since servers
// are seen to omit that line.
type eventReader struct {
	r        *bufio.Reader
	limit    int64             // bytes of one event's data or of one line; <0 = none
	complete func([]byte) bool // nil = never
	// keep makes next report an event beyond the limit at its end, with what
	// over holds of it, not as soon as it is known to be too large.
	keep bool
	over *oversized

	started bool // past the BOM
	skipLF  bool // the last line ended with CR, so an LF next belongs to it
	skip    bool // an event that was too large has not ended yet
	tail    bool // nor has its line
	line    []byte
	err     error // what ended the stream, once known

	// lastID and retry are what the stream said so far; lastID counts from
	// the end of the event that set it. retry is negative when never set.
	lastID  string
	retry   time.Duration
	pending string // id field of the event being read
}

func newEventReader(r *bufio.Reader, limit int64, complete func([]byte) bool) *eventReader {
	return &eventReader{r: r, limit: limit, complete: complete, retry: -1}
}

// next returns the next event that has a data field, which may be empty. After
// errEventTooLarge it may be called again and goes on behind that event.
func (s *eventReader) next() (event, error) {
	var ev event
	hasData := false
	for s.err == nil {
		line, err := s.readLine()
		if errors.Is(err, errEventTooLarge) {
			s.skip = true
			if !s.keep {
				return event{}, err
			}
			s.over = newOversized(ev.data)
			s.over.addLine(dataValue(s.line), hasData)
			continue
		}
		if err != nil {
			s.err = err
			if len(line) == 0 {
				break
			}
		} else if len(line) == 0 {
			s.lastID = s.pending
			if s.skip && s.keep {
				s.skip = false
				return event{name: ev.name}, errEventTooLarge
			}
			if hasData && !s.skip {
				return ev, nil
			}
			ev, hasData, s.skip = event{}, false, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if s.skip {
				if s.keep {
					s.over.addLine(value, true)
				}
				break
			}
			if s.limit >= 0 && int64(len(ev.data)+len(value)) > s.limit {
				s.skip = true
				if !s.keep {
					return event{}, errEventTooLarge
				}
				s.over = newOversized(ev.data)
				s.over.addLine(value, hasData)
				break
			}
			ev.data = s.appendData(ev.data, value, hasData)
			hasData = true
		case "event":
			ev.name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 && err == nil { // never half an id
				s.pending = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 63); err == nil {
				s.retry = min(time.Duration(min(ms, uint64(maxWait/time.Millisecond)))*time.Millisecond, maxWait)
			}
		}
	}
	if hasData && !s.skip && s.complete != nil && s.complete(ev.data) {
		s.lastID = s.pending
		return ev, nil
	}
	return event{}, s.err
}

// stealBytes is from where on a line's memory is given away, not copied.
const stealBytes = 4 << 10

func (s *eventReader) appendData(data, value []byte, more bool) []byte {
	if !more && len(value) >= stealBytes {
		s.line = nil
		return value
	}
	if more {
		data = append(data, '\n')
	}
	return append(data, value...)
}

// readLine returns the next line without its end; it is valid until the next
// call. At the end of the stream it returns what is there and the error.
func (s *eventReader) readLine() ([]byte, error) {
	s.line = s.line[:0]
	over := s.tail
	kept := s.tail && s.keep // the line belongs to an event that is kept in part
	if s.tail {
		s.tail = false
		s.line = append(s.line, ':') // reads like a comment
	}
	for {
		if _, err := s.r.Peek(1); err != nil {
			return s.line, err
		}
		if !s.started && !s.skipBOM() {
			continue
		}
		b, _ := s.r.Peek(s.r.Buffered())
		if s.skipLF {
			s.skipLF = false
			if b[0] == '\n' {
				s.discard(1)
				continue
			}
		}
		end := lineEnd(b)
		part := b
		if end >= 0 {
			part = b[:end]
		}
		if !over {
			s.line = append(s.line, part...)
			over = s.limit >= 0 && int64(len(s.line)) > s.limit+int64(len("data: "))
		}
		if over && !s.skip && bytes.HasPrefix(s.line, []byte("data:")) {
			// Said at once: the rest of the line may never come.
			s.discard(len(part))
			s.tail = true
			return nil, errEventTooLarge
		}
		switch {
		case kept:
			s.over.add(part)
		case over && s.keep && bytes.HasPrefix(s.line, []byte("data:")):
			s.over.addLine(dataValue(s.line), true)
			kept = true
		}
		if over {
			s.line = append(s.line[:0], ':') // ignored as a comment: half an id would be a wrong one
		}
		if end < 0 {
			s.discard(len(b))
			continue
		}
		s.skipLF = b[end] == '\r'
		s.discard(end + 1)
		return s.line, nil
	}
}

// dataValue returns what a data line, or the start of one, holds.
func dataValue(line []byte) []byte {
	return bytes.TrimPrefix(bytes.TrimPrefix(line, []byte("data:")), []byte(" "))
}

// skipBOM drops a BOM at the start; it reports false when it dropped one.
func (s *eventReader) skipBOM() bool {
	s.started = true
	if first, _ := s.r.Peek(1); first[0] != bom[0] {
		return true
	}
	if b, err := s.r.Peek(len(bom)); err != nil || string(b) != bom {
		return true
	}
	s.discard(len(bom))
	return false
}

// discard drops n buffered bytes.
func (s *eventReader) discard(n int) {
	_, _ = s.r.Discard(n) // cannot fail: the bytes are buffered
}

func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// bom is the UTF-8 byte order mark.
const bom = "\xEF\xBB\xBF"

package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
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
				s.count(s.oversize(over), over.size, over.head)
			case len(line) > 0:
				s.count(s.document(line), int64(len(line)), line)
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

// count ends the connection when too much in a row was not understood.
func (s *Stream) count(understood bool, size int64, line []byte) {
	if understood {
		s.inRow = JunkLimit{}
		s.lastJunk.Store(nil)
		return
	}
	s.lastJunk.Store(new(s.redact.excerpt(line)))
	s.inRow.Lines++
	s.inRow.Bytes += size
	if s.maxJunk.Lines >= 0 && s.inRow.Lines > s.maxJunk.Lines ||
		s.maxJunk.Bytes >= 0 && s.inRow.Bytes > s.maxJunk.Bytes && s.inRow.Lines > 1 { // one line may be a broken answer
		s.fail(&Error{Kind: Malformed, Message: fmt.Sprintf(
			"the server writes what is no JSON-RPC message, %d lines with %d bytes in a row; its logs belong on stderr; the last line starts with: %s",
			s.inRow.Lines, s.inRow.Bytes, s.redact.excerpt(line))})
	}
}

// lineReader splits a stream at LF, and at nothing else: JSON may hold other
// characters that some call line ends.
type lineReader struct {
	r     *bufio.Reader
	limit int64 // <0 = none
}

// next returns the next line without white space and BOM around it, in memory
// of its own, or what is kept of it. The last line comes with the error that
// ended the stream.
func (l *lineReader) next() ([]byte, *oversized, error) {
	var line []byte
	var over *oversized
	for {
		part, err := l.r.ReadSlice('\n')
		if over != nil {
			over.add(part)
		} else if line = append(line, part...); l.limit >= 0 && int64(len(bytes.TrimRight(line, "\r\n"))) > l.limit {
			over, line = newOversized(line), nil
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

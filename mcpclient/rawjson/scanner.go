// Package rawjson walks JSON text in place: nothing is copied, and nothing is
// decoded before it is asked for. It checks the syntax of all that it passes,
// and checks a large value only once, see [Index].
//
// It is lenient in two points, as readers of what servers send have to be: an
// object may name a member twice, and strings may hold invalid UTF-8 and lone
// surrogates, which [Unquote] replaces.
package rawjson

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many objects and lists may be open at a time.
const MaxDepth = 10_000

// ErrTooDeep is wrapped by the error for text that is nested deeper than [MaxDepth].
var ErrTooDeep = errors.New("nested too deep")

// Scanner walks one JSON text. The values it hands out alias the text, which
// must not change meanwhile. Its error is sticky: after the first one every
// method does nothing and returns zero values. It is for one goroutine.
type Scanner struct {
	data  []byte
	pos   int
	depth int
	err   error

	known  Index // what was checked before
	record bool
	found  []span

	more func() (data []byte, ok bool) // see Growing; nil where data is all
}

// New returns a scanner at the start of data. known is what [Scanner.Record]
// found in the very same bytes, or the zero value.
func New(data []byte, known Index) Scanner { return Scanner{data: data, known: known} }

// awaitBytes is how much text a scanner wants to see ahead between two values.
const awaitBytes = 1 << 10

// Growing returns a scanner of a text that comes while it is read: more returns
// all that is there, and false if that is the end. What is read at once when it
// comes is still in the processor's cache. The scanner may fail at the end of
// what is there, so that an error only says to read the whole text again.
func Growing(more func() (data []byte, ok bool)) Scanner {
	s := Scanner{more: more}
	s.await(0)
	return s
}

// fill gets more text, and reports false if there is none.
func (s *Scanner) fill() bool {
	if s.more == nil {
		return false
	}
	data, ok := s.more()
	if s.data = data; !ok {
		s.more = nil
	}
	return true
}

// await gets the text behind offset i that is wanted.
func (s *Scanner) await(i int) {
	for len(s.data)-i < awaitBytes && s.fill() {
		continue
	}
}

// Err returns the first error; it wraps [io.ErrUnexpectedEOF] if the text ends
// too early, and [ErrTooDeep].
func (s *Scanner) Err() error { return s.err }

// Offset is how many bytes were consumed. While a value is next, it is where
// the value begins, once [Scanner.Kind] was asked.
func (s *Scanner) Offset() int { return s.pos }

// Since is the text from offset start on that was consumed.
func (s *Scanner) Since(start int) []byte { return s.data[start:s.pos:s.pos] }

// fail keeps the first error.
func (s *Scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// misplaced is the error for what stands at i.
func (s *Scanner) misplaced(i int) error {
	if i >= len(s.data) {
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("unexpected %q at byte %d", s.data[i:i+1], i)
}

// space skips white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// Kind is the kind of the value that comes next, which is not consumed; 0
// where none does, which is an error.
func (s *Scanner) Kind() jsontext.Kind {
	if s.err != nil {
		return 0
	}
	s.pos = space(s.data, s.pos)
	if s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case '{', '[', '"', 'n', 't', 'f':
			return jsontext.Kind(c)
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			return '0'
		}
	}
	s.fail(s.misplaced(s.pos))
	return 0
}

// Enter consumes the bracket that opens an object or a list. Go on with
// [Scanner.Member] or [Scanner.Element] until it reports false.
func (s *Scanner) Enter() {
	switch k := s.Kind(); {
	case s.err != nil:
	case k != '{' && k != '[':
		s.fail(s.misplaced(s.pos))
	case s.depth == MaxDepth:
		s.fail(ErrTooDeep)
	default:
		s.pos++
		s.depth++
	}
}

// Member consumes the name of the next member with its colon and returns it as
// it is written; [Scanner.Value] or [Scanner.Enter] has to consume the value.
// It reports false at the end of the object, which it consumes. A name whose
// colon is missing is returned, too; the error shows at its value. first is for
// the first member.
func (s *Scanner) Member(first bool) (quoted []byte, ok bool) {
	if !s.next('}', first) {
		return nil, false
	}
	start := s.pos
	if start >= len(s.data) || s.data[start] != '"' {
		s.fail(s.misplaced(start))
		return nil, false
	}
	name, err := s.str(start)
	if err != nil {
		s.fail(err)
		return nil, false
	}
	colon := space(s.data, name.end)
	if colon >= len(s.data) || s.data[colon] != ':' {
		s.fail(s.misplaced(colon))
	} else {
		s.pos = space(s.data, colon+1)
	}
	return s.data[start:name.end:name.end], true
}

// Element reports whether the open list has another element, which
// [Scanner.Value] or [Scanner.Enter] has to consume. At its end it consumes
// the bracket. first is for the first element.
func (s *Scanner) Element(first bool) bool { return s.next(']', first) && s.Kind() != 0 }

// next consumes what closes an object or list, or what separates its items.
func (s *Scanner) next(end byte, first bool) bool {
	if s.err != nil {
		return false
	}
	s.pos = space(s.data, s.pos)
	switch {
	case s.pos < len(s.data) && s.data[s.pos] == end:
		s.pos++
		s.depth--
		return false
	case first:
		return true
	case s.pos >= len(s.data) || s.data[s.pos] != ',':
		s.fail(s.misplaced(s.pos))
		return false
	}
	s.pos = space(s.data, s.pos+1)
	return true
}

// Value consumes one value and returns its text.
func (s *Scanner) Value() jsontext.Value {
	v, _ := s.Checked()
	return v
}

// Checked consumes one value and returns its text, and whether it is known to
// be valid UTF-8.
func (s *Scanner) Checked() (text jsontext.Value, utf8 bool) {
	if s.Kind() == 0 {
		return nil, false
	}
	start := s.pos
	known, ok := s.known.at(start, s.data)
	if !ok {
		var err error
		if known, err = s.skip(start); err != nil {
			s.fail(err)
			return nil, false
		}
		s.await(known.end)
	}
	s.pos = known.end
	return s.data[start:known.end:known.end], known.utf8
}

// End checks that nothing but white space follows, and returns the scanner's error.
func (s *Scanner) End() error {
	for s.err == nil && s.fill() {
		continue
	}
	if s.err == nil {
		if s.pos = space(s.data, s.pos); s.pos < len(s.data) {
			s.fail(fmt.Errorf("the text continues after its end, at byte %d", s.pos))
		}
	}
	return s.err
}

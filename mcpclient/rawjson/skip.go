package rawjson

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"unicode/utf8"
)

// skip checks the value that begins at start and returns where it ends.
func (s *Scanner) skip(start int) (span, error) {
	switch c := s.data[start]; c {
	case '"':
		v, err := s.str(start)
		s.note(v, 0)
		return v, err
	case '{', '[':
		return s.skipNested(start)
	default:
		end, err := s.scalar(start)
		return span{start: start, end: end, utf8: true}, err
	}
}

// open is an object or list that skipNested is in.
type open struct {
	start int
	dirty int // strings with invalid UTF-8 before it
}

// skipNested is skip for objects and lists. It is one loop, so that deep text
// costs no stack.
func (s *Scanner) skipNested(start int) (span, error) {
	data, i := s.data, start
	var (
		fewClosing [64]byte
		fewOpen    [indexDepth]open
		closing    = fewClosing[:0] // the brackets that are due
		dirty      = 0
	)
value:
	switch {
	case i >= len(data):
		return span{}, io.ErrUnexpectedEOF
	case data[i] == '"':
		v, err := s.str(i)
		if err != nil {
			return span{}, err
		}
		if !v.utf8 {
			dirty++
		}
		if v.end-i >= indexBytes {
			s.note(v, len(closing))
		}
		i = v.end
	case data[i] == '{' || data[i] == '[':
		if s.depth+len(closing) == MaxDepth {
			return span{}, ErrTooDeep
		}
		if len(closing) < indexDepth {
			fewOpen[len(closing)] = open{i, dirty}
		}
		object := data[i] == '{'
		closing = append(closing, data[i]+2) // in ASCII both pairs are two apart
		if i++; i < len(data) && data[i] <= ' ' {
			i = space(data, i)
		}
		if i < len(data) && data[i] == closing[len(closing)-1] {
			break
		}
		if object {
			goto name
		}
		goto value
	default:
		end, err := s.scalar(i)
		if err != nil {
			return span{}, err
		}
		i = end
	}
after: // a value, or before a bracket that closes
	if len(data)-i < awaitBytes && (s.more != nil || len(data) < len(s.data)) {
		s.await(i)
		data = s.data
	}
	if i < len(data) && data[i] <= ' ' {
		i = space(data, i)
	}
	if i >= len(data) {
		return span{}, io.ErrUnexpectedEOF
	}
	switch due := closing[len(closing)-1]; data[i] {
	case due:
		i++
		closing = closing[:len(closing)-1]
		if n := len(closing); n < indexDepth && (i-fewOpen[n].start >= indexBytes || n == 0) {
			v := span{start: fewOpen[n].start, end: i, utf8: fewOpen[n].dirty == dirty}
			s.note(v, n)
			if n == 0 {
				return v, nil
			}
		}
		goto after
	case ',':
		if i++; i < len(data) && data[i] <= ' ' {
			i = space(data, i)
		}
		if due == ']' {
			goto value
		}
	default:
		return span{}, s.misplaced(i)
	}
name:
	if i >= len(data) || data[i] != '"' {
		return span{}, s.misplaced(i)
	}
	name, err := s.str(i)
	if err != nil {
		return span{}, err
	}
	if !name.utf8 {
		dirty++
	}
	if i = name.end; i < len(data) && data[i] <= ' ' {
		i = space(data, i)
	}
	if i >= len(data) || data[i] != ':' {
		return span{}, s.misplaced(i)
	}
	if i++; i < len(data) && data[i] <= ' ' {
		i = space(data, i)
	}
	goto value
}

// scalar checks a number or a literal.
func (s *Scanner) scalar(i int) (end int, err error) {
	data := s.data
	literal := ""
	switch data[i] {
	case 'n':
		literal = "null"
	case 't':
		literal = "true"
	case 'f':
		literal = "false"
	default:
		return s.number(i)
	}
	for n := range len(literal) {
		if i+n >= len(data) || data[i+n] != literal[n] {
			return 0, s.misplaced(i + n)
		}
	}
	return i + len(literal), nil
}

// number checks a number (RFC 8259 section 6).
func (s *Scanner) number(i int) (end int, err error) {
	data := s.data
	if data[i] == '-' {
		i++
	}
	if i < len(data) && data[i] == '0' {
		i++
	} else if i, err = s.digits(i); err != nil {
		return 0, err
	}
	if i < len(data) && data[i] == '.' {
		if i, err = s.digits(i + 1); err != nil {
			return 0, err
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		if i++; i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		return s.digits(i)
	}
	return i, nil
}

func (s *Scanner) digits(i int) (end int, err error) {
	data := s.data
	if i >= len(data) || data[i] < '0' || data[i] > '9' {
		return 0, s.misplaced(i)
	}
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	return i, nil
}

const (
	ones  = 0x0101010101010101
	lows  = 0x7f7f7f7f7f7f7f7f
	highs = 0x8080808080808080
)

// special marks the bytes of w that a string cannot pass over: quotes,
// backslashes and control characters. Marks above the lowest one may be wrong.
func special(w uint64) uint64 {
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & highs
}

// str checks the string whose quote is at start.
func (s *Scanner) str(start int) (v span, err error) {
	data, i := s.data, start+1
	seen := uint64(0) // the bits of all bytes, and of some behind the string
	less := 0
	for {
		if i-start >= blockBytes && i-start < 3*blockBytes {
			i = pass(data, i, &seen, &less)
			for len(data)-i < 2*blockBytes && s.fill() {
				data = s.data
				i = pass(data, i, &seen, &less)
			}
		}
		for i+8 <= len(data) {
			w := binary.LittleEndian.Uint64(data[i:])
			seen |= w
			if m := special(w); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i+len(`\u0000`) > len(data) && s.fill() {
			data = s.data
			continue
		}
		if i >= len(data) {
			return span{}, io.ErrUnexpectedEOF
		}
		switch c := data[i]; {
		case c == '"':
			return span{start, i + 1, seen&highs == 0 || utf8.Valid(data[start:i]), less}, nil
		case c == '\\':
			if i+1 < len(data) && escapes[data[i+1]] != 0 {
				i, less = i+2, less+1
			} else if i, err = s.unicodeEscape(i); err != nil {
				return span{}, err
			} else {
				less += 3
			}
		case c < ' ':
			return span{}, fmt.Errorf("unexpected control character in a string at byte %d", i)
		default: // in the last bytes of the text
			seen |= uint64(c)
			i++
		}
	}
}

// escapes is what follows a backslash, and what both stand for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (s *Scanner) unicodeEscape(i int) (end int, err error) {
	rest := s.data[i:]
	switch {
	case len(rest) < 2:
		return 0, io.ErrUnexpectedEOF
	case rest[1] != 'u':
		return 0, fmt.Errorf("unexpected escape in a string at byte %d", i)
	}
	if _, ok := hex4(rest[2:]); !ok {
		if len(rest) < 6 {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, fmt.Errorf("unexpected escape in a string at byte %d", i)
	}
	return i + 6, nil
}

// hex4 reads the four digits of an escape.
func hex4(digits []byte) (r rune, ok bool) {
	if len(digits) < 4 {
		return 0, false
	}
	for _, c := range digits[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

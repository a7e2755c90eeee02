package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Format is how documents are carried. Any value but JSON_FORMAT_TEXT, the zero value included, means
// JSON_FORMAT_STRUCT.
type Format = pb.JsonFormat

// reader walks one JSON text. Its error is sticky: after the first one every method does nothing and returns zero
// values, so that only the end of a conversion has to look.
//
// The methods that read a field into a destination report whether the value fits. On false the destination is
// unchanged, or holds the part that fits, and the value may or may not have been consumed; object and list deal with
// both.
type reader struct {
	src    []byte
	dec    *jsontext.Decoder
	format Format
	err    error

	// State of the document being read, see document.go.
	inexact bool
	deep    bool
}

func newReader(src []byte, f Format) *reader {
	return &reader{
		src: src,
		// A bytes.Buffer is read in place and never written to, so all slices handed out alias src.
		dec:    jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		format: f,
	}
}

// convertObject reads src, which must be one JSON object, with read.
func convertObject[T any](src []byte, f Format, what string, read func(*reader) *T) (*T, error) {
	r := newReader(src, f)
	if r.kind() != '{' && r.err == nil {
		return nil, fmt.Errorf("%s is not a JSON object", what)
	}
	out := read(r)
	switch err := r.end(); {
	case err == nil:
		return out, nil
	case r.tooDeep():
		return nil, &FormError{"it is nested deeper than " + strconv.Itoa(maxDepth) + " levels"}
	default:
		if form, ok := errors.AsType[*FormError](err); ok {
			return nil, form
		}
		return nil, fmt.Errorf("%s is not valid JSON: %w", what, err)
	}
}

// maxDepth is how many levels a jsontext.Decoder enters.
const maxDepth = 10_000

// tooDeep reports whether the error is that the text is nested too deep. ReadValue does not tell by its stack, so the
// brackets are counted.
func (r *reader) tooDeep() bool {
	if r.err == nil {
		return false
	}
	_, depth := shape(r.src)
	return depth > maxDepth
}

func (r *reader) fail(err error) {
	if r.err == nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		r.err = err
	}
}

// end checks that the text has ended.
func (r *reader) end() error {
	if r.err != nil {
		return r.err
	}
	if _, err := r.dec.ReadToken(); err == nil {
		return errors.New("text continues after its end")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// kind is the kind of the next value, without consuming it; 0 after an error.
func (r *reader) kind() jsontext.Kind {
	if r.err != nil {
		return 0
	}
	k := r.dec.PeekKind()
	if k == 0 {
		r.token() // turns the cached error into the sticky one
	}
	return k
}

func (r *reader) token() jsontext.Token {
	if r.err != nil {
		return jsontext.Token{}
	}
	t, err := r.dec.ReadToken()
	if err != nil {
		r.fail(err)
	}
	return t
}

// value consumes one value and returns its bytes in src.
func (r *reader) value() []byte {
	if r.err != nil {
		return nil
	}
	v, err := r.dec.ReadValue()
	if err != nil {
		r.fail(err)
		return nil
	}
	return v
}

// more reports whether the open object or list has another member; otherwise it closes it.
func (r *reader) more() bool {
	switch r.kind() {
	case 0:
		return false
	case '}', ']':
		r.token()
		return false
	default:
		return true
	}
}

func (r *reader) offset() int { return int(r.dec.InputOffset()) }

// since is the value that was consumed since offset start, without what separates it from its name.
func (r *reader) since(start int) []byte {
	return bytes.TrimLeft(r.src[start:r.offset()], " \t\r\n:,")
}

// object reads an object and calls known for each member, with the value next. Members for which known returns false
// are returned as the text of a JSON object, nil when there is none.
func (r *reader) object(known func(name []byte) bool) (extra []byte) {
	r.token()
	return r.members(nil, known)
}

// members is object after its opening brace; extra holds what was collected before.
func (r *reader) members(extra []byte, known func(name []byte) bool) []byte {
	for r.more() {
		name := r.value()
		start := r.offset()
		fits := known(unquoteName(name))
		if r.err == nil && r.offset() == start {
			r.value()
		}
		if !fits && r.err == nil {
			extra = appendMember(extra, name, r.since(start))
		}
	}
	if extra != nil {
		extra = append(extra, '}')
	}
	return extra
}

func appendMember(object, name, value []byte) []byte {
	sep := byte(',')
	if object == nil {
		sep = '{'
	}
	object = append(append(object, sep), name...)
	return append(append(object, ':'), value...)
}

// list reads a list into dst, leaving out null items and those that do not fit. If an item does not fit, the list does
// not, so that it is in extra as well, with every item at its place.
func list[T any](r *reader, dst *[]T, item func() (T, bool)) bool {
	switch r.kind() {
	case 'n':
		r.token()
		*dst = nil
		return true
	case '[':
	default:
		return false
	}
	r.token()
	var out []T
	fits := true
	for r.more() {
		start := r.offset()
		if r.kind() == 'n' {
			r.token()
			continue
		}
		v, ok := item()
		if r.err == nil && r.offset() == start {
			r.value()
		}
		if fits = fits && ok; ok {
			out = append(out, v)
		}
	}
	*dst = out
	return fits
}

// objects reads a list of objects.
func objects[T any](r *reader, dst *[]*T, read func(*reader) *T) bool {
	return list(r, dst, func() (*T, bool) {
		if r.kind() != '{' {
			return nil, false
		}
		return read(r), true
	})
}

// optional reads an object that may be absent.
func optional[T any](r *reader, dst **T, read func(*reader) *T) bool {
	switch r.kind() {
	case 'n':
		r.token()
		*dst = nil
		return true
	case '{':
		*dst = read(r)
		return true
	}
	return false
}

// text reads a string; null gives present = false.
func (r *reader) text() (s string, present, fits bool) {
	switch r.kind() {
	case 'n':
		r.token()
		return "", false, true
	case '"':
		s, _ = unquote(r.value())
		return s, true, true
	}
	return "", false, false
}

func (r *reader) string(dst *string) bool {
	s, _, fits := r.text()
	if fits {
		*dst = s
	}
	return fits
}

func (r *reader) optString(dst **string) bool {
	s, present, fits := r.text()
	if fits {
		*dst = nil
		if present {
			*dst = &s
		}
	}
	return fits
}

func (r *reader) strings(dst *[]string) bool {
	return list(r, dst, func() (string, bool) {
		s, _, fits := r.text()
		return s, fits
	})
}

func (r *reader) optBool(dst **bool) bool {
	switch k := r.kind(); k {
	case 'n':
		r.token()
		*dst = nil
	case 't', 'f':
		r.token()
		*dst = new(k == 't')
	default:
		return false
	}
	return true
}

// optInt reads a number that is an integer of 64 bits; any other does not fit.
func (r *reader) optInt(dst **int64) bool {
	switch r.kind() {
	case 'n':
		r.token()
		*dst = nil
		return true
	case '0':
		n, ok := parseInt(r.value())
		if ok {
			*dst = &n
		}
		return ok
	}
	return false
}

// optDouble reads a number; one that a double cannot hold exactly does not fit.
func (r *reader) optDouble(dst **float64) bool {
	switch r.kind() {
	case 'n':
		r.token()
		*dst = nil
		return true
	case '0':
		f, exact := parseNumber(r.value())
		if exact {
			*dst = &f
		}
		return exact
	}
	return false
}

// enum reads a string that has a value in of; null is the zero value, and any other string does not fit.
func enum[E ~int32](r *reader, dst *E, of func(string) E) bool {
	s, present, fits := r.text()
	if !fits {
		return false
	}
	v := of(s)
	if present && v == 0 {
		return false
	}
	*dst = v
	return true
}

// resultType consumes the resultType of a result that is expected to be want; another one does not fit.
func (r *reader) resultType(want string) bool {
	s, present, fits := r.text()
	return fits && (!present || s == want)
}

// unquote decodes a JSON string. clean is false when something in it had to become U+FFFD.
func unquote(quoted []byte) (s string, clean bool) {
	if len(quoted) < 2 {
		return "", true
	}
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		if utf8.Valid(inner) {
			return string(inner), true
		}
	}
	b, err := jsontext.AppendUnquote(make([]byte, 0, len(inner)), quoted)
	return string(b), err == nil
}

// unquoteName is unquote for names that are only compared; it allocates only for unusual ones.
func unquoteName(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	s, _ := unquote(quoted)
	return []byte(s)
}

// validText is JSON text as a protobuf string.
func validText(b []byte) *string {
	return new(strings.ToValidUTF8(string(b), "\uFFFD"))
}

package convert

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
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
	scan   rawjson.Scanner
	format Format
	large  *largeParts // nil where every string becomes a field
	err    error
}

func newReader(src []byte, known rawjson.Index, f Format) *reader {
	return &reader{src: src, scan: rawjson.New(src, known), format: f}
}

// convertObject reads src, which must be one JSON object, with read.
func convertObject[T any](src []byte, f Format, what string, read func(*reader) *T) (*T, error) {
	return convertKnown(src, rawjson.Index{}, f, what, read)
}

// convertKnown is convertObject for an object of which some is known.
func convertKnown[T any](src []byte, known rawjson.Index, f Format, what string, read func(*reader) *T) (*T, error) {
	r := newReader(src, known, f)
	if r.kind() != '{' && r.err == nil {
		return nil, fmt.Errorf("%s is not a JSON object", what)
	}
	out := read(r)
	switch err := r.end(); {
	case err == nil:
		return out, nil
	case errors.Is(err, rawjson.ErrTooDeep):
		return nil, &FormError{"it is nested deeper than " + strconv.Itoa(rawjson.MaxDepth) + " levels"}
	default:
		if form, ok := errors.AsType[*FormError](err); ok {
			return nil, form
		}
		return nil, fmt.Errorf("%s is not valid JSON: %w", what, err)
	}
}

// end checks that the text has ended.
func (r *reader) end() error {
	if r.err != nil {
		return r.err
	}
	return r.scan.End()
}

// stop keeps the scanner's error.
func (r *reader) stop() {
	if r.err == nil {
		r.err = r.scan.Err()
	}
}

// kind is the kind of the next value, without consuming it; 0 after an error.
func (r *reader) kind() jsontext.Kind {
	if r.err != nil {
		return 0
	}
	k := r.scan.Kind()
	if k == 0 {
		r.stop()
	}
	return k
}

// value consumes one value and returns its bytes in src.
func (r *reader) value() []byte {
	v, _ := r.checked()
	return v
}

// checked is value, and tells whether the bytes are known to be valid UTF-8.
func (r *reader) checked() (v []byte, utf8 bool) {
	if r.err != nil {
		return nil, false
	}
	if v, utf8 = r.scan.Checked(); v == nil {
		r.stop()
	}
	return v, utf8
}

// enter consumes the bracket of the object or list that is next.
func (r *reader) enter() {
	if r.err != nil {
		return
	}
	r.scan.Enter()
	r.stop()
}

// member consumes the next name of the open object, and what closes it if there is none; first is for the first one.
func (r *reader) member(first bool) (quoted []byte, ok bool) {
	if r.err != nil {
		return nil, false
	}
	quoted, ok = r.scan.Member(first)
	r.stop()
	return quoted, ok && r.err == nil
}

// element reports whether the open list has another value; otherwise it closes it.
func (r *reader) element(first bool) bool {
	if r.err != nil {
		return false
	}
	more := r.scan.Element(first)
	if !more {
		r.stop()
	}
	return more
}

// offset is where the value begins that is next, after its name or within its list.
func (r *reader) offset() int { return r.scan.Offset() }

// since is the value that was consumed since offset start.
func (r *reader) since(start int) []byte { return r.scan.Since(start) }

// object reads an object and calls known for each member, with the value next. Members for which known returns false
// are returned as the text of a JSON object, nil when there is none.
func (r *reader) object(known func(name []byte) bool) (extra []byte) {
	r.enter()
	for first := true; ; first = false {
		name, ok := r.member(first)
		if !ok {
			break
		}
		start := r.offset()
		fits := known(rawjson.Name(name))
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
		r.value()
		*dst = nil
		return true
	case '[':
	default:
		return false
	}
	r.enter()
	var out []T
	fits := true
	for first := true; r.element(first); first = false {
		start := r.offset()
		if r.kind() == 'n' {
			r.value()
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
		r.value()
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
		r.value()
		return "", false, true
	case '"':
		s, _ = rawjson.UnquoteChecked(r.checked())
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
		r.value()
		*dst = nil
	case 't', 'f':
		r.value()
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
		r.value()
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
		r.value()
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

// validText is JSON text as a protobuf string; valid says that its UTF-8 is.
func validText(b []byte, valid bool) *string {
	text := string(b)
	if !valid {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return &text
}

package convert

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// MaxStructDepth is how deep objects and lists may be nested in a document that is decoded; deeper ones are text
// alone. Each level costs up to three nested protobuf messages, and common protobuf decoders stop at 100.
const MaxStructDepth = 30

// Struct converts a JSON object. The text is set when f asks for it or when the Struct does not hold the object
// exactly; the Struct is nil when f is JSON_FORMAT_TEXT or the object is nested deeper than [MaxStructDepth].
func Struct(raw []byte, f Format) (*structpb.Struct, *string, error) {
	r := newReader(raw, f)
	if r.kind() != '{' && r.err == nil {
		return nil, nil, errors.New("document is not a JSON object")
	}
	s, text := r.document()
	if err := r.end(); err != nil {
		return nil, nil, fmt.Errorf("document is not valid JSON: %w", err)
	}
	return s, text, nil
}

// Value is [Struct] for a document that may be any JSON value, null included.
func Value(raw []byte, f Format) (*structpb.Value, *string, error) {
	r := newReader(raw, f)
	v, text := r.anyDocument()
	if err := r.end(); err != nil {
		return nil, nil, fmt.Errorf("document is not valid JSON: %w", err)
	}
	return v, text, nil
}

// structField reads an object into the two fields of a document; null is absent.
func (r *reader) structField(s **structpb.Struct, text **string) bool {
	switch r.kind() {
	case 'n':
		r.token()
		*s, *text = nil, nil
		return true
	case '{':
		*s, *text = r.document()
		return true
	}
	return false
}

// valueField reads any value into the two fields of a document.
func (r *reader) valueField(v **structpb.Value, text **string) bool {
	*v, *text = r.anyDocument()
	return true
}

// extraFields sets the two fields for members that have none of their own; object is as [reader.members] returns it.
func (r *reader) extraFields(object []byte, s **structpb.Struct, text **string) {
	if object == nil || r.err != nil {
		return
	}
	sub := newReader(object, r.format)
	*s, *text = sub.document()
	if sub.err != nil {
		r.fail(sub.err)
	}
}

// document consumes one object.
func (r *reader) document() (*structpb.Struct, *string) {
	if r.format == pb.JsonFormat_JSON_FORMAT_TEXT {
		return nil, validText(r.value())
	}
	start := r.offset()
	r.inexact, r.deep = false, false
	s := new(structpb.Struct)
	r.fields(s, 1)
	if r.deep {
		s = nil
	}
	return s, r.textIfInexact(start)
}

// anyDocument consumes one value of any kind.
func (r *reader) anyDocument() (*structpb.Value, *string) {
	if r.format == pb.JsonFormat_JSON_FORMAT_TEXT {
		return nil, validText(r.value())
	}
	start := r.offset()
	r.inexact, r.deep = false, false
	v := r.decode(0)
	if r.deep {
		v = nil
	}
	return v, r.textIfInexact(start)
}

func (r *reader) textIfInexact(start int) *string {
	if r.err != nil || !r.inexact && !r.deep {
		return nil
	}
	return validText(r.since(start))
}

// fields reads an object into s, which is at the given level; the outermost object is level 1.
func (r *reader) fields(s *structpb.Struct, level int) {
	r.token()
	s.Fields = make(map[string]*structpb.Value)
	n := 0
	for r.more() {
		name, clean := unquote(r.value())
		s.Fields[name] = r.decode(level)
		r.inexact = r.inexact || !clean
		n++
	}
	// Fewer fields than members: a name came twice.
	r.inexact = r.inexact || n != len(s.Fields)
}

// One allocation a value instead of two or three: the value together with what its kind points to.
type (
	boolValue struct {
		structpb.Value
		kind structpb.Value_BoolValue
	}
	numberValue struct {
		structpb.Value
		kind structpb.Value_NumberValue
	}
	stringValue struct {
		structpb.Value
		kind structpb.Value_StringValue
	}
	structValue struct {
		structpb.Value
		kind  structpb.Value_StructValue
		inner structpb.Struct
	}
	listValue struct {
		structpb.Value
		kind  structpb.Value_ListValue
		inner structpb.ListValue
	}
)

// decode reads one value that is inside level open objects and lists.
func (r *reader) decode(level int) *structpb.Value {
	kind := r.kind()
	if level >= MaxStructDepth && (kind == '{' || kind == '[') {
		r.deep = true
		r.value()
		return nil
	}
	switch kind {
	case '{':
		v := new(structValue)
		r.fields(&v.inner, level+1)
		v.kind.StructValue = &v.inner
		v.Kind = &v.kind
		return &v.Value
	case '[':
		v := new(listValue)
		r.token()
		for r.more() {
			v.inner.Values = append(v.inner.Values, r.decode(level+1))
		}
		v.kind.ListValue = &v.inner
		v.Kind = &v.kind
		return &v.Value
	case '"':
		v := new(stringValue)
		s, clean := unquote(r.value())
		r.inexact = r.inexact || !clean
		v.kind.StringValue = s
		v.Kind = &v.kind
		return &v.Value
	case '0':
		v := new(numberValue)
		f, exact := parseNumber(r.value())
		r.inexact = r.inexact || !exact
		v.kind.NumberValue = f
		v.Kind = &v.kind
		return &v.Value
	case 't', 'f':
		v := new(boolValue)
		r.token()
		v.kind.BoolValue = kind == 't'
		v.Kind = &v.kind
		return &v.Value
	default:
		r.token()
		return structpb.NewNullValue()
	}
}

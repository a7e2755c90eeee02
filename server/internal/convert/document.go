package convert

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// MaxStructDepth is how deep objects and lists may be nested in a document that is decoded; deeper ones are text
// alone. Each level costs up to three nested protobuf messages, and common protobuf decoders stop at 100.
const MaxStructDepth = 30

// Struct converts a JSON object. The text is set when f asks for it or when the Struct does not hold the object
// exactly; the Struct is nil when f is JSON_FORMAT_TEXT or the object is nested deeper than [MaxStructDepth].
func Struct(raw []byte, f Format) (*structpb.Struct, *string, error) {
	r := newReader(raw, rawjson.Index{}, f)
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
	r := newReader(raw, rawjson.Index{}, f)
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
		r.value()
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
	sub := newReader(object, rawjson.Index{}, r.format)
	*s, *text = sub.document()
	r.err = sub.err
}

// document consumes one object.
func (r *reader) document() (*structpb.Struct, *string) {
	if r.format == pb.JsonFormat_JSON_FORMAT_TEXT {
		return nil, validText(r.checked())
	}
	wire, text := r.encode((*encoder).fields)
	if wire == nil {
		return nil, text
	}
	s := new(structpb.Struct)
	s.ProtoReflect().SetUnknown(wire)
	return s, text
}

// anyDocument consumes one value of any kind.
func (r *reader) anyDocument() (*structpb.Value, *string) {
	if r.format == pb.JsonFormat_JSON_FORMAT_TEXT {
		return nil, validText(r.checked())
	}
	wire, text := r.encode((*encoder).value)
	if wire == nil {
		return nil, text
	}
	v := new(structpb.Value)
	v.ProtoReflect().SetUnknown(wire)
	return v, text
}

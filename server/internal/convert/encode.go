package convert

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// Documents are written in protobuf's binary form at once. A message for each of their values would cost many times as
// much, and nearly all of them are only written again. They stand among the unknown fields of their Struct or Value,
// which whoever reads the message as protobuf does not notice; see [Decoded].

// Tags of google/protobuf/struct.proto.
const (
	tagStructField = 1<<3 | 2 // Struct.fields: a map entry
	tagEntryKey    = 1<<3 | 2
	tagEntryValue  = 2<<3 | 2
	tagListValue   = 1<<3 | 2 // ListValue.values
	tagNull        = 1 << 3
	tagNumber      = 2<<3 | 1
	tagString      = 3<<3 | 2
	tagBool        = 4 << 3
	tagStruct      = 5<<3 | 2
	tagList        = 6<<3 | 2
)

// encoder writes the document that is next in its reader.
type encoder struct {
	*reader
	out     []byte
	inexact bool     // something is lost
	deep    bool     // it is nested too deep, so that out is of no use
	names   [][]byte // of the objects that are open
}

// encode consumes one value and returns what write makes of it, nil if it is nested too deep, and its text if that
// is needed.
func (r *reader) encode(write func(e *encoder, level int)) (wire []byte, text *string) {
	r.kind()
	start := r.offset()
	e := encoder{reader: r, out: make([]byte, 0, 64+r.ahead())}
	write(&e, 0)
	if r.err != nil {
		return nil, nil
	}
	if e.inexact || e.deep {
		text = validText(r.since(start), false)
	}
	if e.deep {
		return nil, text
	}
	return e.out, text
}

// ahead guesses the encoded size of the value that is next, 0 when it is small.
func (r *reader) ahead() int { return r.scan.Ahead() / 2 * 3 }

// fields writes a Struct that is inside level objects and lists.
func (e *encoder) fields(level int) {
	if e.kind(); e.err != nil {
		return
	}
	e.enter()
	base := len(e.names)
	var many map[string]struct{}
	for first := true; ; first = false {
		quoted, ok := e.member(first)
		if !ok {
			break
		}
		e.unique(rawjson.Name(quoted), base, &many)
		e.out = append(e.out, tagStructField)
		entry := e.open(e.ahead())
		e.out = append(e.out, tagEntryKey)
		e.text(quoted, false)
		e.out = append(e.out, tagEntryValue)
		e.nested(level + 1)
		e.close(entry)
	}
	e.names = e.names[:base]
}

// unique notes a name of the object whose names begin at base. When it came before, the last one wins and something is
// lost.
func (e *encoder) unique(name []byte, base int, many *map[string]struct{}) {
	const few = 16
	if *many != nil {
		before := len(*many)
		(*many)[string(name)] = struct{}{}
		e.inexact = e.inexact || len(*many) == before
		return
	}
	for _, other := range e.names[base:] {
		e.inexact = e.inexact || string(other) == string(name)
	}
	e.names = append(e.names, name)
	if len(e.names)-base == few {
		*many = make(map[string]struct{}, 2*few)
		for _, other := range e.names[base:] {
			(*many)[string(other)] = struct{}{}
		}
	}
}

// nested writes a Value with its length.
func (e *encoder) nested(level int) {
	start := e.open(e.ahead())
	e.value(level)
	e.close(start)
}

// value writes a Value that is inside level objects and lists.
func (e *encoder) value(level int) {
	kind := e.kind()
	if e.deep || level >= MaxStructDepth && (kind == '{' || kind == '[') {
		e.deep = true
		e.reader.value()
		return
	}
	switch kind {
	case '{':
		e.out = append(e.out, tagStruct)
		start := e.open(e.ahead())
		e.fields(level)
		e.close(start)
	case '[':
		e.out = append(e.out, tagList)
		start := e.open(e.ahead())
		e.enter()
		for first := true; e.element(first); first = false {
			e.out = append(e.out, tagListValue)
			e.nested(level + 1)
		}
		e.close(start)
	case '"':
		e.out = append(e.out, tagString)
		e.text(e.reader.checked())
	case '0':
		f, exact := parseNumber(e.reader.value())
		e.inexact = e.inexact || !exact
		e.out = binary.LittleEndian.AppendUint64(append(e.out, tagNumber), math.Float64bits(f))
	case 't', 'f':
		e.reader.value()
		truth := byte(0)
		if kind == 't' {
			truth = 1
		}
		e.out = append(e.out, tagBool, truth)
	case 'n':
		e.reader.value()
		e.out = append(e.out, tagNull, 0)
	}
}

// text writes a string with its length; valid says that its UTF-8 is known to be.
func (e *encoder) text(quoted []byte, valid bool) {
	if len(quoted) < 2 {
		return // after an error
	}
	if plain := quoted[1 : len(quoted)-1]; bytes.IndexByte(plain, '\\') < 0 && (valid || utf8.Valid(plain)) {
		e.out = append(protowire.AppendVarint(e.out, uint64(len(plain))), plain...)
		return
	}
	start := e.open(len(quoted) - 2)
	out, clean := rawjson.AppendUnquote(e.out, quoted, valid)
	e.out = out
	e.inexact = e.inexact || !clean
	e.close(start)
}

// length is the place of a length that is to be written.
type length struct{ start, size int }

// open leaves room for the length of what follows, as it is for guess bytes.
func (e *encoder) open(guess int) length {
	l := length{len(e.out), 1}
	e.out = append(e.out, 0)
	for ; guess >= 1<<7; guess >>= 7 {
		e.out = append(e.out, 0)
		l.size++
	}
	return l
}

// close writes a length, and moves what follows when the room does not fit.
func (e *encoder) close(l length) { e.closeAhead(l, 0) }

// closeAhead is close where more bytes are still to follow.
func (e *encoder) closeAhead(l length, more int) {
	from := l.start + l.size
	n := len(e.out) - from
	if n+more < 1<<7 && l.size == 1 {
		e.out[l.start] = byte(n + more)
		return
	}
	if size := protowire.SizeVarint(uint64(n + more)); size != l.size {
		to := l.start + size
		for range size - l.size {
			e.out = append(e.out, 0)
		}
		copy(e.out[to:], e.out[from:from+n])
		e.out = e.out[:to+n]
	}
	protowire.AppendVarint(e.out[:l.start], uint64(n+more))
}

// Decoded is m itself, or a copy in which all is in messages and fields of their own, where the conversions of this
// package have left it in binary form. It is for those who read m by its fields.
func Decoded[M proto.Message](m M) (M, error) {
	if !holdsEncoded(m.ProtoReflect()) {
		return m, nil
	}
	out, ok := m.ProtoReflect().New().Interface().(M)
	if !ok {
		return m, fmt.Errorf("%T makes messages of another type", m)
	}
	wire, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(wire, out)
	}
	if err != nil {
		return m, fmt.Errorf("decode the documents of %T: %w", m, err)
	}
	return out, nil
}

// holdsEncoded looks for a message in binary form.
func holdsEncoded(m protoreflect.Message) (found bool) {
	switch m.Interface().(type) {
	case *structpb.Struct, *structpb.Value:
		return len(m.GetUnknown()) > 0
	case *pb.CallToolResponse:
		if len(m.GetUnknown()) > 0 {
			return true
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = holdsEncoded(v.Message())
					return !found
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = holdsEncoded(v.List().Get(i).Message())
			}
		default:
			found = holdsEncoded(v.Message())
		}
		return !found
	})
	return found
}

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// checkJSON walks a JSON message beside its descriptor and returns the first
// thing that protojson would drop, change or describe badly.
func checkJSON(data []byte, message protoreflect.MessageDescriptor) error {
	c := &jsonChecker{dec: jsontext.NewDecoder(bytes.NewReader(data))}
	if err := c.message(message); err != nil {
		return err
	}
	if _, err := c.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &jsonError{description: "the JSON object is followed by more text; send one object"}
	}
	return nil
}

// jsonChecker is one walk. path leads to the value that is being read.
type jsonChecker struct {
	dec  *jsontext.Decoder
	path []string
}

func (c *jsonChecker) fail(format string, args ...any) error {
	return &jsonError{field: strings.TrimPrefix(strings.Join(c.path, ""), "."), description: fmt.Sprintf(format, args...)}
}

// maxJSONDepth is how many levels a jsontext.Decoder enters, and protojson
// with its usual limit.
const maxJSONDepth = 10_000

// token reads the next token; a syntax error is blamed on its place.
func (c *jsonChecker) token() (jsontext.Token, error) {
	token, err := c.dec.ReadToken()
	if err == nil {
		return token, nil
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return token, c.fail("a member is given twice in one object (near byte %d)", c.dec.InputOffset())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return token, &jsonError{description: "the JSON ends too early"}
	}
	if c.dec.StackDepth() >= maxJSONDepth {
		return token, &jsonError{description: fmt.Sprintf("the JSON is nested deeper than %d levels; make it flatter", maxJSONDepth)}
	}
	return token, &jsonError{description: fmt.Sprintf("the request is not valid JSON (near byte %d)", c.dec.InputOffset())}
}

// at runs check one step deeper.
func (c *jsonChecker) at(step string, check func() error) error {
	c.path = append(c.path, step)
	err := check()
	c.path = c.path[:len(c.path)-1]
	return err
}

// object reads an object and calls member for each name; member consumes the
// value.
func (c *jsonChecker) object(member func(name string) error) error {
	if kind := c.dec.PeekKind(); kind != '{' {
		return c.unexpected("a JSON object", kind)
	}
	if _, err := c.token(); err != nil {
		return err
	}
	for {
		token, err := c.token()
		if err != nil {
			return err
		}
		if token.Kind() == '}' {
			return nil
		}
		name := token.String()
		if err := c.at("."+name, func() error { return member(name) }); err != nil {
			return err
		}
	}
}

// array reads an array and calls item for each element.
func (c *jsonChecker) array(item func() error) error {
	if kind := c.dec.PeekKind(); kind != '[' {
		return c.unexpected("a JSON array", kind)
	}
	if _, err := c.token(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if c.dec.PeekKind() == ']' {
			_, err := c.token()
			return err
		}
		if err := c.at("["+strconv.Itoa(i)+"]", item); err != nil {
			return err
		}
	}
}

// unexpected reads the token that does not belong, so that broken JSON is
// called that.
func (c *jsonChecker) unexpected(want string, got jsontext.Kind) error {
	if got == '{' || got == '[' || got == 0 {
		if _, err := c.token(); err != nil {
			return err
		}
	} else if err := c.skip(); err != nil {
		return err
	}
	return c.fail("must be %s, got %s", want, kindName(got))
}

func (c *jsonChecker) skip() error {
	if c.dec.PeekKind() == '{' || c.dec.PeekKind() == '[' {
		return c.anything("")
	}
	_, err := c.token()
	return err
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "something else"
}

// message reads one message; null has been dealt with.
func (c *jsonChecker) message(message protoreflect.MessageDescriptor) error {
	switch message.FullName() {
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return c.anything("a JSON string")
	}
	if message.ParentFile().Package() == "google.protobuf" {
		return c.anything("") // other well-known types have JSON forms of their own; protojson checks them
	}
	return c.object(func(name string) error {
		field := fieldByName(message, name)
		if field == nil {
			return c.fail("%s has no such field; it has %s", message.FullName(), fieldNames(message))
		}
		return c.field(field)
	})
}

// field reads the value of one field: single, list or map.
func (c *jsonChecker) field(field protoreflect.FieldDescriptor) error {
	if c.dec.PeekKind() == 'n' && !holdsNull(field) {
		_, err := c.token()
		return err
	}
	switch {
	case field.IsMap():
		return c.object(func(string) error { return c.single(field.MapValue(), field) })
	case field.IsList():
		return c.array(func() error { return c.single(field, field) })
	}
	return c.single(field, field)
}

// single reads one value; outer is the field of the message it is part of.
func (c *jsonChecker) single(field, outer protoreflect.FieldDescriptor) error {
	kind := c.dec.PeekKind()
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		switch field.Message().FullName() {
		case "google.protobuf.Struct":
			if kind != '{' {
				return c.unexpected("a JSON object", kind)
			}
			return c.anything(exactSibling(outer))
		case "google.protobuf.Value", "google.protobuf.ListValue":
			return c.anything(exactSibling(outer))
		}
		return c.message(field.Message())
	case protoreflect.StringKind, protoreflect.BytesKind:
		if kind != '"' {
			return c.unexpected("a JSON string", kind)
		}
	case protoreflect.BoolKind:
		if kind != 't' && kind != 'f' {
			return c.unexpected("true or false", kind)
		}
	case protoreflect.EnumKind:
		if kind == '"' {
			token, err := c.token()
			if err == nil && field.Enum().Values().ByName(protoreflect.Name(token.String())) == nil {
				err = c.fail("%q is not one of %s", cut(token.String(), 64), valueNames(field.Enum()))
			}
			return err
		}
		fallthrough
	default:
		if kind != '"' && kind != '0' {
			return c.unexpected("a number", kind)
		}
	}
	_, err := c.token()
	return err
}

// anything reads any JSON value. With a non-empty exact it refuses numbers
// that a double does not keep, naming what to use instead.
func (c *jsonChecker) anything(exact string) error {
	switch c.dec.PeekKind() {
	case '{':
		return c.object(func(string) error { return c.anything(exact) })
	case '[':
		return c.array(func() error { return c.anything(exact) })
	}
	token, err := c.token()
	if err == nil && exact != "" && token.Kind() == '0' && !convert.SurvivesDouble([]byte(token.String())) {
		return c.fail("the number %s does not fit a double exactly; use %s instead", cut(token.String(), 40), exact)
	}
	return err
}

// exactSibling names where the exact JSON text of a document goes: the field
// of the same name with _json, as arguments has arguments_json.
func exactSibling(field protoreflect.FieldDescriptor) string {
	sibling := field.ContainingMessage().Fields().ByName(field.Name() + "_json")
	if sibling == nil {
		return "a JSON string for it"
	}
	return fmt.Sprintf("%s (%s in JSON), which passes every digit on,", sibling.Name(), sibling.JSONName())
}

// fieldByName finds a field by either of the names that protojson accepts.
func fieldByName(message protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := message.Fields().ByJSONName(name); field != nil {
		return field
	}
	return message.Fields().ByTextName(name)
}

// holdsNull reports whether null is a value of the field rather than its
// absence.
func holdsNull(field protoreflect.FieldDescriptor) bool {
	return field.Kind() == protoreflect.MessageKind && !field.IsList() && !field.IsMap() && field.Message().FullName() == "google.protobuf.Value"
}

func fieldNames(message protoreflect.MessageDescriptor) string {
	var names []string
	for i := range message.Fields().Len() {
		names = append(names, message.Fields().Get(i).JSONName())
	}
	if len(names) == 0 {
		return "none"
	}
	return cut(strings.Join(names, ", "), 180)
}

func valueNames(enum protoreflect.EnumDescriptor) string {
	var names []string
	for i := range enum.Values().Len() {
		names = append(names, string(enum.Values().Get(i).Name()))
	}
	return cut(strings.Join(names, ", "), 180)
}

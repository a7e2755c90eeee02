package mcpclient

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// lenient reads what servers send: duplicate names are theirs to answer for
// (the last one wins), and broken UTF-8 must not fail a whole reply.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// eachMember calls visit for every member of a JSON object, in order. The
// values alias object.
func eachMember(object jsontext.Value, visit func(key string, value jsontext.Value) error) error {
	return eachMemberOf(object, rawjson.Index{}, func(name []byte, value jsontext.Value) error {
		return visit(string(name), value)
	})
}

// eachMemberOf is eachMember for an object of which some is known; visit must
// not keep name.
func eachMemberOf(object jsontext.Value, known rawjson.Index, visit func(name []byte, value jsontext.Value) error) error {
	s := rawjson.New(object, known)
	if kind := s.Kind(); kind != '{' && kind != 0 {
		return errNotObject(kind)
	}
	s.Enter()
	for first := true; ; first = false {
		quoted, ok := s.Member(first)
		if !ok {
			break
		}
		value := s.Value()
		if s.Err() != nil {
			break
		}
		if err := visit(rawjson.Name(quoted), value); err != nil {
			return err
		}
	}
	return readError(&s)
}

// eachElement calls visit for every element of a JSON array, in order. The
// values alias array.
func eachElement(array jsontext.Value, visit func(value jsontext.Value) error) error {
	s := rawjson.New(array, rawjson.Index{})
	if kind := s.Kind(); kind != '[' && kind != 0 {
		return fmt.Errorf("expected a JSON array, got %s", kind)
	}
	s.Enter()
	for first := true; s.Element(first); first = false {
		value := s.Value()
		if s.Err() != nil {
			break
		}
		if err := visit(value); err != nil {
			return err
		}
	}
	return readError(&s)
}

func readError(s *rawjson.Scanner) error {
	if err := s.Err(); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	return nil
}

// unquote decodes a JSON string; ok is false for any other kind.
func unquote(raw jsontext.Value) (s string, ok bool) {
	if raw.Kind() != '"' {
		return "", false
	}
	s, _ = rawjson.Unquote(raw)
	return s, true
}

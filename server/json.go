package server

import (
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// members yields the members of a JSON object of a server; nothing when it is
// no object, and nothing further where it is broken.
func members(object jsontext.Value) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		s := rawjson.New(object, rawjson.Index{})
		if s.Kind() != '{' {
			return
		}
		s.Enter()
		for first := true; ; first = false {
			quoted, ok := s.Member(first)
			if !ok {
				return
			}
			name, _ := rawjson.Unquote(quoted)
			value := s.Value()
			if s.Err() != nil || !yield(name, value) {
				return
			}
		}
	}
}

// elements yields the elements of a JSON array, as members does.
func elements(array jsontext.Value) iter.Seq[jsontext.Value] {
	return func(yield func(jsontext.Value) bool) {
		s := rawjson.New(array, rawjson.Index{})
		if s.Kind() != '[' {
			return
		}
		s.Enter()
		for first := true; s.Element(first); first = false {
			value := s.Value()
			if s.Err() != nil || !yield(value) {
				return
			}
		}
	}
}

// memberOf is the member of that name; nil when there is none.
func memberOf(object jsontext.Value, name string) jsontext.Value {
	var found jsontext.Value
	for key, value := range members(object) {
		if key == name {
			found = value
		}
	}
	return found
}

// unquote decodes a JSON string; ok is false for any other kind.
func unquote(value jsontext.Value) (text string, ok bool) {
	if value.Kind() != '"' {
		return "", false
	}
	text, _ = rawjson.Unquote(value)
	return text, true
}

package server

import (
	"bytes"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// members yields the members of a JSON object of a server; nothing when it is
// no object, and nothing further where it is broken.
func members(object jsontext.Value) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		dec := lenient(object)
		if dec.PeekKind() != '{' {
			return
		}
		if _, err := dec.ReadToken(); err != nil {
			return
		}
		for dec.PeekKind() == '"' {
			name, err := dec.ReadToken()
			if err != nil {
				return
			}
			text := name.String()
			value, err := dec.ReadValue()
			if err != nil || !yield(text, value) {
				return
			}
		}
	}
}

// elements yields the elements of a JSON array, as members does.
func elements(array jsontext.Value) iter.Seq[jsontext.Value] {
	return func(yield func(jsontext.Value) bool) {
		dec := lenient(array)
		if dec.PeekKind() != '[' {
			return
		}
		if _, err := dec.ReadToken(); err != nil {
			return
		}
		for kind := dec.PeekKind(); kind != ']' && kind != 0; kind = dec.PeekKind() {
			value, err := dec.ReadValue()
			if err != nil || !yield(value) {
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
			found = bytes.Clone(value)
		}
	}
	return found
}

// unquote decodes a JSON string; ok is false for any other kind.
func unquote(value jsontext.Value) (text string, ok bool) {
	if value.Kind() != '"' {
		return "", false
	}
	raw, err := jsontext.AppendUnquote(nil, value)
	return string(raw), err == nil || len(raw) > 0
}

func lenient(value jsontext.Value) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

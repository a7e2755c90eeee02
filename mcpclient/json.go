package mcpclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// lenient reads what servers send: duplicate names are theirs to answer for
// (the last one wins), and broken UTF-8 must not fail a whole reply.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// reader walks one JSON document and hands out values that alias it.
type reader struct {
	data []byte
	dec  *jsontext.Decoder
}

func newReader(data []byte) *reader {
	return &reader{data: data, dec: jsontext.NewDecoder(bytes.NewBuffer(data), lenient...)}
}

// object reads one object and calls member for every name; member must
// consume the value.
func (r *reader) object(member func(key string) error) error {
	if kind := r.dec.PeekKind(); kind != '{' {
		if kind == 0 {
			_, err := r.dec.ReadToken()
			return fmt.Errorf("read JSON: %w", err)
		}
		return errNotObject(kind)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadToken()
		if err != nil {
			return fmt.Errorf("read JSON: %w", err)
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return err
}

// array reads one array and calls item for every element; item must consume
// the value.
func (r *reader) array(item func() error) error {
	if kind := r.dec.PeekKind(); kind != '[' {
		return fmt.Errorf("expected a JSON array, got %s", kind)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	for r.dec.PeekKind() != ']' {
		if err := item(); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return err
}

// value consumes one value and returns its bytes, which alias the document.
func (r *reader) value() (jsontext.Value, error) {
	start := r.dec.InputOffset()
	if err := r.dec.SkipValue(); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	raw := r.data[start:r.dec.InputOffset()]
	return jsontext.Value(bytes.TrimLeft(raw, ":, \t\r\n")), nil
}

// unquote decodes a JSON string; ok is false for any other kind.
func unquote(raw jsontext.Value) (s string, ok bool) {
	if raw.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil && len(b) == 0 {
		return "", false
	}
	return string(b), true
}

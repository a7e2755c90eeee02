package config

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// parseJSON reads one JSON document. It reports a problem and returns nil when
// the text is not one.
func parseJSON(data []byte, r *report) *node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	p := jsonParser{data: data, dec: jsontext.NewDecoder(bytes.NewReader(data))}
	n, err := p.value()
	if err == nil {
		if _, err = p.dec.ReadToken(); errors.Is(err, io.EOF) {
			return n
		}
		err = errors.New("there is more text after the end of the document")
	}
	text, offset := err.Error(), p.dec.InputOffset()
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		text, offset = e.Err.Error(), e.ByteOffset
		if e.Err == jsontext.ErrDuplicateName { //nolint:errorlint // documented as the bare value
			text = "the same key is given twice"
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		text = "the document ends too early"
	}
	r.addAt(p.place(offset), "", "not valid JSON: %s", strings.TrimPrefix(text, "jsontext: "))
	return nil
}

type jsonParser struct {
	data []byte
	dec  *jsontext.Decoder
}

// place turns a byte offset into a line and a column counted in characters.
func (p *jsonParser) place(offset int64) position {
	before := p.data[:min(max(offset, 0), int64(len(p.data)))]
	line := bytes.Count(before, []byte("\n"))
	return position{line: line + 1, column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1}
}

// next is the place of the token that comes next.
func (p *jsonParser) next() position {
	offset := p.dec.InputOffset()
	for offset < int64(len(p.data)) && strings.IndexByte(" \t\r\n,:", p.data[offset]) >= 0 {
		offset++
	}
	return p.place(offset)
}

func (p *jsonParser) value() (*node, error) {
	n := &node{at: p.next()}
	tok, err := p.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return n, nil
	case '{':
		n.kind = kindMap
		for p.dec.PeekKind() != '}' {
			f := field{at: p.next()}
			name, err := p.dec.ReadToken()
			if err != nil {
				return nil, err
			}
			f.name = name.String() // the token is only valid until the next read
			if f.value, err = p.value(); err != nil {
				return nil, err
			}
			n.fields = append(n.fields, f)
		}
		_, err = p.dec.ReadToken()
	case '[':
		n.kind = kindList
		for p.dec.PeekKind() != ']' {
			item, err := p.value()
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		_, err = p.dec.ReadToken()
	default:
		n.kind, n.text = kindScalar, tok.String()
	}
	return n, err
}

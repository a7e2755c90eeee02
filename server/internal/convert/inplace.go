package convert

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// responseInPlace writes the response of a result with one large part, a text or structured content in text form, into
// the memory of its JSON: what stands around the part there is longer than what protobuf needs. So a large result is
// held once. It is nil, and raw is as it was, for any other result and where there is no room.
func responseInPlace(raw []byte, known rawjson.Index, f Format) []byte {
	r := newReader(raw, known, f)
	if r.kind() != '{' {
		return nil
	}
	m, lists, structured := new(pb.ToolResult), 0, absent
	var text, document []byte
	at := 0 // of either
	extra := r.object(func(name []byte) bool {
		switch {
		case string(name) == "content":
			if lists++; lists > 1 || r.kind() != '[' {
				r.err = errNotPlain
			}
			if part, place := r.onlyText(); part != nil {
				text, at = part, place
			}
			return true
		case string(name) == "structuredContent":
			if f != pb.JsonFormat_JSON_FORMAT_TEXT || document != nil || r.scan.Ahead() < largeBytes {
				r.err = errNotPlain
				return true
			}
			at = r.offset()
			valid := false
			if document, valid = r.checked(); !valid {
				r.err = errNotPlain
			}
			return true
		}
		return r.resultMember(m, name, &structured)
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	if r.end() != nil || (text == nil) == (document == nil) {
		return nil
	}
	const tag = 1 + 5 // and a length, at most
	part, tags := len(document), 2*tag
	if text != nil {
		part, tags = len(text), 4*tag
	}
	rest, err := proto.Marshal(m)
	if err != nil || at < tags || len(rest) > len(raw)-at-part {
		return nil
	}
	if document != nil {
		w := inPlace{raw, at, at + part}
		w.wrap(tagResultStructuredJSON)
		w.add(rest)
		w.wrap(tagResponseResult)
		return raw[w.start:w.end]
	}
	w := inPlace{raw, at + 1, at + 1 + len(rawjson.UnquoteInPlace(text))}
	w.wrap(tagText)
	w.wrap(tagContentText)
	w.wrap(tagResultContent)
	w.add(rest)
	w.wrap(tagResponseResult)
	return raw[w.start:w.end]
}

// onlyText reads a list that is empty, or one text that is large.
func (r *reader) onlyText() (quoted []byte, at int) {
	r.enter()
	if !r.element(true) {
		return nil, 0
	}
	quoted, valid, at := r.plainText()
	if !valid || len(quoted) < largeBytes || r.element(false) {
		r.err = errNotPlain
	}
	return quoted, at
}

// inPlace is a message that grows inside of raw, from start to end.
type inPlace struct {
	raw        []byte
	start, end int
}

// wrap makes a field of what is there.
func (w *inPlace) wrap(tag byte) {
	size := uint64(w.end - w.start) //nolint:gosec // it is not negative
	w.start -= protowire.SizeVarint(size)
	protowire.AppendVarint(w.raw[w.start:w.start], size)
	w.start--
	w.raw[w.start] = tag
}

// add appends fields.
func (w *inPlace) add(fields []byte) { w.end += copy(w.raw[w.end:], fields) }

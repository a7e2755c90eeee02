package convert

import (
	"errors"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// errNotPlain ends reading a result that has more content than text.
var errNotPlain = errors.New("the content is not text alone")

// plainResponse writes the response of the usual result, whose content is text alone, in binary form: each text goes
// straight from its JSON into it, without messages in between. It is nil for any other result, which is to be read
// from its start, and so is one with a mistake.
func plainResponse(raw []byte, known rawjson.Index, f Format) []byte {
	const around = 64 // more than the tags and lengths around one text
	e := encoder{reader: newReader(raw, known, f), out: make([]byte, 0, len(raw)+around)}
	if e.kind() != '{' {
		return nil
	}
	e.out = append(e.out, tagResponseResult)
	result := e.open(len(raw))
	m, lists, structured := new(pb.ToolResult), 0, absent
	extra := e.object(func(name []byte) bool {
		if string(name) != "content" {
			return e.resultMember(m, name, &structured)
		}
		if lists++; lists > 1 || e.kind() != '[' {
			e.err = errNotPlain
			return true
		}
		e.texts()
		return true
	})
	e.extraFields(extra, &m.Extra, &m.ExtraJson)
	if lists == 0 || e.end() != nil {
		return nil
	}
	if e.message(m); e.err != nil {
		return nil
	}
	e.close(result)
	return e.out
}

// texts writes a list of content that is text alone.
func (e *encoder) texts() {
	e.enter()
	for first := true; e.element(first); first = false {
		text, valid, _ := e.plainText()
		if e.err != nil {
			return
		}
		size := len(text) - len(`""`)
		e.out = append(e.out, tagResultContent)
		content := e.open(size)
		e.out = append(e.out, tagContentText)
		inner := e.open(size)
		if size > 0 { // protobuf leaves out what is empty
			e.out = append(e.out, tagText)
			length := e.open(size)
			e.out, _ = rawjson.AppendUnquote(e.out, text, valid)
			e.close(length)
		}
		e.close(inner)
		e.close(content)
	}
}

// plainText reads {"type":"text","text":"…"}, as nearly all servers write it, and returns the text as it is quoted, and
// where that begins.
func (r *reader) plainText() (quoted []byte, valid bool, at int) {
	if r.kind() != '{' {
		r.err = errNotPlain
		return nil, false, 0
	}
	r.enter()
	if name, _ := r.member(true); string(name) != `"type"` || string(r.value()) != `"text"` {
		r.err = errNotPlain
		return nil, false, 0
	}
	if name, _ := r.member(false); string(name) != `"text"` || r.kind() != '"' {
		r.err = errNotPlain
		return nil, false, 0
	}
	at = r.offset()
	quoted, valid = r.checked()
	if _, more := r.member(false); more {
		r.err = errNotPlain
	}
	return quoted, valid, at
}

package convert

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// A result with large strings is written in protobuf's binary form by hand, each string straight from its JSON. As a
// field it would be copied once more, checked for UTF-8 once more, and held beside both its JSON and what is sent.

// largeBytes is how much JSON makes a string large.
const largeBytes = 32 << 10

// Tags of the messages that hold large strings.
const (
	tagResponseResult       = 1<<3 | 2 // CallToolResponse.result
	tagResultContent        = 1<<3 | 2 // ToolResult.content
	tagResultStructuredJSON = 3<<3 | 2 // ToolResult.structured_content_json
	tagContentText          = 1<<3 | 2 // Content.text
	tagText                 = 1<<3 | 2 // TextContent.text
)

// largeParts are the strings of a tool result that stay JSON until the response is written; their fields are not set.
type largeParts struct {
	texts      map[*pb.TextContent]largeText
	structured []byte // is valid UTF-8
}

type largeText struct {
	quoted []byte
	utf8   bool // see [rawjson.Scanner.Checked]
	size   int  // of the text, at most
}

// ToolResponse converts an MCP `CallToolResult` of which some is known to the response that holds it. If it is text
// alone or has large strings, the response is in binary form, see [Decoded]; it may use the memory of raw, which is
// lost with it.
func ToolResponse(raw []byte, known rawjson.Index, f Format) (*pb.CallToolResponse, error) {
	usual := plainResponse
	if len(raw) >= largeBytes {
		usual = responseInPlace
	}
	if wire := usual(raw, known, f); wire != nil {
		return encoded(wire), nil
	}
	return convertKnown(raw, known, f, "tool result", func(r *reader) *pb.CallToolResponse {
		if len(raw) >= largeBytes {
			r.large = new(largeParts)
		}
		m := r.completeToolResult()
		if r.err != nil || r.large == nil || len(r.large.texts) == 0 && r.large.structured == nil {
			return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: m}}
		}
		return encoded(r.encodeResponse(m))
	})
}

// encoded is a response in binary form.
func encoded(wire []byte) *pb.CallToolResponse {
	response := new(pb.CallToolResponse)
	response.ProtoReflect().SetUnknown(wire)
	return response
}

// largeTextField notes a text for later if it is large.
func (r *reader) largeTextField(m *pb.TextContent) bool {
	if r.large == nil || r.kind() != '"' || r.scan.Ahead() < largeBytes {
		fits := r.string(&m.Text)
		if fits && r.large != nil {
			delete(r.large.texts, m) // the last one counts
		}
		return fits
	}
	t := largeText{size: r.scan.Unquoted()}
	if t.quoted, t.utf8 = r.checked(); r.large.texts == nil {
		r.large.texts = make(map[*pb.TextContent]largeText)
	}
	m.Text, r.large.texts[m] = "", t
	return true
}

// structuredField reads the structured content, and notes it for later if it stays as it is.
func (r *reader) structuredField(m *pb.ToolResult) bool {
	if r.large == nil {
		return r.valueField(&m.StructuredContent, &m.StructuredContentJson)
	}
	r.large.structured = nil
	if r.format != pb.JsonFormat_JSON_FORMAT_TEXT || r.kind() == 0 || r.scan.Ahead() < largeBytes {
		return r.valueField(&m.StructuredContent, &m.StructuredContentJson)
	}
	text, utf8 := r.checked()
	if m.StructuredContentJson = nil; utf8 {
		r.large.structured = text
	} else {
		m.StructuredContentJson = validText(text, false)
	}
	return true
}

// encodeResponse writes the response that holds m, whose messages it takes apart.
func (r *reader) encodeResponse(m *pb.ToolResult) []byte {
	const around = 5 << 10 // more than tags and lengths around a text, and room to unquote its end in place
	size := around + proto.Size(m)
	for _, text := range r.large.texts {
		size += text.size + around
	}
	structured := r.large.structured
	e := encoder{reader: r, out: make([]byte, 0, size)}
	e.out = append(e.out, tagResponseResult)
	result := e.open(size + len(structured))
	for _, item := range m.GetContent() {
		e.out = append(e.out, tagResultContent)
		text, ok := r.large.texts[item.GetText()]
		if !ok {
			e.out = protowire.AppendVarint(e.out, uint64(proto.Size(item)))
			e.message(item)
			continue
		}
		content := e.open(text.size)
		item.Kind = nil
		e.message(item) // what is one of several stands last
		e.out = append(e.out, tagContentText)
		inner := e.open(text.size)
		e.out = append(e.out, tagText)
		length := e.open(text.size)
		e.out, _ = rawjson.AppendUnquote(e.out, text.quoted, text.utf8)
		e.close(length)
		e.close(inner)
		e.close(content)
	}
	m.Content = nil
	if structured == nil {
		e.message(m)
		e.close(result)
		return e.out
	}
	e.out = protowire.AppendVarint(append(e.out, tagResultStructuredJSON), uint64(len(structured)))
	rest := encoder{reader: r}
	rest.message(m)
	e.closeAhead(result, len(structured)+len(rest.out))
	return bytes.Join([][]byte{e.out, structured, rest.out}, nil) // unlike make, it clears nothing
}

// message writes the fields of m.
func (e *encoder) message(m proto.Message) {
	out, err := proto.MarshalOptions{}.MarshalAppend(e.out, m)
	if err != nil {
		e.err = err
		return
	}
	e.out = out
}

package convert

import (
	"bytes"
	"encoding/base64"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// MCP content types (2026-07-28 schema, ContentBlock).
const (
	typeText     = "text"
	typeImage    = "image"
	typeAudio    = "audio"
	typeLink     = "resource_link"
	typeResource = "resource"
)

// content reads one item of a content list, of any JSON kind; what it does not know it keeps whole.
func (r *reader) content() *pb.Content {
	start := r.offset()
	if r.kind() != '{' {
		return &pb.Content{Kind: &pb.Content_Unknown{Unknown: &pb.UnknownContent{ValueJson: validText(r.checked())}}}
	}
	typ := r.contentType()
	m, member := r.contentOf(typ)
	if m == nil {
		r.value()
		return r.unknownContent(typ, r.since(start))
	}
	broken := false // the data is no Base64
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "type":
			s, _, fits := r.text()
			return fits && s == typ
		case "annotations":
			return optional(r, &m.Annotations, (*reader).annotations)
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		fits, ok := member(name)
		broken = broken || !ok
		return fits
	})
	if broken {
		return r.unknownContent(typ, r.since(start))
	}
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

// contentType finds the type of the object that comes next, without consuming it; "" when it has none.
func (r *reader) contentType() (typ string) {
	if typ, ok := leadingType(r.src[r.offset():]); ok {
		return typ
	}
	ahead := *r
	ahead.enter()
	for first := true; ; first = false {
		name, ok := ahead.member(first)
		switch {
		case !ok:
			return ""
		case string(rawjson.Name(name)) == "type": // a second one does not count; it ends up in extra
			typ, _, _ = ahead.text()
			return typ
		}
		ahead.value()
	}
}

// leadingType is contentType for an object that begins with its type, as nearly all do. Whether the object is valid
// shows when it is read.
func leadingType(object []byte) (typ string, ok bool) {
	const space = " \t\r\n"
	rest, ok := bytes.CutPrefix(object, []byte{'{'})
	if !ok {
		return "", false
	}
	if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, space), []byte(`"type"`)); !ok {
		return "", false
	}
	if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, space), []byte{':'}); !ok {
		return "", false
	}
	rest = bytes.TrimLeft(rest, space)
	if len(rest) == 0 || rest[0] != '"' {
		return "", false
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 || bytes.IndexByte(rest[1:1+end], '\\') >= 0 {
		return "", false
	}
	typ, _ = rawjson.Unquote(rest[:end+2])
	return typ, true
}

// contentOf makes the message for a type and the function that reads its own members; nil for an unknown type. The
// function's ok is false when Base64 data does not decode.
func (r *reader) contentOf(typ string) (m *pb.Content, member func(name []byte) (fits, ok bool)) {
	switch typ {
	case typeText:
		text := new(pb.TextContent)
		return &pb.Content{Kind: &pb.Content_Text{Text: text}}, func(name []byte) (bool, bool) {
			return string(name) == "text" && r.largeTextField(text), true
		}
	case typeImage:
		image := new(pb.ImageContent)
		return &pb.Content{Kind: &pb.Content_Image{Image: image}}, func(name []byte) (bool, bool) {
			return r.mediaMember(name, &image.Data, &image.MimeType)
		}
	case typeAudio:
		audio := new(pb.AudioContent)
		return &pb.Content{Kind: &pb.Content_Audio{Audio: audio}}, func(name []byte) (bool, bool) {
			return r.mediaMember(name, &audio.Data, &audio.MimeType)
		}
	case typeLink:
		link := new(pb.ResourceLink)
		return &pb.Content{Kind: &pb.Content_ResourceLink{ResourceLink: link}}, func(name []byte) (bool, bool) {
			return r.linkMember(name, link), true
		}
	case typeResource:
		embedded := new(pb.EmbeddedResource)
		return &pb.Content{Kind: &pb.Content_Resource{Resource: embedded}}, func(name []byte) (bool, bool) {
			return string(name) == "resource" && optional(r, &embedded.Contents, (*reader).resourceContents), true
		}
	}
	return nil, nil
}

func (r *reader) mediaMember(name []byte, data *[]byte, mimeType *string) (fits, ok bool) {
	switch string(name) {
	case "data":
		fits = r.base64(data)
		return fits, fits
	case "mimeType":
		return r.string(mimeType), true
	}
	return false, true
}

func (r *reader) linkMember(name []byte, m *pb.ResourceLink) bool {
	switch string(name) {
	case "uri":
		return r.string(&m.Uri)
	case "name":
		return r.string(&m.Name)
	case "title":
		return r.optString(&m.Title)
	case "description":
		return r.optString(&m.Description)
	case "mimeType":
		return r.optString(&m.MimeType)
	case "size":
		return r.optInt(&m.Size)
	case "icons":
		return objects(r, &m.Icons, (*reader).icon)
	}
	return false
}

// unknownContent keeps a whole content object.
func (r *reader) unknownContent(typ string, object []byte) *pb.Content {
	m := &pb.UnknownContent{Type: typ}
	if r.err == nil {
		r.extraFields(object, &m.Value, &m.ValueJson)
	}
	return &pb.Content{Kind: &pb.Content_Unknown{Unknown: m}}
}

func (r *reader) resourceContents() *pb.ResourceContents {
	m := new(pb.ResourceContents)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "uri":
			return r.string(&m.Uri)
		case "mimeType":
			return r.optString(&m.MimeType)
		case "text":
			s, present, fits := r.text()
			switch {
			case !present || !fits:
				return fits
			case m.Data != nil:
				return false
			}
			m.Data = &pb.ResourceContents_Text{Text: s}
			return true
		case "blob":
			if r.kind() == 'n' {
				r.value()
				return true
			}
			if m.Data != nil {
				return false
			}
			var blob []byte
			if !r.base64(&blob) {
				return false
			}
			m.Data = &pb.ResourceContents_Blob{Blob: blob}
			return true
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

// base64 reads a string of Base64, with or without padding, in either alphabet.
func (r *reader) base64(dst *[]byte) bool {
	switch r.kind() {
	case 'n':
		r.value()
		*dst = nil
		return true
	case '"':
	default:
		return false
	}
	text := rawjson.Name(r.value())
	enc := base64.StdEncoding
	if bytes.ContainsAny(text, "-_") {
		enc = base64.URLEncoding
	}
	if !bytes.HasSuffix(text, []byte{'='}) {
		enc = enc.WithPadding(base64.NoPadding)
	}
	data, err := enc.AppendDecode(nil, text)
	if err != nil {
		return false
	}
	*dst = data
	return true
}

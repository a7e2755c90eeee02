package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// Resource converts an MCP `Resource`. The target is left empty.
func Resource(raw []byte, f Format) (*pb.Resource, error) {
	return convertObject(raw, f, "resource", (*reader).resource)
}

// ResourceTemplate converts an MCP `ResourceTemplate`. The target is left empty.
func ResourceTemplate(raw []byte, f Format) (*pb.ResourceTemplate, error) {
	return convertObject(raw, f, "resource template", (*reader).resourceTemplate)
}

// ReadResourceResult converts an MCP `ReadResourceResult`. A blob that is not Base64 stays in the extra field of its
// contents.
func ReadResourceResult(raw []byte, f Format) (*pb.ReadResourceResult, error) {
	return KnownReadResourceResult(raw, rawjson.Index{}, f)
}

// KnownReadResourceResult is [ReadResourceResult] for a result of which some is known.
func KnownReadResourceResult(raw []byte, known rawjson.Index, f Format) (*pb.ReadResourceResult, error) {
	return convertKnown(raw, known, f, "resource result", func(r *reader) *pb.ReadResourceResult {
		m, contents := r.readResourceResult()
		r.need(contents, "contents")
		return m
	})
}

func (r *reader) resource() *pb.Resource {
	m := new(pb.Resource)
	extra := r.object(func(name []byte) bool {
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
		case "annotations":
			return optional(r, &m.Annotations, (*reader).annotations)
		case "icons":
			return objects(r, &m.Icons, (*reader).icon)
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) resourceTemplate() *pb.ResourceTemplate {
	m := new(pb.ResourceTemplate)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "uriTemplate":
			return r.string(&m.UriTemplate)
		case "name":
			return r.string(&m.Name)
		case "title":
			return r.optString(&m.Title)
		case "description":
			return r.optString(&m.Description)
		case "mimeType":
			return r.optString(&m.MimeType)
		case "annotations":
			return optional(r, &m.Annotations, (*reader).annotations)
		case "icons":
			return objects(r, &m.Icons, (*reader).icon)
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) readResourceResult() (m *pb.ReadResourceResult, contents presence) {
	m = new(pb.ReadResourceResult)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "contents":
			r.note(&contents, '[')
			return objects(r, &m.Contents, (*reader).resourceContents)
		case "ttlMs":
			return r.optInt(&m.TtlMs)
		case "cacheScope":
			return enum(r, &m.CacheScope, cacheScopeOf)
		case "resultType":
			return r.resultType("complete")
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m, contents
}

func cacheScopeOf(s string) pb.CacheScope {
	switch s {
	case "public":
		return pb.CacheScope_CACHE_SCOPE_PUBLIC
	case "private":
		return pb.CacheScope_CACHE_SCOPE_PRIVATE
	}
	return pb.CacheScope_CACHE_SCOPE_UNSPECIFIED
}

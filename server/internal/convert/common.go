package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Implementation converts an MCP `Implementation`, such as serverInfo.
func Implementation(raw []byte, f Format) (*pb.Implementation, error) {
	return convertObject(raw, f, "implementation", (*reader).implementation)
}

func (r *reader) implementation() *pb.Implementation {
	m := new(pb.Implementation)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "name":
			return r.string(&m.Name)
		case "version":
			return r.string(&m.Version)
		case "title":
			return r.optString(&m.Title)
		case "description":
			return r.optString(&m.Description)
		case "websiteUrl":
			return r.optString(&m.WebsiteUrl)
		case "icons":
			return objects(r, &m.Icons, (*reader).icon)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) annotations() *pb.Annotations {
	m := new(pb.Annotations)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "audience":
			return list(r, &m.Audience, func() (role pb.Role, fits bool) {
				fits = enum(r, &role, roleOf)
				return role, fits
			})
		case "priority":
			return r.optDouble(&m.Priority)
		case "lastModified":
			return r.optString(&m.LastModified)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) icon() *pb.Icon {
	m := new(pb.Icon)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "src":
			return r.string(&m.Src)
		case "mimeType":
			return r.optString(&m.MimeType)
		case "sizes":
			return r.strings(&m.Sizes)
		case "theme":
			return r.optString(&m.Theme)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func roleOf(s string) pb.Role {
	switch s {
	case "user":
		return pb.Role_ROLE_USER
	case "assistant":
		return pb.Role_ROLE_ASSISTANT
	}
	return pb.Role_ROLE_UNSPECIFIED
}

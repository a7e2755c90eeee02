package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Prompt converts an MCP `Prompt`. The target is left empty.
func Prompt(raw []byte, f Format) (*pb.Prompt, error) {
	return convertObject(raw, f, "prompt", (*reader).prompt)
}

// GetPromptResult converts an MCP `GetPromptResult`.
func GetPromptResult(raw []byte, f Format) (*pb.GetPromptResult, error) {
	return convertObject(raw, f, "prompt result", func(r *reader) *pb.GetPromptResult {
		m, messages := r.getPromptResult()
		r.need(messages, "messages")
		return m
	})
}

func (r *reader) prompt() *pb.Prompt {
	m := new(pb.Prompt)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "name":
			return r.string(&m.Name)
		case "title":
			return r.optString(&m.Title)
		case "description":
			return r.optString(&m.Description)
		case "arguments":
			return objects(r, &m.Arguments, (*reader).promptArgument)
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

func (r *reader) promptArgument() *pb.PromptArgument {
	m := new(pb.PromptArgument)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "name":
			return r.string(&m.Name)
		case "title":
			return r.optString(&m.Title)
		case "description":
			return r.optString(&m.Description)
		case "required":
			return r.optBool(&m.Required)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) getPromptResult() (m *pb.GetPromptResult, messages presence) {
	m = new(pb.GetPromptResult)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "description":
			return r.optString(&m.Description)
		case "messages":
			r.note(&messages, '[')
			return objects(r, &m.Messages, (*reader).promptMessage)
		case "resultType":
			return r.resultType("complete")
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m, messages
}

func (r *reader) promptMessage() *pb.PromptMessage {
	m := new(pb.PromptMessage)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "role":
			return enum(r, &m.Role, roleOf)
		case "content":
			return optional(r, &m.Content, (*reader).content)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// ToolResult converts an MCP `CallToolResult`. A missing or null content is an empty list, and a missing resultType
// is "complete"; another resultType goes to extra with all that belongs to it.
func ToolResult(raw []byte, f Format) (*pb.ToolResult, error) {
	return convertObject(raw, f, "tool result", (*reader).toolResult)
}

func (r *reader) toolResult() *pb.ToolResult {
	m := new(pb.ToolResult)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "content":
			return list(r, &m.Content, func() (*pb.Content, bool) { return r.content(), true })
		case "structuredContent":
			return r.valueField(&m.StructuredContent, &m.StructuredContentJson)
		case "isError":
			return r.optBool(&m.IsError)
		case "resultType":
			return r.resultType("complete")
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

package convert

import pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"

// ToolResult converts an MCP `CallToolResult`. A missing or null content is an empty list if there is something else
// that answers the call: structuredContent or isError. A missing resultType is "complete"; another resultType goes to
// extra with all that belongs to it.
func ToolResult(raw []byte, f Format) (*pb.ToolResult, error) {
	return convertObject(raw, f, "tool result", (*reader).completeToolResult)
}

// completeToolResult reads a result that has to answer a call.
func (r *reader) completeToolResult() *pb.ToolResult {
	m, content, structured := r.toolResult()
	switch {
	case content == misfit:
		r.lacks("its content is not a list")
	case content == absent && structured == absent && !m.GetIsError():
		r.lacks("it has neither content nor structuredContent")
	}
	return m
}

// toolResult reads a result of any form.
func (r *reader) toolResult() (m *pb.ToolResult, content, structured presence) {
	m = new(pb.ToolResult)
	extra := r.object(func(name []byte) bool {
		if string(name) == "content" {
			r.note(&content, '[')
			return list(r, &m.Content, func() (*pb.Content, bool) { return r.content(), true })
		}
		return r.resultMember(m, name, &structured)
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m, content, structured
}

// resultMember reads a member that is not the content.
func (r *reader) resultMember(m *pb.ToolResult, name []byte, structured *presence) (fits bool) {
	switch string(name) {
	case "structuredContent":
		if *structured = present; r.kind() == 'n' {
			*structured = absent
		}
		return r.structuredField(m)
	case "isError":
		return r.optBool(&m.IsError)
	case "resultType":
		return r.resultType("complete")
	case "_meta":
		return r.structField(&m.Meta, &m.MetaJson)
	}
	return false
}

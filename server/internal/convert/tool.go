package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Tool converts an MCP `Tool`. The target is left empty.
func Tool(raw []byte, f Format) (*pb.Tool, error) {
	return convertObject(raw, f, "tool", (*reader).tool)
}

func (r *reader) tool() *pb.Tool {
	m := new(pb.Tool)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "name":
			return r.string(&m.Name)
		case "title":
			return r.optString(&m.Title)
		case "description":
			return r.optString(&m.Description)
		case "inputSchema":
			return r.structField(&m.InputSchema, &m.InputSchemaJson)
		case "outputSchema":
			return r.structField(&m.OutputSchema, &m.OutputSchemaJson)
		case "annotations":
			return optional(r, &m.Annotations, (*reader).toolAnnotations)
		case "icons":
			return objects(r, &m.Icons, (*reader).icon)
		case "execution":
			return r.structField(&m.Execution, &m.ExecutionJson)
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) toolAnnotations() *pb.ToolAnnotations {
	m := new(pb.ToolAnnotations)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "title":
			return r.optString(&m.Title)
		case "readOnlyHint":
			return r.optBool(&m.ReadOnlyHint)
		case "destructiveHint":
			return r.optBool(&m.DestructiveHint)
		case "idempotentHint":
			return r.optBool(&m.IdempotentHint)
		case "openWorldHint":
			return r.optBool(&m.OpenWorldHint)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

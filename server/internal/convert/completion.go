package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// CompleteResult converts an MCP `CompleteResult`.
func CompleteResult(raw []byte, f Format) (*pb.CompleteResponse, error) {
	return convertObject(raw, f, "completion result", (*reader).completeResult)
}

func (r *reader) completeResult() *pb.CompleteResponse {
	m := new(pb.CompleteResponse)
	var inner []byte // members of completion that have no field
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "completion":
			if r.kind() != '{' {
				return false
			}
			inner = r.completion(m)
			return true
		case "resultType":
			return r.resultType("complete")
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	if inner != nil {
		if extra != nil {
			extra = extra[:len(extra)-1] // reopen
		}
		extra = append(appendMember(extra, []byte(`"completion"`), inner), '}')
	}
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

func (r *reader) completion(m *pb.CompleteResponse) (extra []byte) {
	return r.object(func(name []byte) bool {
		switch string(name) {
		case "values":
			return r.strings(&m.Values)
		case "total":
			return r.optInt(&m.Total)
		case "hasMore":
			return r.optBool(&m.HasMore)
		}
		return false
	})
}

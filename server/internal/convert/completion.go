package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// CompleteResult converts an MCP `CompleteResult`. Missing or null values are an empty list, as servers send it that
// have nothing to suggest.
func CompleteResult(raw []byte, f Format) (*pb.CompleteResponse, error) {
	return convertObject(raw, f, "completion result", func(r *reader) *pb.CompleteResponse {
		m, completion, values := r.completeResult()
		switch {
		case completion == misfit:
			r.lacks("its completion is not an object")
		case completion == absent:
			r.lacks("it has no completion")
		case values == misfit:
			r.lacks("its completion.values is not a list")
		}
		return m
	})
}

func (r *reader) completeResult() (m *pb.CompleteResponse, completion, values presence) {
	m = new(pb.CompleteResponse)
	var inner []byte // members of completion that have no field
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "completion":
			if r.note(&completion, '{'); completion != present {
				return false
			}
			inner, values = r.completion(m)
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
	return m, completion, values
}

func (r *reader) completion(m *pb.CompleteResponse) (extra []byte, values presence) {
	extra = r.object(func(name []byte) bool {
		switch string(name) {
		case "values":
			r.note(&values, '[')
			return r.strings(&m.Values)
		case "total":
			return r.optInt(&m.Total)
		case "hasMore":
			return r.optBool(&m.HasMore)
		}
		return false
	})
	return extra, values
}

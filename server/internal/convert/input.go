package convert

import (
	"strings"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// InputRequired converts an MCP `InputRequiredResult` (2026-07-28 basic/patterns/mrtr).
func InputRequired(raw []byte, f Format) (*pb.InputRequired, error) {
	return convertObject(raw, f, "input_required result", func(r *reader) *pb.InputRequired {
		m := r.inputRequired()
		if len(m.GetInputRequests()) == 0 && m.RequestState == nil {
			r.lacks("it asks for input with neither inputRequests nor requestState")
		}
		return m
	})
}

func (r *reader) inputRequired() *pb.InputRequired {
	m := new(pb.InputRequired)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "inputRequests":
			return r.inputRequests(&m.InputRequests)
		case "requestState":
			return r.optString(&m.RequestState)
		case "resultType":
			return r.resultType("input_required")
		case "content":
			// Some servers send "content": null along, from the type they share with tool results.
			return r.kind() == 'n'
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

// inputRequests reads the map of questions as a list, in the server's order. Questions that are no objects are left
// out, and the map does not fit then.
func (r *reader) inputRequests(dst *[]*pb.InputRequest) bool {
	switch r.kind() {
	case 'n':
		r.value()
		*dst = nil
		return true
	case '{':
	default:
		return false
	}
	var out []*pb.InputRequest
	misfits := r.object(func(name []byte) bool {
		id := strings.ToValidUTF8(string(name), "\uFFFD")
		if r.kind() != '{' {
			return false
		}
		m := r.inputRequest()
		m.Id = id
		out = append(out, m)
		return true
	})
	*dst = out
	return misfits == nil
}

func (r *reader) inputRequest() *pb.InputRequest {
	m := new(pb.InputRequest)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "method":
			return r.string(&m.Method)
		case "params":
			return r.structField(&m.Params, &m.ParamsJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

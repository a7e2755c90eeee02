package convert

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Task converts a task of the extension io.modelcontextprotocol/tasks: a `CreateTaskResult` or the result of
// `tasks/get`.
func Task(raw []byte, f Format) (*pb.Task, error) {
	return convertObject(raw, f, "task", func(r *reader) *pb.Task {
		m := r.task()
		if m.GetTaskId() == "" {
			r.lacks("it is a task without taskId")
		}
		return m
	})
}

func (r *reader) task() *pb.Task {
	m := new(pb.Task)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "taskId":
			return r.string(&m.TaskId)
		case "status":
			return enum(r, &m.Status, taskStatusOf)
		case "statusMessage":
			return r.optString(&m.StatusMessage)
		case "createdAt":
			return r.optString(&m.CreatedAt)
		case "lastUpdatedAt":
			return r.optString(&m.LastUpdatedAt)
		case "ttlMs":
			return r.optInt(&m.TtlMs)
		case "pollIntervalMs":
			return r.optInt(&m.PollIntervalMs)
		case "inputRequests":
			return r.inputRequests(&m.InputRequests)
		case "result", "error":
			return r.taskOutcome(string(name), m)
		case "resultType":
			s, present, fits := r.text()
			return fits && (!present || s == "task" || s == "complete")
		case "_meta":
			return r.structField(&m.Meta, &m.MetaJson)
		}
		return false
	})
	r.extraFields(extra, &m.Extra, &m.ExtraJson)
	return m
}

// taskOutcome reads the result or error of a task. An outcome that does not fit whole stays in extra as well.
func (r *reader) taskOutcome(name string, m *pb.Task) bool {
	switch r.kind() {
	case 'n':
		r.value()
		return true
	case '{':
	default:
		return false
	}
	if m.Outcome != nil {
		return false
	}
	if name == "result" {
		result, _, _ := r.toolResult()
		m.Outcome = &pb.Task_ToolResult{ToolResult: result}
		return true
	}
	e, whole := r.jsonRPCError()
	m.Outcome = &pb.Task_Error{Error: e}
	return whole
}

// jsonRPCError reads a JSON-RPC error object; whole is false when it has members that have no field.
func (r *reader) jsonRPCError() (m *pb.JsonRpcError, whole bool) {
	m = new(pb.JsonRpcError)
	extra := r.object(func(name []byte) bool {
		switch string(name) {
		case "code":
			var code *int64
			fits := r.optInt(&code)
			if code != nil {
				m.Code = *code
			}
			return fits
		case "message":
			return r.string(&m.Message)
		case "data":
			m.DataJson = validText(r.checked())
			return true
		}
		return false
	})
	return m, extra == nil
}

func taskStatusOf(s string) pb.TaskStatus {
	switch s {
	case "working":
		return pb.TaskStatus_TASK_STATUS_WORKING
	case "input_required":
		return pb.TaskStatus_TASK_STATUS_INPUT_REQUIRED
	case "completed":
		return pb.TaskStatus_TASK_STATUS_COMPLETED
	case "failed":
		return pb.TaskStatus_TASK_STATUS_FAILED
	case "cancelled":
		return pb.TaskStatus_TASK_STATUS_CANCELLED
	}
	return pb.TaskStatus_TASK_STATUS_UNSPECIFIED
}

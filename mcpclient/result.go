package mcpclient

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// readResult checks the outer form of a result (2026-07-28 basic/index,
// ResultType). It reads the two members that decide and leaves the rest.
func (c *Client) readResult(call *Call, raw jsontext.Value, known rawjson.Index) (*Result, error) {
	result := &Result{Raw: raw, Known: known, Type: ResultComplete, Era: call.Era, ProtocolVersion: call.ProtocolVersion}
	malformed := func(text string, cause error) error {
		return &Error{Kind: KindProtocol, Method: call.Method, Name: call.Name, Message: text, Sent: true, Err: cause}
	}
	err := eachMemberOf(raw, known, func(name []byte, value jsontext.Value) error {
		switch string(name) {
		case "resultType":
			if call.Era != EraModern || value.Kind() == 'n' {
				return nil
			}
			text, ok := unquote(value)
			if !ok {
				return errors.New("resultType is not a string")
			}
			result.Type = text
		case "isError":
			result.IsError = call.Method == methodCallTool && value.Kind() == 't'
		}
		return nil
	})
	if err != nil {
		return nil, malformed("the server's result is malformed", err)
	}
	switch result.Type {
	case ResultComplete:
		return result, nil
	case ResultInputRequired:
		if call.Method == methodCallTool || call.Method == methodReadResource || call.Method == methodGetPrompt {
			return result, nil
		}
		return nil, malformed("the server asked for input on "+call.Method+", which the protocol does not allow", nil)
	case ResultTask:
		if c.offersTasks(call) || call.options != nil && declaresTasks(call.options.Capabilities) {
			return result, nil
		}
		return nil, malformed("the server answered with a task although the tasks extension was not declared", nil)
	}
	return nil, malformed(fmt.Sprintf("the server's result has the unknown resultType %.40q", result.Type), nil)
}

// TasksExtension is the identifier of the tasks extension in capabilities.
const TasksExtension = "io.modelcontextprotocol/tasks"

// offersTasks says whether a call declares the tasks extension on the client's
// own account, which then waits for the task's end.
func (c *Client) offersTasks(call *Call) bool {
	return call.Method == methodCallTool && call.Era == EraModern && !c.opts.Tasks.Disabled && call.session.server != nil && call.session.server.tasks
}

// logLevel is the level that a modern server is asked for with a request.
func (c *Client) logLevel(call *Call) LogLevel {
	if call.Era != EraModern || call.IsNotification() {
		return ""
	}
	if o := call.options; o != nil && o.LogLevel != "" {
		return o.LogLevel
	}
	return c.opts.LogLevel
}

// declaresTasks reports whether a ClientCapabilities object lists the tasks
// extension.
func declaresTasks(capabilities jsontext.Value) bool {
	declared := false
	if capabilities.Kind() != '{' {
		return false
	}
	_ = eachMember(capabilities, func(key string, value jsontext.Value) error {
		if key != "extensions" || value.Kind() != '{' {
			return nil
		}
		return eachMember(value, func(name string, _ jsontext.Value) error {
			declared = declared || name == TasksExtension
			return nil
		})
	})
	return declared
}

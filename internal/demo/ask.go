package demo

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// nameQuestion is the id of the question that ask_name has.
const nameQuestion = "name"

func addAskName(s *mcp.Server) {
	addTool(s, &mcp.Tool{
		Name:        "ask_name",
		Title:       "Ask for a name",
		Description: "Asks the caller for a name (elicitation) and greets it.",
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false}`),
		Annotations: readOnly(),
	}, askName)
}

// askName returns its question, which the SDK turns into a request of the server
// for clients of the older revisions (2026-07-28 client/elicitation).
func askName(_ context.Context, req *mcp.CallToolRequest, _ *struct{}) (*mcp.CallToolResult, error) {
	answer, ok := req.Params.InputResponses[nameQuestion].(*mcp.ElicitResult)
	if !ok {
		if !answersForms(req.ClientCapabilities()) {
			return nil, needsForms()
		}
		return &mcp.CallToolResult{RequestState: "asked for a name", InputRequests: mcp.InputRequestMap{nameQuestion: &mcp.ElicitParams{
			Mode:            "form",
			Message:         "What is your name?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","title":"Name"}},"required":["name"]}`),
		}}}, nil
	}
	if answer.Action != "accept" {
		return failure("the name was not given; the answer was %s", answer.Action), nil
	}
	name, ok := answer.Content["name"].(string)
	if !ok {
		return failure("the answer has no name"), nil
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + name + "!"}}}, nil
}

// answersForms reports whether a caller declared form elicitation. An empty
// declaration means forms (2026-07-28 client/elicitation, Capabilities).
func answersForms(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

func needsForms() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "ask_name asks for a name, and the client does not declare form elicitation",
		Data:    json.RawMessage(`{"requiredCapabilities":{"elicitation":{"form":{}}}}`), // the SDK's type adds roots
	}
}

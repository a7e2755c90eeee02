package demo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAskNameGreetsTheNameThatTheClientAnswers(t *testing.T) {
	for action, want := range map[string]string{"accept": "Hello, Ada!", "decline": "the answer was decline"} {
		c := connect(t, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if r.Params.Message != "What is your name?" {
				t.Errorf("the question is %q", r.Params.Message)
			}
			if action != "accept" {
				return &mcp.ElicitResult{Action: action}, nil
			}
			return &mcp.ElicitResult{Action: action, Content: map[string]any{"name": "Ada"}}, nil
		}})
		result := call(t, c, "ask_name", "{}")
		if got := textOf(t, result); !strings.Contains(got, want) || result.IsError != (action != "accept") {
			t.Errorf("%s: %q, error %v", action, got, result.IsError)
		}
	}
}

func TestAskNameNamesTheCapabilityThatItNeeds(t *testing.T) {
	_, err := connect(t, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "ask_name"})
	rpc, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || rpc.Code != mcp.CodeMissingRequiredClientCapabilities || string(rpc.Data) != `{"requiredCapabilities":{"elicitation":{"form":{}}}}` {
		t.Errorf("%v", err)
	}
}

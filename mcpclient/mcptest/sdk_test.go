package mcptest

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The fake must be a server that others' clients understand too.
func TestTheOfficialClientUnderstandsBothEras(t *testing.T) {
	for name, era := range map[string]Era{"modern": Modern, "legacy": Legacy, "dual": Dual} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Era: era, Instructions: "be kind", Tools: []Tool{{Name: "echo", Call: Echo()}, {Name: "b"}}, PageSize: 1,
				Resources: []Resource{{URI: "file:///a", Text: "content"}}, Prompts: []Prompt{{Name: "p"}}}
			url := StartHTTP(t, s)
			client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			for tool, err := range session.Tools(t.Context(), nil) {
				if err != nil || tool.InputSchema == nil {
					t.Fatalf("tools: %v", err)
				}
				count++
			}
			if count != 2 {
				t.Errorf("tools = %d, want 2", count)
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
			if err != nil || result.StructuredContent == nil {
				t.Errorf("call: %+v, %v", result, err)
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "none"}); err == nil || !strings.Contains(err.Error(), "Unknown tool") {
				t.Errorf("unknown tool: %v", err)
			}
			res, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "file:///a"})
			if err != nil || res.Contents[0].Text != "content" {
				t.Errorf("read: %+v, %v", res, err)
			}
			if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "p"}); err != nil {
				t.Errorf("prompt: %v", err)
			}
			if err := session.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			t.Logf("%v", s.Methods())
		})
	}
}

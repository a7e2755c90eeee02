package demo

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	greetingURI = "demo://greeting"
	greetPrefix = "demo://greet/"
)

func addResources(s *mcp.Server) {
	s.AddResource(&mcp.Resource{
		URI:         greetingURI,
		Name:        "greeting",
		Title:       "Greeting",
		Description: "A greeting to the world.",
		MIMEType:    "text/plain",
	}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return text(greetingURI, "Hello, world!"), nil
	})
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: greetPrefix + "{name}",
		Name:        "greet",
		Title:       "Greet",
		Description: "A greeting to someone by name.",
		MIMEType:    "text/plain",
	}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		escaped, ok := strings.CutPrefix(req.Params.URI, greetPrefix)
		name, err := url.PathUnescape(escaped)
		if !ok || err != nil || name == "" {
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		}
		return text(req.Params.URI, "Hello, "+name+"!"), nil
	})
	s.AddPrompt(&mcp.Prompt{
		Name:        "poem",
		Title:       "Poem",
		Description: "Asks for a short poem.",
		Arguments: []*mcp.PromptArgument{
			{Name: "topic", Title: "Topic", Description: "What the poem is about", Required: true},
			{Name: "style", Title: "Style", Description: "The kind of poem; free verse when it is left out"},
		},
	}, poem)
}

func text(uri, content string) *mcp.ReadResourceResult {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: content}}}
}

func poem(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	topic, style := req.Params.Arguments["topic"], req.Params.Arguments["style"]
	if topic == "" {
		return nil, invalidParams("the prompt poem needs the argument topic")
	}
	if style == "" {
		style = "free verse"
	}
	return &mcp.GetPromptResult{
		Description: "A short poem about " + topic,
		Messages: []*mcp.PromptMessage{{
			Role:    "user",
			Content: &mcp.TextContent{Text: fmt.Sprintf("Write a short poem about %s, in the style of %s.", topic, style)},
		}},
	}, nil
}

// complete proposes styles for the prompt and names for the template. Other
// arguments have no proposals.
func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	var known []string
	switch ref, argument := req.Params.Ref, req.Params.Argument.Name; {
	case ref == nil:
		return nil, invalidParams("a completion needs a ref")
	case ref.Type == "ref/prompt" && ref.Name == "poem" && argument == "style":
		known = []string{"ballad", "free verse", "haiku", "limerick", "sonnet"}
	case ref.Type == "ref/prompt" && ref.Name == "poem" && argument == "topic":
		known = []string{"autumn", "mountains", "rain", "the sea"}
	case ref.Type == "ref/resource" && ref.URI == greetPrefix+"{name}" && argument == "name":
		known = []string{"Ada", "Alan", "Grace", "Jörg"}
	}
	prefix := strings.ToLower(req.Params.Argument.Value)
	values := []string{}
	for _, k := range known {
		if strings.HasPrefix(strings.ToLower(k), prefix) {
			values = append(values, k)
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}

// invalidParams returns a JSON-RPC error -32602.
func invalidParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

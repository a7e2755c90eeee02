package server

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// MCP methods that the bridge has to know of.
const (
	methodCallTool     = "tools/call"
	methodGetPrompt    = "prompts/get"
	methodReadResource = "resources/read"
	methodGetTask      = "tasks/get"
	methodElicit       = "elicitation/create"
	methodSample       = "sampling/createMessage"
	methodRoots        = "roots/list"
)

// toolsService is mcpbridge.v1.ToolsService (2026-07-28 server/tools).
type toolsService struct{ *caller }

func listTools() lister {
	return lister{kind: 't', method: "tools/list", fetch: (*mcpclient.Client).ListTools}
}

// ListTools lists tools of one target or of all.
func (s toolsService) ListTools(ctx context.Context, req *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	page, err := s.list(ctx, listTools(), req)
	if err != nil {
		return nil, err
	}
	res := &pb.ListToolsResponse{NextPageToken: page.next, Unreachable: page.unreachable}
	res.Tools = convertItems(ctx, s.caller, listTools(), page, req.GetJsonFormat(), convert.Tool, func(t *pb.Tool, target string) { t.Target = target })
	for _, part := range page.lists {
		if part.list == nil {
			continue
		}
		for _, tool := range part.list.Excluded {
			res.Excluded = append(res.Excluded, &pb.ExcludedTool{Target: part.target, Name: cut(tool.Name, 512), Reason: cut(tool.Reason, 512)})
		}
	}
	return res, nil
}

// CallTool calls a tool. The name goes to the server as it is.
func (s toolsService) CallTool(ctx context.Context, req *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	about := scope{method: methodCallTool, name: req.GetName(), target: req.GetTarget()}
	call, err := readToolCall(req, about)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	result, err := s.run(ctx, req.GetTarget(), &about, call.upstream())
	if err != nil {
		return nil, err
	}
	return call.response(about, result)
}

// toolCall is a checked CallToolRequest.
type toolCall struct {
	name      string
	arguments jsontext.Value
	options   *mcpclient.CallOptions
	visits    bool // the caller declares that it visits URLs
	format    pb.JsonFormat
}

// readToolCall checks a request, whose fields are those of about.
func readToolCall(req *pb.CallToolRequest, about scope) (*toolCall, error) {
	if req.GetName() == "" {
		return nil, refuseField(reasonInvalidParams, about.path+"name", "is empty; give the tool's name as ListTools returns it")
	}
	arguments, err := convert.Arguments(req.GetArguments(), req.ArgumentsJson, "arguments")
	if err != nil {
		return nil, err
	}
	options, err := callOptions(req, req.RequestState)
	if err != nil {
		return nil, err
	}
	return &toolCall{
		name: req.GetName(), arguments: arguments, options: options, format: req.GetJsonFormat(),
		visits: req.GetClientCapabilities().GetElicitation().GetUrl(),
	}, nil
}

func (t *toolCall) upstream() upstream {
	return upstream{
		look: lookup{reasonToolNotFound, (*mcpclient.Client).KnowsTool}, visits: t.visits,
		send: func(ctx context.Context, c *mcpclient.Client) (*mcpclient.Result, error) {
			return c.CallTool(ctx, t.name, t.arguments, t.options)
		},
	}
}

// response is how the call ended; the error is the RPC's.
func (t *toolCall) response(about scope, result *mcpclient.Result) (*pb.CallToolResponse, error) {
	out, err := outcomeOf(about, result, t.format, func(raw []byte, f convert.Format) (*pb.CallToolResponse, error) {
		return convert.ToolResponse(raw, result.Known, f)
	})
	switch {
	case err != nil:
		return nil, err
	case out.input != nil:
		return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_InputRequired{InputRequired: out.input}}, nil
	case out.task != nil:
		return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Task{Task: out.task}}, nil
	}
	return out.result, nil
}

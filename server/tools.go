package server

import (
	"context"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
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
	about := scope{method: "tools/call", name: req.GetName(), target: req.GetTarget()}
	if req.GetName() == "" {
		return nil, about.fail(ctx, refuseField(reasonInvalidParams, "name", "is empty; give the tool's name as ListTools returns it"))
	}
	arguments, err := convert.Arguments(req.GetArguments(), req.ArgumentsJson, "arguments")
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	options, err := callOptions(req, req.RequestState)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	look := lookup{reasonToolNotFound, (*mcpclient.Client).KnowsTool}
	result, err := s.run(ctx, req.GetTarget(), &about, look, func(c *mcpclient.Client) (*mcpclient.Result, error) {
		return c.CallTool(ctx, req.GetName(), arguments, options)
	})
	if err != nil {
		return nil, err
	}
	res := &pb.CallToolResponse{}
	switch result.Type {
	case mcpclient.ResultComplete:
		outcome, convertErr := convert.ToolResult(result.Raw, req.GetJsonFormat())
		res.Outcome, err = &pb.CallToolResponse_Result{Result: outcome}, convertErr
	case mcpclient.ResultInputRequired:
		outcome, convertErr := convert.InputRequired(result.Raw, req.GetJsonFormat())
		res.Outcome, err = &pb.CallToolResponse_InputRequired{InputRequired: outcome}, convertErr
	case mcpclient.ResultTask:
		outcome, convertErr := convert.Task(result.Raw, req.GetJsonFormat())
		res.Outcome, err = &pb.CallToolResponse_Task{Task: outcome}, convertErr
	default:
		return nil, about.build(about.unexpectedType(result))
	}
	if err != nil {
		return nil, about.build(about.badReply(err))
	}
	return res, nil
}

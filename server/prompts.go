package server

import (
	"context"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// promptsService is mcpbridge.v1.PromptsService (2026-07-28 server/prompts).
type promptsService struct{ *caller }

func listPrompts() lister {
	return lister{kind: 'p', method: "prompts/list", fetch: (*mcpclient.Client).ListPrompts}
}

// ListPrompts lists prompts of one target or of all.
func (s promptsService) ListPrompts(ctx context.Context, req *pb.ListPromptsRequest) (*pb.ListPromptsResponse, error) {
	page, err := s.list(ctx, listPrompts(), req)
	if err != nil {
		return nil, err
	}
	res := &pb.ListPromptsResponse{NextPageToken: page.next, Unreachable: page.unreachable}
	res.Prompts = convertItems(ctx, s.caller, listPrompts(), page, req.GetJsonFormat(), convert.Prompt, func(p *pb.Prompt, target string) { p.Target = target })
	return res, nil
}

// GetPrompt renders one prompt.
func (s promptsService) GetPrompt(ctx context.Context, req *pb.GetPromptRequest) (*pb.GetPromptResponse, error) {
	about := scope{method: methodGetPrompt, name: req.GetName(), target: req.GetTarget()}
	if req.GetName() == "" {
		return nil, about.fail(ctx, refuseField(reasonInvalidParams, "name", "is empty; give the prompt's name as ListPrompts returns it"))
	}
	options, err := callOptions(req, req.RequestState)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	result, err := s.run(ctx, req.GetTarget(), &about, upstream{
		look:   lookup{reasonPromptNotFound, (*mcpclient.Client).KnowsPrompt},
		visits: req.GetClientCapabilities().GetElicitation().GetUrl(),
		send: func(ctx context.Context, c *mcpclient.Client) (*mcpclient.Result, error) {
			return c.GetPrompt(ctx, req.GetName(), req.GetArguments(), options)
		},
	})
	if err != nil {
		return nil, err
	}
	out, err := outcomeOf(about, result, req.GetJsonFormat(), convert.GetPromptResult)
	if err != nil {
		return nil, err
	}
	if out.input != nil || continues(options) {
		doNotStore(ctx)
	}
	if out.input != nil {
		return &pb.GetPromptResponse{Outcome: &pb.GetPromptResponse_InputRequired{InputRequired: out.input}}, nil
	}
	return &pb.GetPromptResponse{Outcome: &pb.GetPromptResponse_Result{Result: out.result}}, nil
}

package server

import (
	"context"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// completionService is mcpbridge.v1.CompletionService (2026-07-28
// server/utilities/completion).
type completionService struct{ *caller }

// Complete suggests values for one argument.
func (s completionService) Complete(ctx context.Context, req *pb.CompleteRequest) (*pb.CompleteResponse, error) {
	about := scope{method: "completion/complete", target: req.GetTarget()}
	params := mcpclient.CompleteParams{Argument: req.GetArgumentName(), Value: req.GetArgumentValue(), Context: req.GetContext()}
	var look lookup
	switch ref := req.GetRef().(type) {
	case *pb.CompleteRequest_Prompt:
		params.Prompt, about.name = ref.Prompt, ref.Prompt
		look = lookup{reasonPromptNotFound, (*mcpclient.Client).KnowsPrompt}
	case *pb.CompleteRequest_Resource:
		params.ResourceTemplate, about.name = ref.Resource, ref.Resource
		look = lookup{reasonResourceNotFound, (*mcpclient.Client).KnowsResource}
	}
	switch {
	case about.name == "":
		return nil, about.fail(ctx, refuseField(reasonInvalidParams, "prompt", "neither prompt nor resource is set; set the one whose argument is to be completed"))
	case params.Argument == "":
		return nil, about.fail(ctx, refuseField(reasonInvalidParams, "argument_name", "is empty; give the name of the argument to complete"))
	}
	meta, err := convert.Meta(req.GetMeta(), "meta")
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	result, err := s.run(ctx, req.GetTarget(), &about, upstream{look: look, send: func(ctx context.Context, c *mcpclient.Client) (*mcpclient.Result, error) {
		return c.Complete(ctx, params, &mcpclient.CallOptions{Meta: meta})
	}})
	if err != nil {
		return nil, err
	}
	out, err := outcomeOf(about, result, req.GetJsonFormat(), convert.CompleteResult)
	if err != nil {
		return nil, err
	}
	return out.result, nil
}

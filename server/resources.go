package server

import (
	"context"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// resourcesService is mcpbridge.v1.ResourcesService (2026-07-28
// server/resources).
type resourcesService struct{ *caller }

func listResources() lister {
	return lister{kind: 'r', method: "resources/list", fetch: (*mcpclient.Client).ListResources}
}

func listTemplates() lister {
	return lister{kind: 'm', method: "resources/templates/list", fetch: (*mcpclient.Client).ListResourceTemplates}
}

// ListResources lists resources of one target or of all.
func (s resourcesService) ListResources(ctx context.Context, req *pb.ListResourcesRequest) (*pb.ListResourcesResponse, error) {
	page, err := s.list(ctx, listResources(), req)
	if err != nil {
		return nil, err
	}
	res := &pb.ListResourcesResponse{NextPageToken: page.next, Unreachable: page.unreachable}
	res.Resources = convertItems(ctx, s.caller, listResources(), page, req.GetJsonFormat(), convert.Resource, func(r *pb.Resource, target string) { r.Target = target })
	return res, nil
}

// ListResourceTemplates lists resource templates of one target or of all.
func (s resourcesService) ListResourceTemplates(ctx context.Context, req *pb.ListResourceTemplatesRequest) (*pb.ListResourceTemplatesResponse, error) {
	page, err := s.list(ctx, listTemplates(), req)
	if err != nil {
		return nil, err
	}
	res := &pb.ListResourceTemplatesResponse{NextPageToken: page.next, Unreachable: page.unreachable}
	res.ResourceTemplates = convertItems(ctx, s.caller, listTemplates(), page, req.GetJsonFormat(), convert.ResourceTemplate, func(t *pb.ResourceTemplate, target string) { t.Target = target })
	return res, nil
}

// ReadResource reads one resource.
func (s resourcesService) ReadResource(ctx context.Context, req *pb.ReadResourceRequest) (*pb.ReadResourceResponse, error) {
	about := scope{method: methodReadResource, name: req.GetUri(), target: req.GetTarget()}
	if req.GetUri() == "" {
		return nil, about.fail(ctx, refuseField(reasonInvalidParams, "uri", "is empty; give a URI as ListResources returns it, or one made from a template"))
	}
	options, err := callOptions(req, req.RequestState)
	if err != nil {
		return nil, about.fail(ctx, err)
	}
	result, err := s.run(ctx, req.GetTarget(), &about, upstream{
		look:   lookup{reasonResourceNotFound, (*mcpclient.Client).KnowsResource},
		visits: req.GetClientCapabilities().GetElicitation().GetUrl(),
		send: func(ctx context.Context, c *mcpclient.Client) (*mcpclient.Result, error) {
			return c.ReadResource(ctx, req.GetUri(), options)
		},
	})
	if err != nil {
		return nil, err
	}
	out, err := outcomeOf(about, result, req.GetJsonFormat(), func(raw []byte, f convert.Format) (*pb.ReadResourceResult, error) {
		return convert.KnownReadResourceResult(raw, result.Known, f)
	})
	if err != nil {
		return nil, err
	}
	if out.input != nil {
		doNotStore(ctx)
		return &pb.ReadResourceResponse{Outcome: &pb.ReadResourceResponse_InputRequired{InputRequired: out.input}}, nil
	}
	if continues(options) {
		doNotStore(ctx)
	} else {
		fresh := readFreshness(out.result)
		fresh.private = fresh.private || about.isolated
		cacheFor(ctx, fresh)
	}
	return &pb.ReadResourceResponse{Outcome: &pb.ReadResourceResponse_Result{Result: out.result}}, nil
}

// readFreshness is a result's ttlMs and cacheScope; anything but public is
// private.
func readFreshness(r *pb.ReadResourceResult) freshness {
	if r == nil || r.TtlMs == nil {
		return freshness{}
	}
	const longest = int64(maxAge) * 1000
	ttl := time.Duration(min(r.GetTtlMs(), longest)) * time.Millisecond
	return freshness{ttl: ttl, private: r.GetCacheScope() != pb.CacheScope_CACHE_SCOPE_PUBLIC, set: true}
}

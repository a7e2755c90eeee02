package server

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

const (
	// maxWatchedURIs bounds the resources of one watch, maxURIBytes each of them.
	maxWatchedURIs = 1000
	maxURIBytes    = targets.MaxURIBytes
)

// watch is one stream of changes (2026-07-28 basic/patterns/subscriptions;
// 2025-11-25 server/resources, Subscriptions).
type watch[R any] struct {
	about    scope
	interest targets.Interest
	event    func(watchEvent) *R
	send     func(*R) error
}

// watchEvent is one event; exactly one field is set.
type watchEvent struct {
	ready     *pb.WatchReady
	list      *pb.ListChanged
	updated   *pb.ResourceUpdated
	resync    *pb.Resync
	keepAlive *pb.KeepAlive
}

// WatchTools tells when a target's tools change.
func (s toolsService) WatchTools(ctx context.Context, req *pb.WatchToolsRequest, stream mcpbridgev1connect.ToolsServiceWatchToolsServerStream) error {
	w := watch[pb.WatchToolsResponse]{
		about:    scope{method: mcpclient.MethodToolsChanged, target: req.GetTarget()},
		interest: targets.Interest{Tools: true}, event: toolsEvent, send: stream.Send,
	}
	return w.run(ctx, s.caller)
}

func toolsEvent(e watchEvent) *pb.WatchToolsResponse {
	switch {
	case e.ready != nil:
		return &pb.WatchToolsResponse{Event: &pb.WatchToolsResponse_Ready{Ready: e.ready}}
	case e.list != nil:
		return &pb.WatchToolsResponse{Event: &pb.WatchToolsResponse_Changed{Changed: e.list}}
	case e.resync != nil:
		return &pb.WatchToolsResponse{Event: &pb.WatchToolsResponse_Resync{Resync: e.resync}}
	}
	return &pb.WatchToolsResponse{Event: &pb.WatchToolsResponse_KeepAlive{KeepAlive: e.keepAlive}}
}

// WatchPrompts tells when a target's prompts change.
func (s promptsService) WatchPrompts(ctx context.Context, req *pb.WatchPromptsRequest, stream mcpbridgev1connect.PromptsServiceWatchPromptsServerStream) error {
	w := watch[pb.WatchPromptsResponse]{
		about:    scope{method: mcpclient.MethodPromptsChanged, target: req.GetTarget()},
		interest: targets.Interest{Prompts: true}, event: promptsEvent, send: stream.Send,
	}
	return w.run(ctx, s.caller)
}

func promptsEvent(e watchEvent) *pb.WatchPromptsResponse {
	switch {
	case e.ready != nil:
		return &pb.WatchPromptsResponse{Event: &pb.WatchPromptsResponse_Ready{Ready: e.ready}}
	case e.list != nil:
		return &pb.WatchPromptsResponse{Event: &pb.WatchPromptsResponse_Changed{Changed: e.list}}
	case e.resync != nil:
		return &pb.WatchPromptsResponse{Event: &pb.WatchPromptsResponse_Resync{Resync: e.resync}}
	}
	return &pb.WatchPromptsResponse{Event: &pb.WatchPromptsResponse_KeepAlive{KeepAlive: e.keepAlive}}
}

// WatchResources tells when resources of a target change, or the list of them.
func (s resourcesService) WatchResources(ctx context.Context, req *pb.WatchResourcesRequest, stream mcpbridgev1connect.ResourcesServiceWatchResourcesServerStream) error {
	about := scope{method: mcpclient.MethodResourceUpdated, target: req.GetTarget()}
	switch uris := req.GetUris(); {
	case len(uris) == 0:
		about.method = mcpclient.MethodResourcesChanged
	case len(uris) == 1 && len(uris[0]) <= maxURIBytes:
		about.name = uris[0]
	}
	if err := checkWatchedResources(req); err != nil {
		return about.fail(ctx, err)
	}
	w := watch[pb.WatchResourcesResponse]{
		about:    about,
		interest: targets.Interest{Resources: req.GetListChanges(), URIs: req.GetUris()}, event: resourcesEvent, send: stream.Send,
	}
	return w.run(ctx, s.caller)
}

func checkWatchedResources(req *pb.WatchResourcesRequest) error {
	uris := req.GetUris()
	switch {
	case len(uris) == 0 && !req.GetListChanges():
		return refuseField(reasonInvalidParams, "uris", "is empty, and list_changes is not set; give at least one URI, or set list_changes")
	case len(uris) > maxWatchedURIs:
		return refuseField(reasonInvalidParams, "uris", fmt.Sprintf("has %d entries; give at most %d, and open another stream for more", len(uris), maxWatchedURIs))
	}
	for i, uri := range uris {
		field := fmt.Sprintf("uris[%d]", i)
		switch {
		case uri == "":
			return refuseField(reasonInvalidParams, field, "is empty; give a URI as ListResources returns it, or one made from a template")
		case len(uri) > maxURIBytes:
			return refuseField(reasonInvalidParams, field, fmt.Sprintf("has %d bytes; a URI may have %d", len(uri), maxURIBytes))
		}
	}
	return nil
}

func resourcesEvent(e watchEvent) *pb.WatchResourcesResponse {
	switch {
	case e.ready != nil:
		return &pb.WatchResourcesResponse{Event: &pb.WatchResourcesResponse_Ready{Ready: e.ready}}
	case e.list != nil:
		return &pb.WatchResourcesResponse{Event: &pb.WatchResourcesResponse_ListChanged{ListChanged: e.list}}
	case e.updated != nil:
		return &pb.WatchResourcesResponse{Event: &pb.WatchResourcesResponse_Updated{Updated: e.updated}}
	case e.resync != nil:
		return &pb.WatchResourcesResponse{Event: &pb.WatchResourcesResponse_Resync{Resync: e.resync}}
	}
	return &pb.WatchResourcesResponse{Event: &pb.WatchResourcesResponse_KeepAlive{KeepAlive: e.keepAlive}}
}

// run tells what the server agreed to, then what changes, until the caller
// leaves or the subscription ends.
func (w *watch[R]) run(ctx context.Context, c *caller) error {
	found, err := c.locate(ctx, w.about.target, &w.about)
	if err != nil {
		return err
	}
	who, err := callerOf(ctx, found)
	if err != nil {
		return w.about.fail(ctx, err)
	}
	sub, err := found.Subscribe(ctx, who, w.interest)
	if server := found.Status().Server; server != nil {
		w.about.era = server.Era
	}
	if err != nil {
		return w.about.build(w.refused(ctx, c, found, err))
	}
	defer sub.Close()
	agreed := sub.Agreed()
	ready := &pb.WatchReady{ListChanges: agreed.Tools || agreed.Prompts || agreed.Resources, Uris: agreed.URIs}
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	var news targets.News
	p := pump[R]{
		next: func() (*R, bool) {
			if following.Err() != nil {
				return nil, false
			}
			e, ok := nextChange(&news)
			if !ok {
				if news, err = sub.Take(); err != nil {
					end(err)
				}
				if e, ok = nextChange(&news); !ok {
					return nil, false
				}
			}
			return w.event(e), true
		},
		open:  func() error { return w.send(w.event(watchEvent{ready: ready})) },
		woken: sub.Changed(), send: w.send,
		alive: w.event(watchEvent{keepAlive: &pb.KeepAlive{}}), quiet: c.keepAlive,
	}
	if err := p.run(following.Done()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return w.about.fail(ctx, err)
	}
	return w.about.fail(ctx, context.Cause(following))
}

// nextChange takes the next event out of what has happened.
func nextChange(news *targets.News) (e watchEvent, ok bool) {
	switch {
	case news.Resync:
		news.Resync = false
		e.resync = &pb.Resync{}
	case news.Tools || news.Prompts || news.Resources: // one stream watches one list
		news.Tools, news.Prompts, news.Resources = false, false, false
		e.list = &pb.ListChanged{}
	case len(news.URIs) > 0:
		e.updated = &pb.ResourceUpdated{Uri: news.URIs[0]}
		news.URIs = news.URIs[1:]
	default:
		return e, false
	}
	return e, true
}

// refused is the failure of a watch that did not begin. A server may refuse a
// resource that it does not have in many ways, or just not agree to it.
func (w *watch[R]) refused(ctx context.Context, c *caller, found *targets.Target, err error) *failure {
	f := w.about.classify(ctx, err)
	e, ok := errors.AsType[*mcpclient.Error](err)
	if !ok || w.about.name == "" || w.interest.Resources {
		return f
	}
	if e.Kind != mcpclient.KindUnsupported && (e.Kind != mcpclient.KindRPC || !mayBeUnknown(e.RPC, f.reason)) {
		return f
	}
	lease, leaseErr := acquire(ctx, found)
	if leaseErr != nil {
		return f
	}
	defer lease.Release()
	if w.about.era = eraOfServer(lease.Client()); !tellsOfResources(lease.Client()) {
		return f
	}
	if look := (lookup{reasonResourceNotFound, (*mcpclient.Client).KnowsResource}); c.absent(ctx, lease.Client(), w.about, look) {
		return w.about.notFound(look.reason, e.RPC, err)
	}
	return f
}

// tellsOfResources reports whether a server declares that it tells of changes
// of single resources.
func tellsOfResources(client *mcpclient.Client) bool {
	server := client.Status().Server // that of the target may lag behind
	return server != nil && string(memberOf(memberOf(server.Capabilities, "resources"), "subscribe")) == "true"
}

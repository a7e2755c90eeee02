package server

import (
	"context"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/targets"
)

// WatchTargets tells how targets are, then every change, in order, until the
// caller leaves or the server drains.
func (s healthService) WatchTargets(ctx context.Context, req *pb.WatchTargetsRequest, stream mcpbridgev1connect.HealthServiceWatchTargetsServerStream) error {
	about := scope{target: req.GetTarget()}
	watcher := s.targets.Watch(req.GetTarget())
	defer watcher.Close()
	known := watcher.Initial()
	if req.GetTarget() != "" {
		if len(known) == 0 {
			if _, err := s.targets.Get(req.GetTarget()); err != nil {
				return about.fail(ctx, err)
			}
		}
		setTarget(ctx, req.GetTarget())
	}
	for _, e := range known {
		if err := stream.Send(s.targetEvent(ctx, e, req.GetJsonFormat())); err != nil {
			return err
		}
	}
	ready := &pb.WatchTargetsResponse{Event: &pb.WatchTargetsResponse_Ready_{Ready: &pb.WatchTargetsResponse_Ready{}}}
	if err := stream.Send(ready); err != nil {
		return err
	}
	for {
		e, err := watcher.Next(ctx)
		if err != nil {
			return about.fail(ctx, err)
		}
		if err := stream.Send(s.targetEvent(ctx, e, req.GetJsonFormat())); err != nil {
			return err
		}
	}
}

func (s healthService) targetEvent(ctx context.Context, e targets.Event, format pb.JsonFormat) *pb.WatchTargetsResponse {
	if e.Removed {
		return &pb.WatchTargetsResponse{Event: &pb.WatchTargetsResponse_Removed{Removed: e.Target.Name()}}
	}
	return &pb.WatchTargetsResponse{Event: &pb.WatchTargetsResponse_Target{Target: s.describe(ctx, e.Target, e.Status, format)}}
}

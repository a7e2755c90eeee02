package server

import (
	"context"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// healthService is mcpbridge.v1.HealthService.
type healthService struct{ *caller }

// ListTargets tells how all targets are.
func (s healthService) ListTargets(ctx context.Context, req *pb.ListTargetsRequest) (*pb.ListTargetsResponse, error) {
	doNotStore(ctx)
	res := &pb.ListTargetsResponse{}
	for _, target := range s.targets.All() {
		res.Targets = append(res.Targets, s.describe(ctx, target, req.GetJsonFormat()))
	}
	return res, nil
}

// GetTarget tells how one target is.
func (s healthService) GetTarget(ctx context.Context, req *pb.GetTargetRequest) (*pb.GetTargetResponse, error) {
	doNotStore(ctx)
	target, err := s.find(ctx, req.GetTarget())
	if err != nil {
		return nil, scope{target: req.GetTarget()}.fail(ctx, err)
	}
	return &pb.GetTargetResponse{Target: s.describe(ctx, target, req.GetJsonFormat())}, nil
}

// describe puts together what is known of a target, without asking it.
func (s healthService) describe(ctx context.Context, target *targets.Target, format pb.JsonFormat) *pb.Target {
	status, stat := target.Status(), target.Stat()
	about := scope{target: target.Name()}
	out := &pb.Target{
		Name:       target.Name(),
		State:      targetState(status.State),
		Transport:  transportOf(target.TransportName()),
		StderrTail: validLines(target.StderrTail()),
		Pool:       &pb.PoolStats{Connections: int32(stat.Connections), InFlight: int32(stat.InFlight), Queued: int32(stat.Queued)},
	}
	if !status.Since.IsZero() {
		out.Since = timestamppb.New(status.Since)
	}
	if status.LastError != nil {
		out.LastError = about.targetError(about.classify(ctx, status.LastError))
	}
	server := status.Server
	if server == nil {
		return out
	}
	out.Era, out.ProtocolVersion = eraOf(server.Era), strings.ToValidUTF8(server.ProtocolVersion, string(utf8.RuneError))
	if server.Instructions != "" {
		out.Instructions = new(strings.ToValidUTF8(server.Instructions, string(utf8.RuneError)))
	}
	if len(server.Info) > 0 {
		info, err := convert.Implementation(server.Info, format)
		if err != nil {
			s.log.WarnContext(ctx, "a server's serverInfo cannot be converted and is left out", "target", out.Name, "error", err)
		}
		out.ServerInfo = info
	}
	if len(server.Capabilities) > 0 {
		decoded, text, err := convert.Struct(server.Capabilities, format)
		if err != nil {
			s.log.WarnContext(ctx, "a server's capabilities cannot be converted and are left out", "target", out.Name, "error", err)
		}
		out.Capabilities, out.CapabilitiesJson = decoded, text
	}
	return out
}

// targetState maps a client's state. An idle one is a lazy target that was not
// called yet: nothing is known of it.
func targetState(state mcpclient.State) pb.TargetState {
	switch state {
	case mcpclient.StateIdle:
	case mcpclient.StateConnecting:
		return pb.TargetState_TARGET_STATE_CONNECTING
	case mcpclient.StateReady:
		return pb.TargetState_TARGET_STATE_READY
	case mcpclient.StateSuspect:
		return pb.TargetState_TARGET_STATE_SUSPECT
	case mcpclient.StateReconnecting:
		return pb.TargetState_TARGET_STATE_RECONNECTING
	case mcpclient.StateClosed:
		return pb.TargetState_TARGET_STATE_CLOSED
	}
	return pb.TargetState_TARGET_STATE_UNSPECIFIED
}

func eraOf(era mcpclient.Era) pb.Era {
	switch era {
	case mcpclient.EraModern:
		return pb.Era_ERA_MODERN
	case mcpclient.EraLegacy:
		return pb.Era_ERA_LEGACY
	case mcpclient.EraUnknown:
	}
	return pb.Era_ERA_UNSPECIFIED
}

func transportOf(name string) pb.Transport {
	switch name {
	case "streamable_http":
		return pb.Transport_TRANSPORT_STREAMABLE_HTTP
	case "stdio":
		return pb.Transport_TRANSPORT_STDIO
	case "sse":
		return pb.Transport_TRANSPORT_SSE
	case "memory":
		return pb.Transport_TRANSPORT_IN_MEMORY
	case "unix", "tcp":
		return pb.Transport_TRANSPORT_SOCKET
	}
	return pb.Transport_TRANSPORT_UNSPECIFIED
}

// validLines makes a child's output fit for protobuf strings.
func validLines(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = strings.ToValidUTF8(line, string(utf8.RuneError))
	}
	return out
}

package server

import (
	"context"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// healthService is mcpbridge.v1.HealthService.
type healthService struct{ *caller }

// ListTargets tells how all targets are.
func (s healthService) ListTargets(ctx context.Context, req *pb.ListTargetsRequest) (*pb.ListTargetsResponse, error) {
	doNotStore(ctx)
	res := &pb.ListTargetsResponse{}
	for _, target := range s.targets.All() {
		res.Targets = append(res.Targets, s.describe(ctx, target, target.Status(), req.GetJsonFormat()))
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
	return &pb.GetTargetResponse{Target: s.describe(ctx, target, target.Status(), req.GetJsonFormat())}, nil
}

// describe puts together what is known of a target, without asking it. status
// is that of the moment to tell of.
func (s healthService) describe(ctx context.Context, target *targets.Target, status pool.Status, format pb.JsonFormat) *pb.Target {
	about := scope{target: target.Name()}
	out := &pb.Target{
		Name:       target.Name(),
		State:      targetState(status.State),
		Transport:  transportOf(target.TransportName()),
		StderrTail: validLines(target.StderrTail()),
		Pool:       poolStats(target.Stat()),
		Isolation:  isolationOf(target.Isolation()),
	}
	if !status.Since.IsZero() {
		out.Since = timestamppb.New(status.Since)
	}
	if !status.NextAttempt.IsZero() {
		out.NextAttempt = timestamppb.New(status.NextAttempt)
	}
	if status.LastError != nil {
		out.LastError = about.targetError(about.classify(ctx, status.LastError))
	}
	server := status.Server
	if server == nil {
		return out
	}
	out.InteractiveOnly = server.Era == mcpclient.EraLegacy
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

func poolStats(s pool.Stat) *pb.PoolStats {
	return &pb.PoolStats{
		Connections: int32(s.Connections), InFlight: int32(s.InFlight), Queued: int32(s.Queued),
		Keys: int32(s.Keys), Interactive: int32(s.Interactive), Closing: int32(s.Closing),
		MaxConnections: int32(s.MaxConnections), MaxInFlight: int32(s.MaxInFlight), MaxQueue: int32(s.MaxQueue),
		Waits: s.Waits, Rejected: s.Rejected, Evicted: s.Evicted,
	}
}

// targetState maps a target's state. An idle one has no connection and needs
// none before the next call: how it is, is not known.
func targetState(state pool.State) pb.TargetState {
	switch state {
	case pool.StateIdle:
	case pool.StateConnecting:
		return pb.TargetState_TARGET_STATE_CONNECTING
	case pool.StateReady:
		return pb.TargetState_TARGET_STATE_READY
	case pool.StateSuspect:
		return pb.TargetState_TARGET_STATE_SUSPECT
	case pool.StateReconnecting:
		return pb.TargetState_TARGET_STATE_RECONNECTING
	case pool.StateDraining:
		return pb.TargetState_TARGET_STATE_DRAINING
	case pool.StateClosed:
		return pb.TargetState_TARGET_STATE_CLOSED
	}
	return pb.TargetState_TARGET_STATE_UNSPECIFIED
}

func isolationOf(isolation targets.Isolation) pb.Isolation {
	switch isolation {
	case targets.Shared:
		return pb.Isolation_ISOLATION_SHARED
	case targets.PerKey:
		return pb.Isolation_ISOLATION_PER_KEY
	case targets.PerCaller:
		return pb.Isolation_ISOLATION_PER_CALLER
	case targets.PerCall:
		return pb.Isolation_ISOLATION_PER_CALL
	}
	return pb.Isolation_ISOLATION_UNSPECIFIED
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

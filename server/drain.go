package server

import (
	"context"
	"errors"
	"sync/atomic"

	"connectrpc.com/connect/v2"

	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
)

// drain ends streams when the bridge shuts down. Calls finish, also those that
// stream: from the time their request has come they end by themselves.
func (s *Server) drain(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if spec.StreamType == connect.StreamTypeUnary {
			return next(ctx, spec, stream)
		}
		ctx, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		peer := PeerFrom(ctx)
		call := &drainedStream{ServerStream: stream, finishes: finishes(spec.Procedure)}
		stop := context.AfterFunc(s.draining, func() {
			ended, waiting := call.end()
			if !ended {
				return
			}
			cut(errDraining)
			if peer.hurry != nil {
				peer.hurry()
			}
			if waiting || spec.StreamType&connect.StreamTypeClient != 0 {
				// A Receive that waits for the caller does not see ctx.
				peer.readDeadline(longAgo())
			}
		})
		defer stop()
		err := next(ctx, spec, call)
		if err != nil && errors.Is(context.Cause(ctx), errDraining) {
			return scope{}.build(draining())
		}
		return err
	}
}

// finishes reports whether a stream is a call, which has an end of its own and
// may have begun to act.
func finishes(procedure string) bool {
	switch procedure {
	case mcpbridgev1connect.ToolsServiceCallToolStreamProcedure, mcpbridgev1connect.ToolsServiceCallToolInteractiveProcedure:
		return true
	}
	return false
}

// drainedStream decides between the begin of a call and the end of its stream
// by a shutdown.
type drainedStream struct {
	connect.ServerStream

	finishes bool
	state    atomic.Int32 // 0 = waits for the request
}

const (
	streamBegun = 1
	streamEnded = 2
)

func (d *drainedStream) Receive(msg any) error {
	if err := d.ServerStream.Receive(msg); err != nil {
		return err
	}
	if !d.state.CompareAndSwap(0, streamBegun) && d.state.Load() == streamEnded {
		return draining()
	}
	return nil
}

// end ends the stream, unless it is a call that has begun. waiting is true when
// its request has not come.
func (d *drainedStream) end() (ended, waiting bool) {
	if d.state.CompareAndSwap(0, streamEnded) {
		return true, true
	}
	return !d.finishes, false
}

package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// AccessLog says which calls have a line in the log at level Info. All others
// have it at level Debug.
type AccessLog int

const (
	// AccessOff: none.
	AccessOff AccessLog = iota
	// AccessSampled: every call that failed or whose tool did, and up to ten
	// others a second; the next line says how many were left out.
	AccessSampled
	// AccessOn: every call.
	AccessOn
)

// maxCauseBytes bounds what a line says of a cause, which may repeat a text of
// the server of any length.
const maxCauseBytes = 2048

// sampledPerSecond is how many successful calls a second have a line.
const sampledPerSecond = 10

// Outcome is what is told of a call that is over.
type Outcome struct {
	// Procedure is the path of the method, such as
	// "/mcpbridge.v1.ToolsService/CallTool"; "" for one that does not exist.
	Procedure string
	// Target is the one that answered; "" when several did, or none.
	Target string
	// Reason is that of ErrorInfo; "" for success, and for a watch or another
	// stream without an end of its own that its caller, its deadline or a shutdown
	// ended.
	Reason string
}

// access writes the access log.
type access struct {
	mode    AccessLog
	log     *slog.Logger
	quiet   map[string]bool // procedures without a line at Info
	limit   *rate.Limiter
	leftOut atomic.Int64 // lines since the last one
}

func newAccess(mode AccessLog, log *slog.Logger, quiet map[string]bool) *access {
	return &access{mode: mode, log: log, quiet: quiet, limit: rate.NewLimiter(sampledPerSecond, sampledPerSecond)}
}

// housekeeping are the procedures of the server that are no use of it: probes
// and questions about the API, health and reflection, which come every few
// seconds. Others may be called alike, by whoever likes to go unseen.
func housekeeping(server *connect.Server) map[string]bool {
	found := map[string]bool{}
	for spec := range server.Specs() {
		if strings.HasPrefix(spec.Procedure, "/grpc.") {
			found[spec.Procedure] = true
		}
	}
	return found
}

// level decides about one call.
func (a *access) level(procedure string, failed bool) slog.Level {
	switch {
	case a.quiet[procedure]:
	case a.mode == AccessOn, a.mode == AccessSampled && (failed || a.limit.Allow()):
		return slog.LevelInfo
	case a.mode == AccessSampled:
		a.leftOut.Add(1)
	}
	return slog.LevelDebug
}

// write writes a line; a visible one says how many there are not.
func (a *access) write(ctx context.Context, level slog.Level, attrs []slog.Attr) {
	if !a.log.Enabled(ctx, level) {
		return
	}
	if level == slog.LevelInfo {
		if n := a.leftOut.Swap(0); n > 0 {
			attrs = append(attrs, slog.Int64("left_out", n))
		}
	}
	a.log.LogAttrs(ctx, level, "call", attrs...)
}

// close says what no later line will.
func (a *access) close(ctx context.Context) {
	if n := a.leftOut.Swap(0); n > 0 {
		a.log.LogAttrs(ctx, slog.LevelInfo, "calls since the last line", slog.Int64("left_out", n))
	}
}

// ended tells of a call that is over; its handler left a note.
func (s *Server) ended(ctx context.Context, spec connect.Spec, info *connect.CallInfo, left *note, err error, took time.Duration) {
	done := Outcome{Procedure: spec.Procedure, Target: info.ResponseHeader().Get(targetKey)}
	by := endedBy(ctx, spec, err)
	if err != nil && by == "" {
		done.Reason = reasonOf(err)
		left.outcome = "" // it did not reach the caller
	}
	level := s.access.level(spec.Procedure, err != nil && by == "" || left.outcome == outcomeToolError)
	if s.log.Enabled(ctx, level) {
		attrs := left.attrs([]slog.Attr{
			slog.String("procedure", spec.Procedure),
			slog.String("protocol", info.Protocol),
			slog.String("codec", info.Codec),
			slog.String("peer", PeerFrom(ctx).Addr),
			slog.String("target", done.Target),
			tookAttr(took),
			slog.Int("request_bytes", info.ReceiveStats.Size),
			slog.Int("response_bytes", info.SendStats.Size),
		})
		s.access.write(ctx, level, append(attrs, endOf(err, done.Reason, by)...))
	}
	if s.opts.Observe != nil {
		s.opts.Observe(ctx, done)
	}
}

// endOf is how a call ended, for its line.
func endOf(err error, reason, by string) []slog.Attr {
	if err == nil {
		return []slog.Attr{slog.String("code", "ok")}
	}
	code := slog.String("code", connect.CodeOf(err).String())
	if by != "" {
		return []slog.Attr{slog.String("ended_by", by), code}
	}
	attrs := []slog.Attr{slog.String("reason", reason), slog.String("error", err.Error())}
	// An RPC error shows what the caller sees; its cause is for the log.
	if cause := errors.Unwrap(err); cause != nil && !strings.Contains(err.Error(), cause.Error()) {
		attrs = append(attrs, slog.String("cause", cut(cause.Error(), maxCauseBytes)))
	}
	return append(attrs, code)
}

// endedBy says what ended a stream that has no end of its own, a watch or
// reflection, where that is no failure; "" for everything else.
func endedBy(ctx context.Context, spec connect.Spec, err error) string {
	if err == nil || spec.StreamType == connect.StreamTypeUnary || finishes(spec.Procedure) {
		return ""
	}
	switch {
	case errors.Is(err, errDraining):
		return "shutdown"
	case reasonOf(err) == string(reasonCanceled):
		return "caller"
	case reasonOf(err) == string(reasonTimeout) && ctx.Err() != nil: // a caller may reset the stream at its deadline
		return "deadline"
	}
	return ""
}

// tookAttr is how long a call took, in milliseconds.
func tookAttr(d time.Duration) slog.Attr {
	return slog.Float64("took_ms", float64(d.Microseconds())/1000)
}

// reasonOf is the reason in the details of an error; "" if it has none.
func reasonOf(err error) string {
	rpc, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return ""
	}
	for _, d := range rpc.Details() {
		message, err := connectproto.UnmarshalErrorDetail(d)
		if info, ok := message.(*errdetails.ErrorInfo); ok && err == nil {
			return info.GetReason()
		}
	}
	return ""
}

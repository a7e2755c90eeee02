package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// CallToolStream calls a tool and tells progress and log messages as they come,
// then the outcome.
func (s toolsService) CallToolStream(ctx context.Context, req *pb.CallToolStreamRequest, stream mcpbridgev1connect.ToolsServiceCallToolStreamServerStream) error {
	call, events, about, err := readStreamedCall(req, "")
	if err != nil {
		return about.fail(ctx, err)
	}
	found, err := s.locate(ctx, about.target, &about)
	if err != nil {
		return err
	}
	running := s.beside(ctx, func(ctx context.Context) (*mcpclient.Result, *failure) {
		return s.try(ctx, found, &about, call.upstream())
	})
	defer running.end()
	p := pump[pb.CallToolStreamResponse]{
		next:  func() (*pb.CallToolStreamResponse, bool) { return nextEvent(events, call.format, streamEvent) },
		woken: events.woken, open: stream.SendHeaders, send: stream.Send, quiet: s.keepAlive,
		alive: &pb.CallToolStreamResponse{Event: &pb.CallToolStreamResponse_KeepAlive{KeepAlive: &pb.KeepAlive{}}},
	}
	return running.tell(ctx, p.run, &about, func() error {
		res, err := call.response(about, running.result)
		if err != nil {
			return err
		}
		return stream.Send(&pb.CallToolStreamResponse{Event: &pb.CallToolStreamResponse_Outcome{Outcome: res}})
	})
}

// readStreamedCall checks a request whose fields are at path, and makes the call
// tell what happens. The scope is valid also beside an error.
func readStreamedCall(req *pb.CallToolStreamRequest, path string) (*toolCall, *feed, scope, error) {
	about := scope{method: methodCallTool, name: req.GetCall().GetName(), target: req.GetCall().GetTarget(), path: path + "call."}
	if req.GetCall() == nil {
		return nil, nil, about, refuseField(reasonInvalidParams, path+"call", "is not set; it holds the tool's name and arguments, as a CallToolRequest")
	}
	least := severity(req.GetLogLevel())
	if least < 0 || int(least) > len(severities) {
		return nil, nil, about, refuseField(reasonInvalidParams, path+"log_level", "is not a log level; use one of LogLevel, or leave it unset for no log messages")
	}
	call, err := readToolCall(req.GetCall(), about)
	if err != nil {
		return nil, nil, about, err
	}
	events := newFeed(least)
	call.options.Progress = func(_ context.Context, p mcpclient.Progress) { events.addProgress(p) }
	if least > 0 {
		call.options.LogLevel = least.level()
		call.options.Log = func(_ context.Context, m mcpclient.LogMessage) { events.addLog(m) }
	}
	return call, events, about, nil
}

// maxLogMessage is less than the 4 MiB that clients commonly accept.
const maxLogMessage = 3 << 20

// nextEvent takes the next event for a stream; wrap makes its message, of which
// exactly one argument is set.
func nextEvent[R any](events *feed, format pb.JsonFormat, wrap func(*pb.Progress, *pb.LogMessage, event, pb.JsonFormat) *R) (*R, bool) {
	e, ok := events.take()
	switch {
	case !ok:
		return nil, false
	case e.progress != nil:
		return wrap(convert.Progress(e.progress.Progress, e.progress.Total, e.progress.Message), nil, event{}, format), true
	case e.log != nil:
		m := convert.LogMessage(string(e.log.Level), e.log.Logger, e.log.Data, format)
		if proto.Size(m) > maxLogMessage { // small values grow in a Value, text does not
			m = convert.LogMessage(string(e.log.Level), e.log.Logger, e.log.Data, pb.JsonFormat_JSON_FORMAT_TEXT)
		}
		m.Dropped = e.dropped
		return wrap(nil, m, event{}, format), true
	}
	return wrap(nil, nil, e, format), true
}

func streamEvent(p *pb.Progress, m *pb.LogMessage, _ event, _ pb.JsonFormat) *pb.CallToolStreamResponse {
	if p != nil {
		return &pb.CallToolStreamResponse{Event: &pb.CallToolStreamResponse_Progress{Progress: p}}
	}
	return &pb.CallToolStreamResponse{Event: &pb.CallToolStreamResponse_Log{Log: m}}
}

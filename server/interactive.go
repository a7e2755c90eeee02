package server

import (
	"context"
	"errors"
	"io"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// Fields of CallToolInteractiveRequest.
const (
	fieldStart  = "start"
	fieldAnswer = "input_response"
)

// maxVisitRounds is how often a call is sent again whose server demanded that
// the user visits URLs first, and whose caller has accepted that.
const maxVisitRounds = 3

// CallToolInteractive is CallToolStream for callers that answer the server's
// questions while the call runs.
func (s toolsService) CallToolInteractive(ctx context.Context, stream mcpbridgev1connect.ToolsServiceCallToolInteractiveServerStream) error {
	start, err := receiveStart(stream)
	if err != nil {
		return err // the interceptor words it
	}
	call, events, about, err := readStreamedCall(start, fieldStart+".")
	if err != nil {
		return about.fail(ctx, err)
	}
	found, err := s.locate(ctx, about.target, &about)
	if err != nil {
		return err
	}
	mistakes := scope{target: about.target, method: about.method, name: about.name}
	asked := newQuestions(events, call.format, start.GetCall().GetClientCapabilities(), found.Roots())
	running := s.beside(ctx, func(ctx context.Context) (*mcpclient.Result, *failure) {
		result, f := s.try(ctx, found, &about, asked.upstream(call))
		return result, asked.explain(about, f)
	})
	defer running.end()
	reading := s.beside(ctx, func(context.Context) (*mcpclient.Result, *failure) {
		err := asked.listen(stream.Receive)
		if err != nil && ctx.Err() == nil { // else the call ends by that
			asked.reject(mistakes.classify(ctx, err))
			running.cancel(err)
		}
		return nil, nil
	})
	defer reading.stopReading(ctx)
	p := pump[pb.CallToolInteractiveResponse]{
		next: func() (*pb.CallToolInteractiveResponse, bool) {
			return nextEvent(events, call.format, interactiveEvent)
		},
		woken: events.woken, open: stream.SendHeaders, send: stream.Send, quiet: s.keepAlive,
		alive: &pb.CallToolInteractiveResponse{Event: &pb.CallToolInteractiveResponse_KeepAlive{KeepAlive: &pb.KeepAlive{}}},
	}
	return running.tell(ctx, p.run, &about, func() error {
		res, err := call.response(about, running.result)
		if err != nil {
			return err
		}
		return stream.Send(&pb.CallToolInteractiveResponse{Event: &pb.CallToolInteractiveResponse_Outcome{Outcome: res}})
	})
}

// stopReading ends work that reads what the caller sends. Where the listener
// cannot end that, the read ends with the stream, right after the handler.
func (w *work) stopReading(ctx context.Context) {
	if stop := PeerFrom(ctx).StopReading; stop != nil {
		stop()
		<-w.over
	}
	w.cancel(nil)
}

// receiveStart reads the first message.
func receiveStart(stream mcpbridgev1connect.ToolsServiceCallToolInteractiveServerStream) (*pb.CallToolStreamRequest, error) {
	first, err := stream.Receive()
	switch {
	case errors.Is(err, io.EOF):
		return nil, refuseField(reasonInvalidParams, fieldStart, "is missing: the caller closed its side of the stream without a message; send start first")
	case err != nil:
		return nil, err
	case first.GetStart() == nil:
		return nil, refuseField(reasonInvalidParams, fieldStart, "is missing: the first message of the stream holds something else, or nothing; send start first")
	}
	return first.GetStart(), nil
}

// listen takes what the caller sends after start, until it closes its side. The
// error is the caller's mistake, or the transport's.
func (q *questions) listen(receive func() (*pb.CallToolInteractiveRequest, error)) error {
	for {
		m, err := receive()
		if errors.Is(err, io.EOF) {
			q.hangUp()
			return nil
		}
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *pb.CallToolInteractiveRequest_InputResponse:
			if err := q.take(m.InputResponse); err != nil {
				return err
			}
		case *pb.CallToolInteractiveRequest_Start:
			return refuseField(reasonInvalidParams, fieldStart, "came a second time; one stream carries one call, so open another stream for the next one")
		default:
			return refuseField(reasonInvalidParams, fieldAnswer, "is not set: a message after start holds the answer to a question; send one, or close the sending side")
		}
	}
}

// upstream sends the call so that its questions come here.
func (q *questions) upstream(call *toolCall) upstream {
	u := call.upstream()
	u.answers = q.asksForAny()
	u.visits = false // they are asked about here
	u.lease = func(ctx context.Context, found *targets.Target) (*pool.Lease, error) {
		who, err := callerOf(ctx, found)
		if err != nil {
			return nil, err
		}
		return found.AcquireInteractive(ctx, who, q.declared)
	}
	send := u.send
	u.send = func(ctx context.Context, client *mcpclient.Client) (*mcpclient.Result, error) {
		q.modern, q.ended = eraOfServer(client) == mcpclient.EraModern, ctx.Done()
		// On a legacy connection that declares nothing, which others use as well, the
		// client's own answers do.
		if q.modern || q.asksForAny() {
			call.options.Answer = q.answer
		}
		for round := 0; ; round++ {
			result, err := send(ctx, client)
			about := scope{method: methodCallTool, era: eraOfServer(client)}
			demanded := visitsOf(err, about)
			if len(demanded) == 0 || !call.visits || round == maxVisitRounds {
				return result, err
			}
			switch accepted, problem := q.visit(ctx, demanded); {
			case problem != nil:
				return nil, problem
			case !accepted:
				return result, err
			}
		}
	}
	return u
}

func interactiveEvent(p *pb.Progress, m *pb.LogMessage, e event, format pb.JsonFormat) *pb.CallToolInteractiveResponse {
	switch {
	case p != nil:
		return &pb.CallToolInteractiveResponse{Event: &pb.CallToolInteractiveResponse_Progress{Progress: p}}
	case m != nil:
		return &pb.CallToolInteractiveResponse{Event: &pb.CallToolInteractiveResponse_Log{Log: m}}
	case e.question != nil:
		return &pb.CallToolInteractiveResponse{Event: &pb.CallToolInteractiveResponse_InputRequest{InputRequest: e.question.message(format)}}
	}
	return &pb.CallToolInteractiveResponse{Event: &pb.CallToolInteractiveResponse_InputWithdrawn{InputWithdrawn: &pb.InputWithdrawn{Id: e.withdrawn}}}
}

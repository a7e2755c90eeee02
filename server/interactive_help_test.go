package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// Questions of servers, and answers to them.
const (
	askForm   = `{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`
	askURL    = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.test/","elicitationId":"e1"}}`
	askModel  = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}`
	askTools  = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"tools":[]}}`
	askRoots  = `{"method":"roots/list"}`
	accepted  = `{"action":"accept"}`
	filled    = `{"action":"accept","content":{"name":"Ann","n":12345678901234567890}}`
	oneRoot   = `{"roots":[{"uri":"file:///r"}]}`
	oneSample = `{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`
)

// asker is a server whose tool "work" asks what its arguments hold in "ask", all
// at once, tells progress before and after, and returns the answers; in a way
// that its era has. A refusal is returned as its error.
func asker(era mcptest.Era) *mcptest.Server {
	questions := func(r *mcptest.Request) (list []json.RawMessage) {
		var arguments struct{ Ask []json.RawMessage }
		if err := json.Unmarshal(r.Param("arguments"), &arguments); err != nil {
			panic(err)
		}
		return arguments.Ask
	}
	if era == mcptest.Legacy {
		return tooled(era, func(ctx context.Context, r *mcptest.Request) (any, error) {
			r.Progress(1, 0, "asking")
			list := questions(r)
			answers := make([]string, len(list))
			done := make(chan struct{})
			for i, raw := range list {
				go func() {
					defer func() { done <- struct{}{} }()
					var q struct {
						Method string
						Params json.RawMessage
					}
					_ = json.Unmarshal(raw, &q)
					var params any
					if q.Params != nil {
						params = q.Params
					}
					answer, err := r.Ask(ctx, q.Method, params)
					if answers[i] = string(answer); err != nil {
						answers[i] = err.Error()
					}
				}()
			}
			for range list {
				<-done
			}
			r.Progress(2, 0, "answered")
			return mcptest.Text(strings.Join(answers, " ")), nil
		})
	}
	return tooled(era, func(_ context.Context, r *mcptest.Request) (any, error) {
		list := questions(r)
		if len(list) == 0 {
			return mcptest.Text(""), nil
		}
		if r.Param("inputResponses") == nil {
			r.Progress(1, 0, "asking")
			requests := map[string]json.RawMessage{}
			for i, q := range list {
				requests[fmt.Sprint("q", i)] = q
			}
			raw, err := json.Marshal(requests)
			return mcptest.Raw(`{"resultType":"input_required","inputRequests":` + string(raw) + `,"requestState":"s"}`), err
		}
		var given map[string]json.RawMessage
		if err := json.Unmarshal(r.Param("inputResponses"), &given); err != nil {
			return nil, err
		}
		r.Progress(2, 0, "answered")
		answers := make([]string, len(list))
		for i := range list {
			answers[i] = string(given[fmt.Sprint("q", i)])
		}
		return mcptest.Text(strings.Join(answers, " ")), nil
	})
}

// everything is what a caller can declare.
func everything() *pb.ClientCapabilities {
	return &pb.ClientCapabilities{
		Elicitation: &pb.ClientCapabilities_Elicitation{Form: true, Url: true},
		Sampling:    &pb.ClientCapabilities_Sampling{}, Roots: &pb.ClientCapabilities_Roots{},
	}
}

// dialogue is a CallToolInteractive under way.
type dialogue struct {
	t      *testing.T
	stream mcpbridgev1connect.ToolsServiceCallToolInteractiveClientStream
}

func (b *bridge) interactive(ctx context.Context, protocol string) *dialogue {
	b.t.Helper()
	stream, err := b.tools(protocol).CallToolInteractive(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = stream.Close() })
	return &dialogue{b.t, stream}
}

// begin starts a call that asks the given questions.
func (b *bridge) begin(ctx context.Context, protocol string, c *pb.ClientCapabilities, ask ...string) *dialogue {
	b.t.Helper()
	d := b.interactive(ctx, protocol)
	d.start(c, ask...)
	return d
}

func (d *dialogue) start(c *pb.ClientCapabilities, ask ...string) {
	d.t.Helper()
	call := &pb.CallToolRequest{Name: "work", ArgumentsJson: new(`{"ask":[` + strings.Join(ask, ",") + `]}`), ClientCapabilities: c, JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT}
	d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{Call: call}}})
}

func (d *dialogue) send(m *pb.CallToolInteractiveRequest) {
	d.t.Helper()
	if err := d.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		d.t.Error(err)
	}
}

func (d *dialogue) reply(r *pb.InputResponse) {
	d.t.Helper()
	d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_InputResponse{InputResponse: r}})
}

func (d *dialogue) answer(id, result string) {
	d.t.Helper()
	d.reply(&pb.InputResponse{Id: id, ResultJson: &result})
}

func (d *dialogue) closeSend() {
	d.t.Helper()
	if err := d.stream.CloseSend(); err != nil {
		d.t.Error(err)
	}
}

// next returns the next event in short, the error's code at the end. Progress is
// left out: a question that comes beside it may overtake it on a legacy
// connection.
func (d *dialogue) next() (string, error) {
	for {
		res, err := d.stream.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return "end", nil
		case err != nil:
			return connect.CodeOf(err).String(), err
		}
		switch e := res.GetEvent().(type) {
		case *pb.CallToolInteractiveResponse_Progress, *pb.CallToolInteractiveResponse_KeepAlive:
		case *pb.CallToolInteractiveResponse_Log:
			return "log " + e.Log.GetDataJson(), nil
		case *pb.CallToolInteractiveResponse_InputRequest:
			return strings.TrimSpace("ask " + e.InputRequest.GetId() + " " + e.InputRequest.GetMethod()), nil
		case *pb.CallToolInteractiveResponse_InputWithdrawn:
			return "withdrawn " + e.InputWithdrawn.GetId(), nil
		case *pb.CallToolInteractiveResponse_Outcome:
			if e.Outcome.GetResult() == nil {
				return fmt.Sprint("outcome ", e.Outcome), nil
			}
			return "outcome " + e.Outcome.GetResult().GetContent()[0].GetText().GetText(), nil
		default:
			return fmt.Sprint("what? ", res), nil
		}
	}
}

// want checks the next events.
func (d *dialogue) want(events ...string) {
	d.t.Helper()
	for _, want := range events {
		got, err := d.next()
		if got != want {
			d.t.Fatalf("got %q (%v), want %q", got, err, want)
		}
	}
}

// wantError checks the error that ends the stream.
func (d *dialogue) wantError(code connect.Code, reason reason, field string, names ...string) {
	d.t.Helper()
	event, err := d.next()
	for err == nil && strings.HasPrefix(event, "withdrawn") { // with the call, by whoever was first
		event, err = d.next()
	}
	wantError(d.t, err, code, reason, names...)
	var got string
	if bad := detail[*errdetails.BadRequest](d.t, err).GetFieldViolations(); len(bad) == 1 {
		got = bad[0].GetField()
	}
	if got != field {
		d.t.Errorf("the field is %q, want %q", got, field)
	}
}

// bothEras runs a test against a server of each era, over both protocols that
// stream in both directions.
func bothEras(t *testing.T, test func(t *testing.T, b *bridge, server *mcptest.Server, protocol string)) {
	t.Helper()
	for name, era := range eras {
		for _, protocol := range []string{overGRPC, overFastGRPC, overConnect} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				server := asker(era)
				test(t, one(t, server).ready(), server, protocol)
			})
		}
	}
}

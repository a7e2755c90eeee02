package server

import (
	"context"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestMistakesOfTheCallerEndTheCall(t *testing.T) {
	two := func(d *dialogue) {
		d.answer("1", accepted)
		d.answer("1", accepted)
	}
	for name, c := range map[string]struct {
		do    func(d *dialogue)
		field string
		names string
	}{
		"unknown id":    {func(d *dialogue) { d.answer("9", accepted) }, "input_response.id", "no question"},
		"no id":         {func(d *dialogue) { d.answer("", accepted) }, "input_response.id", "no question"},
		"second answer": {two, "input_response.id", "answered already"},
		"second start":  {func(d *dialogue) { d.start(nil) }, "start", "second time"},
		"empty message": {func(d *dialogue) { d.send(&pb.CallToolInteractiveRequest{}) }, "input_response", "not set"},
		"no answer":     {func(d *dialogue) { d.reply(&pb.InputResponse{Id: "1"}) }, "input_response", "no answer"},
		"result and error": {func(d *dialogue) {
			d.reply(&pb.InputResponse{Id: "1", ResultJson: new("{}"), Error: &pb.JsonRpcError{}})
		}, "input_response", "both"},
		"broken result":      {func(d *dialogue) { d.answer("1", "{") }, "input_response.result_json", "JSON"},
		"broken error data":  {func(d *dialogue) { d.reply(&pb.InputResponse{Id: "1", Error: &pb.JsonRpcError{DataJson: new("{")}}) }, "input_response.error.data_json", "JSON"},
		"answer of no sense": {func(d *dialogue) { d.answer("1", `{"action":"maybe"}`) }, "input_response", "maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			bothEras(t, func(t *testing.T, b *bridge, server *mcptest.Server, protocol string) {
				d := b.begin(t.Context(), protocol, everything(), askForm, askForm)
				d.want("ask 1 elicitation/create", "ask 2 elicitation/create")
				c.do(d)
				code, r := connect.CodeInvalidArgument, reasonInvalidParams
				if c.names == "JSON" {
					r = reasonJSONInvalid
				}
				d.wantError(code, r, c.field, c.names)
				wantCancelled(t, server, 1)
			})
		})
	}
}

func TestTheFirstMessageStartsTheCall(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, server *mcptest.Server, protocol string) {
		d := b.interactive(t.Context(), protocol)
		d.answer("1", accepted)
		d.wantError(connect.CodeInvalidArgument, reasonInvalidParams, "start", "first")
		d = b.interactive(t.Context(), protocol)
		d.closeSend()
		d.wantError(connect.CodeInvalidArgument, reasonInvalidParams, "start", "without a message")
		d = b.interactive(t.Context(), protocol)
		d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{}}}})
		d.wantError(connect.CodeInvalidArgument, reasonInvalidParams, "start.call.name", "ListTools")
		if n := server.Count("tools/call"); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestAQuestionThatTheServerWithdrawsNeedsNoAnswer(t *testing.T) {
	finish := make(chan struct{})
	server := tooled(mcptest.Legacy, func(_ context.Context, r *mcptest.Request) (any, error) {
		r.Send(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`)
		<-finish
		return mcptest.Text("done"), nil
	})
	b := one(t, server).ready()
	d := b.begin(t.Context(), overGRPC, everything())
	d.want("ask 1 roots/list")
	server.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}`)
	d.want("withdrawn 1")
	d.answer("1", oneRoot) // it may have been on its way
	close(finish)
	d.want("outcome done", "end")
	if n := server.Count(mcptest.MethodResponse); n != 0 {
		t.Errorf("%d answers reached the server", n)
	}
}

func TestAnAnswerThatCrossesTheOutcomeDoesNoHarm(t *testing.T) {
	finish := make(chan struct{})
	var asked sync.WaitGroup
	defer asked.Wait()
	server := tooled(mcptest.Legacy, func(_ context.Context, r *mcptest.Request) (any, error) {
		asked.Go(func() {
			if _, err := r.Ask(t.Context(), "roots/list", nil); err != nil && !strings.Contains(err.Error(), "-32601") {
				t.Error(err)
			}
		})
		<-finish
		return mcptest.Text("done"), nil
	})
	b := one(t, server).ready()
	for _, protocol := range []string{overGRPC, overFastGRPC, overConnect} {
		for range 50 {
			d := b.begin(t.Context(), protocol, everything())
			d.want("ask 1 roots/list")
			go func() { finish <- struct{}{} }()
			d.answer("1", oneRoot)
			event, err := d.next()
			for err == nil && event != "outcome done" {
				if event != "withdrawn 1" {
					t.Fatal(event)
				}
				event, err = d.next()
			}
			if err != nil {
				t.Fatal(err)
			}
			d.want("end")
			_ = d.stream.Close()
		}
	}
}

func TestAPanicBesideAStreamIsAnErrorOfThatStreamAlone(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	c := &caller{log: b.log}
	running := c.beside(t.Context(), func(context.Context) (*mcpclient.Result, *failure) { panic("secret") })
	running.end()
	if running.failed == nil || running.failed.reason != reasonInternal || running.result != nil {
		t.Errorf("%+v", running)
	}
	if !strings.Contains(b.logs.String(), "secret") {
		t.Error("the log does not have the panic")
	}
}

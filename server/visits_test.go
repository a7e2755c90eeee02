package server

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// demand is error -32042 for visits with these ids.
func demand(ids ...string) error {
	list := []any{}
	for _, id := range ids {
		list = append(list, map[string]any{"mode": "url", "elicitationId": id, "url": "https://x.test/" + id, "message": "sign in"})
	}
	return &mcptest.Error{Code: -32042, Message: "URL needed", Data: map[string]any{"elicitations": list}}
}

// demanding is a server whose answers to everything are demands, as often as
// rounds says.
func demanding(rounds int, ids ...string) *mcptest.Server {
	server := shop(mcptest.Legacy)
	server.Handle = map[string]mcptest.Handler{}
	for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
		server.Handle[method] = func(ctx context.Context, r *mcptest.Request) (any, error) {
			if r.Param("inputResponses") != nil || r.Param("requestState") != nil {
				panic("a legacy server was sent what it does not know")
			}
			if r.N <= rounds {
				return nil, demand(ids...)
			}
			return r.Default(ctx)
		}
	}
	return server
}

func visiting() *pb.ClientCapabilities {
	return &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Url: true}}
}

func TestADemandToVisitURLsIsAQuestionToWhoeverDeclaresThat(t *testing.T) {
	b := one(t, demanding(1, "a", "ü/2")).ready()
	want := &pb.InputRequired{}
	for _, id := range []string{"a", "ü/2"} {
		want.InputRequests = append(want.InputRequests, &pb.InputRequest{
			Id: id, Method: "elicitation/create",
			ParamsJson: new(fmt.Sprintf(`{"elicitationId":%q,"message":"sign in","mode":"url","url":"https://x.test/%s"}`, id, id)),
		})
	}
	check := func(what string, got *pb.InputRequired, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	answers := map[string]*pb.InputResponse{"a": {ResultJson: new(`{"action":"accept"}`)}, "ü/2": {ResultJson: new(`{"action":"accept"}`)}}
	const text = pb.JsonFormat_JSON_FORMAT_TEXT

	call := &pb.CallToolRequest{Name: "echo", ClientCapabilities: visiting(), JsonFormat: text}
	res, err := b.tools(overGRPC).CallTool(t.Context(), call)
	check("CallTool", res.GetInputRequired(), err)
	call.InputResponses = answers
	if res, err = b.tools(overGRPC).CallTool(t.Context(), call); err != nil || res.GetResult() == nil {
		t.Errorf("CallTool, continued: %v, %v", res, err)
	}

	get := &pb.GetPromptRequest{Name: "greet", ClientCapabilities: visiting(), JsonFormat: text}
	prompt, err := b.prompts(overGRPC).GetPrompt(t.Context(), get)
	check("GetPrompt", prompt.GetInputRequired(), err)
	get.InputResponses = answers
	if prompt, err = b.prompts(overGRPC).GetPrompt(t.Context(), get); err != nil || prompt.GetResult() == nil {
		t.Errorf("GetPrompt, continued: %v, %v", prompt, err)
	}

	read := &pb.ReadResourceRequest{Uri: "file:///a.txt", ClientCapabilities: visiting(), JsonFormat: text}
	resource, err := b.resources(overGRPC).ReadResource(t.Context(), read)
	check("ReadResource", resource.GetInputRequired(), err)
	read.InputResponses = answers
	if resource, err = b.resources(overGRPC).ReadResource(t.Context(), read); err != nil || resource.GetResult() == nil {
		t.Errorf("ReadResource, continued: %v, %v", resource, err)
	}
}

func TestADemandToVisitURLsIsAnOutcomeOfAStream(t *testing.T) {
	b := one(t, demanding(1, "a")).ready()
	for round, want := range []func(*pb.CallToolResponse) bool{
		func(r *pb.CallToolResponse) bool { return r.GetInputRequired().GetInputRequests()[0].GetId() == "a" },
		func(r *pb.CallToolResponse) bool { return r.GetResult() != nil },
	} {
		s := b.stream(t.Context(), overConnectJSON, &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "echo", ClientCapabilities: visiting()}})
		if res, err := s.stream.Receive(); err != nil || !want(res.GetOutcome()) {
			t.Errorf("round %d: %v, %v", round, res, err)
		}
	}
}

func TestADemandToVisitURLsIsAnErrorOtherwise(t *testing.T) {
	malformed := func(data any) *mcptest.Server {
		server := shop(mcptest.Legacy)
		server.Tools[0].Call = mcptest.Fail(-32042, "URL needed", data, 0)
		return server
	}
	modern := shop(mcptest.Modern)
	modern.Tools[0].Call = func(context.Context, *mcptest.Request) (any, error) { return nil, demand("a") }
	for name, c := range map[string]struct {
		server   *mcptest.Server
		declared *pb.ClientCapabilities
	}{
		"not declared": {demanding(9, "a"), nil},
		"form alone":   {demanding(9, "a"), &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}}},
		"no visits":    {demanding(9), visiting()},
		"ids twice":    {demanding(9, "a", "a"), visiting()},
		"no data":      {malformed(nil), visiting()},
		"no id":        {malformed(map[string]any{"elicitations": []any{map[string]any{"mode": "url", "url": "https://x.test/"}}}), visiting()},
		"a form":       {malformed(map[string]any{"elicitations": []any{map[string]any{"mode": "form", "elicitationId": "a"}}}), visiting()},
		"modern":       {modern, visiting()},
	} {
		t.Run(name, func(t *testing.T) {
			b := one(t, c.server).ready()
			_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo", ClientCapabilities: c.declared})
			wantError(t, err, connect.CodeFailedPrecondition, reasonInputRequired, "-32042", "elicitation.url")
			d := b.interactive(t.Context(), overGRPC)
			d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Name: "echo", ClientCapabilities: c.declared}}}})
			d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "-32042", "elicitation.url")
		})
	}
}

func TestAnInteractiveCallGoesOnOnceAllURLsWereVisited(t *testing.T) {
	begin := func(t *testing.T, server *mcptest.Server) *dialogue {
		d := one(t, server).ready().interactive(t.Context(), overGRPC)
		call := &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"n":1}`), ClientCapabilities: visiting()}
		d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{Call: call}}})
		return d
	}
	const asked = " elicitation/create"
	t.Run("accepted, in two rounds", func(t *testing.T) {
		server := demanding(2, "a", "b")
		d := begin(t, server)
		d.want("ask 1"+asked, "ask 2"+asked)
		d.answer("2", accepted)
		d.answer("1", accepted)
		d.want("ask 3"+asked, "ask 4"+asked)
		d.answer("3", accepted)
		d.answer("4", accepted)
		d.want(`outcome {"n":1}`, "end")
		if n := server.Count("tools/call"); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("accepted, but demanded again and again", func(t *testing.T) {
		server := demanding(99, "a")
		d := begin(t, server)
		for n := range maxVisitRounds {
			id := fmt.Sprint(n + 1)
			d.want("ask " + id + asked)
			d.answer(id, accepted)
		}
		d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "-32042")
		if n := server.Count("tools/call"); n != 1+maxVisitRounds {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("declined", func(t *testing.T) {
		d := begin(t, demanding(1, "a", "b"))
		d.want("ask 1"+asked, "ask 2"+asked)
		d.answer("2", `{"action":"decline"}`)
		d.want("withdrawn 1")
		d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "-32042")
	})
	t.Run("refused", func(t *testing.T) {
		d := begin(t, demanding(1, "a"))
		d.want("ask 1" + asked)
		d.reply(&pb.InputResponse{Id: "1", Error: &pb.JsonRpcError{Code: -1}})
		d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "-32042")
	})
	t.Run("closed", func(t *testing.T) {
		d := begin(t, demanding(1, "a"))
		d.want("ask 1" + asked)
		d.closeSend()
		d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "-32042")
	})
	t.Run("an answer of no sense", func(t *testing.T) {
		d := begin(t, demanding(1, "a"))
		d.want("ask 1" + asked)
		d.answer("1", `{"action":"maybe"}`)
		d.wantError(connect.CodeInvalidArgument, reasonInvalidParams, "input_response", "maybe")
	})
}

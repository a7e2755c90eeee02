package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
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
		for _, protocol := range []string{overGRPC, overConnect} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				server := asker(era)
				test(t, one(t, server).ready(), server, protocol)
			})
		}
	}
}

func TestACallerAnswersTheQuestionsOfServersOfBothErasAlike(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, _ *mcptest.Server, protocol string) {
		for name, c := range map[string]struct{ ask, method, answer, want string }{
			"form":       {askForm, "elicitation/create", filled, filled},
			"declined":   {askForm, "elicitation/create", `{"action":"decline"}`, `{"action":"decline"}`},
			"line break": {askForm, "elicitation/create", "{\n\"action\":\"decline\"}", `{"action":"decline"}`},
			"url":        {askURL, "elicitation/create", accepted, accepted},
			"sampling":   {askModel, "sampling/createMessage", oneSample, oneSample},
			"roots":      {askRoots, "roots/list", oneRoot, oneRoot},
		} {
			t.Run(name, func(t *testing.T) {
				d := b.begin(t.Context(), protocol, everything(), c.ask)
				d.want("ask 1 " + c.method)
				d.answer("1", c.answer)
				d.want("outcome "+c.want, "end")
			})
		}
	})
}

func TestAQuestionHasTheParamsOfTheServer(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			d := one(t, asker(era)).begin(t.Context(), overGRPC, everything(), askForm)
			for {
				res, err := d.stream.Receive()
				if err != nil {
					t.Fatal(err)
				}
				if q := res.GetInputRequest(); q != nil {
					if want := askForm[len(`{"method":"elicitation/create","params":`) : len(askForm)-1]; q.GetParamsJson() != want {
						t.Errorf("params %s, want %s", q.GetParamsJson(), want)
					}
					d.closeSend()
					d.want(`outcome {"action":"cancel"}`, "end")
					return
				}
			}
		})
	}
}

func TestQuestionsAreAnsweredInAnyOrder(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, _ *mcptest.Server, protocol string) {
		d := b.begin(t.Context(), protocol, everything(), askForm, askURL, askRoots, askModel)
		ids := map[string]string{}
		for range 4 {
			event, err := d.next()
			if err != nil {
				t.Fatal(err)
			}
			part := strings.Fields(event)
			ids[part[1]] = part[2]
		}
		for n := 4; n > 0; n-- {
			id := fmt.Sprint(n)
			d.answer(id, map[string]string{"elicitation/create": accepted, "roots/list": oneRoot, "sampling/createMessage": oneSample}[ids[id]])
		}
		d.want("outcome "+strings.Join([]string{accepted, accepted, oneRoot, oneSample}, " "), "end")
	})
}

func TestProgressAndLogsComeAlsoInAnInteractiveCall(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			received := make(chan struct{})
			b := one(t, tooled(era, lockstep(received))).ready()
			d := b.interactive(t.Context(), overGRPC)
			req := workAt(pb.LogLevel_LOG_LEVEL_INFO)
			req.Call.ClientCapabilities = everything()
			d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: req}})
			for n := range 5 {
				res, err := d.stream.Receive()
				if err != nil || (n%2 == 0) != (res.GetProgress() != nil) || (n%2 == 1) != (res.GetLog() != nil) {
					t.Fatal(n, res, err)
				}
				received <- struct{}{}
			}
			d.want("outcome done", "end")
		})
	}
}

func TestARefusalByErrorReachesTheServerOrEndsTheCall(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, server *mcptest.Server, protocol string) {
		refusal := &pb.JsonRpcError{Code: -32099, Message: "not now", DataJson: new(`{"a":[1]}`)}
		d := b.begin(t.Context(), protocol, everything(), askForm)
		d.want("ask 1 elicitation/create")
		d.reply(&pb.InputResponse{Id: "1", Error: refusal})
		if server.Era == mcptest.Legacy {
			d.want("outcome -32099: not now", "end")
		} else {
			d.want(`outcome {"action":"cancel"}`, "end")
		}
		d = b.begin(t.Context(), protocol, everything(), askModel)
		d.want("ask 1 sampling/createMessage")
		d.reply(&pb.InputResponse{Id: "1", Error: refusal})
		if server.Era == mcptest.Legacy {
			d.want("outcome -32099: not now", "end")
		} else {
			d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "refused", "sampling/createMessage", "client_capabilities")
		}
	})
}

func TestClosingTheSendingSideRefusesWhatIsOpenAndWhatFollows(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, server *mcptest.Server, protocol string) {
		d := b.begin(t.Context(), protocol, everything(), askForm)
		d.want("ask 1 elicitation/create")
		d.closeSend()
		d.want(`outcome {"action":"cancel"}`, "end")

		d = b.begin(t.Context(), protocol, everything(), askURL)
		d.closeSend()
		for {
			event, err := d.next()
			if event == "end" {
				break
			}
			if !strings.HasPrefix(event, "ask 1") && event != `outcome {"action":"cancel"}` { // which comes first is open
				t.Fatal(event, err)
			}
		}
		for question, want := range map[string]string{askModel: "-1: User rejected sampling request", askRoots: "-32601: Roots not supported"} {
			d = b.begin(t.Context(), protocol, everything(), question)
			if event, _ := d.next(); !strings.HasPrefix(event, "ask 1 ") {
				t.Fatal(event)
			}
			d.closeSend()
			if server.Era == mcptest.Legacy {
				d.want("outcome "+want, "end")
			} else {
				d.wantError(connect.CodeFailedPrecondition, reasonInputRequired, "", "closed its side", "keep it open")
			}
		}
	})
}

func TestWhatIsNotDeclaredIsRefusedWithoutAskingTheCaller(t *testing.T) {
	form := &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{}} // which means form
	url := &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Url: true}}
	for name, c := range map[string]struct {
		declared *pb.ClientCapabilities
		ask      string
		legacy   string
	}{
		"url":            {form, askURL, `-32602: this client did not declare elicitation of mode "url"`},
		"form":           {url, askForm, `-32602: this client did not declare elicitation of mode "form"`},
		"sampling":       {form, askModel, "-32601: Sampling not supported"},
		"sampling.tools": {everything(), askTools, "-32602: this client did not declare sampling.tools"},
		"roots":          {form, askRoots, "-32601: Roots not supported"},
		"nothing, form":  {nil, askForm, `-32602: this client did not declare elicitation of mode "form"`},
		"nothing, roots": {nil, askRoots, "-32601: Roots not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			bothEras(t, func(t *testing.T, b *bridge, server *mcptest.Server, protocol string) {
				d := b.begin(t.Context(), protocol, c.declared, c.ask)
				switch {
				case server.Era == mcptest.Legacy:
					d.want("outcome "+c.legacy, "end")
				case strings.Contains(c.ask, "elicitation"):
					d.want(`outcome {"action":"cancel"}`, "end")
				default:
					d.wantError(connect.CodeFailedPrecondition, reasonCapabilityRequired, "", "client_capabilities", `"work"`)
				}
			})
		})
	}
}

func TestConfiguredRootsAnswerForACallerThatDeclaresNone(t *testing.T) {
	for name, era := range eras {
		for declares, c := range map[string]*pb.ClientCapabilities{"nothing": nil, "elicitation": {Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}}} {
			t.Run(name+"/"+declares, func(t *testing.T) {
				b := start(t, Options{}, map[string]targetConfig{"shop": {server: asker(era), change: func(c *config.Target) {
					c.Roots = []config.Root{{URI: "file:///srv", Name: "data"}}
				}}})
				d := b.begin(t.Context(), overGRPC, c, askRoots)
				d.want(`outcome {"roots":[{"uri":"file:///srv","name":"data"}]}`, "end")
				d = b.begin(t.Context(), overGRPC, everything(), askRoots)
				d.want("ask 1 roots/list")
				d.answer("1", oneRoot)
				d.want("outcome "+oneRoot, "end")
			})
		}
	}
}

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

func TestTheTimeOfTheToolStandsStillWhileAQuestionIsOpen(t *testing.T) {
	for name, era := range eras {
		t.Run(name, func(t *testing.T) {
			const limit = 300 * time.Millisecond
			b := start(t, Options{}, map[string]targetConfig{"shop": {server: asker(era), change: func(c *config.Target) { c.Timeouts.Tool = limit }}}).ready()
			d := b.begin(t.Context(), overGRPC, everything(), askForm)
			d.want("ask 1 elicitation/create")
			time.Sleep(2 * limit) // the time that must not count
			d.answer("1", filled)
			d.want("outcome "+filled, "end")
		})
	}
}

func TestALegacyServerHearsOfCapabilitiesOnlyOnAConnectionOfItsOwn(t *testing.T) {
	server := asker(mcptest.Legacy)
	b := one(t, server).ready()
	declared := func() (out []string) {
		for _, e := range server.Entries("initialize") {
			var params struct{ Capabilities json.RawMessage }
			if err := json.Unmarshal(e.Params(), &params); err != nil {
				t.Fatal(err)
			}
			out = append(out, string(params.Capabilities))
		}
		return out
	}
	call := func(c *pb.ClientCapabilities, ask ...string) *dialogue {
		d := b.begin(t.Context(), overGRPC, c, ask...)
		return d
	}
	call(nil).want("outcome ", "end")
	first := call(everything(), askForm)
	first.want("ask 1 elicitation/create")
	second := call(everything(), askForm) // at the same time
	second.want("ask 1 elicitation/create")
	for _, d := range []*dialogue{second, first} {
		d.answer("1", accepted)
		d.want("outcome "+accepted, "end")
	}
	call(everything()).want("outcome ", "end") // one of those is free again
	all := `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}`
	if diff := cmp.Diff([]string{"{}", all, all}, declared()); diff != "" {
		t.Errorf("capabilities at initialize (-want +got):\n%s", diff)
	}
	target, err := mcpbridgev1connect.NewHealthServiceClient(b.client(overGRPC)).GetTarget(t.Context(), &pb.GetTargetRequest{})
	if err != nil || !target.GetTarget().GetInteractiveOnly() || target.GetTarget().GetPool().GetInteractive() != 2 {
		t.Errorf("%v, %v", target, err)
	}
}

func TestWithoutACapabilityAnInteractiveCallIsAnyOther(t *testing.T) {
	bothEras(t, func(t *testing.T, b *bridge, server *mcptest.Server, protocol string) {
		for range 2 {
			b.begin(t.Context(), protocol, nil).want("outcome ", "end")
		}
		if n := server.Count("initialize"); server.Era == mcptest.Legacy && n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

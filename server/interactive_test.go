package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

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

func TestAnUnknownToolOfALegacyServerMayNeedAnInteractiveCall(t *testing.T) {
	const hint = "use CallToolInteractive"
	for name, era := range eras {
		b := one(t, asker(era)).ready()
		_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "nope"})
		wantError(t, err, connect.CodeNotFound, reasonToolNotFound, "ListTools")
		if got := strings.Contains(err.Error(), hint); got != (era == mcptest.Legacy) {
			t.Errorf("%s: %v", name, err)
		}
		d := b.interactive(t.Context(), overGRPC)
		d.send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: &pb.CallToolStreamRequest{
			Call: &pb.CallToolRequest{Name: "nope", ClientCapabilities: everything()},
		}}})
		_, err = d.next()
		wantError(t, err, connect.CodeNotFound, reasonToolNotFound, "ListTools")
		if strings.Contains(err.Error(), hint) {
			t.Errorf("%s: a caller that does so is told to: %v", name, err)
		}
	}
}

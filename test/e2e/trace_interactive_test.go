package e2e

import (
	"context"
	"encoding/json"
	"testing"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// inquiring is a server whose tool asks its caller once, in the manner of its era.
func inquiring(era mcptest.Era) *mcptest.Server {
	done := mcptest.Respond(mcptest.Text("done"))
	ask := mcptest.Rounds(done, mcptest.Round{Requests: oneQuestion, State: `"s"`})
	if era == mcptest.Legacy {
		ask = func(ctx context.Context, r *mcptest.Request) (any, error) {
			if _, err := r.Ask(ctx, "elicitation/create", json.RawMessage(elicitation)); err != nil {
				return nil, err
			}
			return done(ctx, r)
		}
	}
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{{Name: "inquire", Call: ask}}}
}

func TestTheQuestionsOfAnInteractiveCallAreInItsTrace(t *testing.T) {
	to := collect(t)
	modernChild, _ := fakeChild(t, "inquiring")
	legacyChild, _ := fakeChild(t, "inquiring-legacy")
	s := serve(t, map[string]target{
		"http-modern": fake(t, inquiring(mcptest.Modern)), "http-legacy": fake(t, inquiring(mcptest.Legacy)),
		"stdio-modern": modernChild, "stdio-legacy": legacyChild,
	}, environment(to.environment()...)).stubs(t)
	const rpc = "mcpbridge.v1.ToolsService/CallToolInteractive server"
	for name, continued := range map[string]string{
		"http-modern": "  tools/call inquire client after line 2", "http-legacy": "  elicitation/create server",
		"stdio-modern": "  tools/call inquire client after line 2", "stdio-legacy": "  elicitation/create server",
	} {
		t.Run(name, func(t *testing.T) {
			talk := func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "inquire", ClientCapabilities: forms()})
				if err := stream.Send(answering(question(t, stream).GetId(), accept)); err != nil {
					t.Fatal(explain(err))
				}
				if got := outcome(t, stream); got != "done" {
					t.Errorf("the call returned %q", got)
				}
			}
			talk(t.Context()) // and has its connection now
			ctx, id := asCaller(t)
			talk(ctx)
			spans := wantTree(t, to, id, rpc, "  tools/call inquire client", continued)
			if asked := spans[2]; asked.tags["mcpbridge.target"] != name {
				t.Errorf("the question is %+v", asked)
			}
		})
	}
}

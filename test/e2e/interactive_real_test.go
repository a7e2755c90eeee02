package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// forms can be filled in by these callers.
func forms() *pb.ClientCapabilities {
	return &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}}
}

const accept = `{"action":"accept","content":{"name":"Ada"}}`

// begin opens an interactive call.
func (s stubs) begin(ctx context.Context, t *testing.T, call *pb.CallToolRequest) mcpbridgegrpc.ToolsService_CallToolInteractiveClient {
	t.Helper()
	stream, err := s.tools.CallToolInteractive(ctx)
	if err != nil {
		t.Fatal(explain(err))
	}
	start := &pb.CallToolStreamRequest{Call: call, LogLevel: pb.LogLevel_LOG_LEVEL_DEBUG}
	if err := stream.Send(&pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_Start{Start: start}}); err != nil {
		t.Fatal(explain(err))
	}
	return stream
}

// question reads up to the next question of a call.
func question(t *testing.T, stream mcpbridgegrpc.ToolsService_CallToolInteractiveClient) *pb.InputRequest {
	t.Helper()
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(explain(err))
		}
		if m.GetOutcome() != nil {
			t.Fatalf("the call ended without a question: %v", m)
		}
		if m.GetInputRequest() != nil {
			return m.GetInputRequest()
		}
	}
}

// answering sends an answer, JSON.
func answering(id, result string) *pb.CallToolInteractiveRequest {
	return &pb.CallToolInteractiveRequest{Message: &pb.CallToolInteractiveRequest_InputResponse{InputResponse: &pb.InputResponse{Id: id, ResultJson: &result}}}
}

// outcome reads an interactive call to its end and returns the text of its result.
func outcome(t *testing.T, stream mcpbridgegrpc.ToolsService_CallToolInteractiveClient) string {
	t.Helper()
	var out *pb.CallToolResponse
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return firstText(t, out.GetResult())
		}
		if err != nil {
			t.Fatal(explain(err))
		}
		if out != nil {
			t.Fatalf("%v came after the outcome", m)
		}
		out = m.GetOutcome()
	}
}

// answerers are servers whose tool ask asks for a name, in every era and over every transport.
func answerers(t *testing.T) map[string]target {
	t.Helper()
	targets, _ := everyGosdk(t)
	legacyChild, _ := gosdkStdio(t)
	targets["stdio-legacy"] = legacyChild.pin(legacy)
	return targets
}

func TestTheGoSDKAsksInEveryEra(t *testing.T) {
	t.Parallel()
	targets := answerers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for answer, want := range map[string]string{
				accept:                 "Hello, Ada!",
				`{"action":"decline"}`: "the user chose to decline",
				`{"action":"cancel"}`:  "the user chose to cancel",
			} {
				stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()})
				asked := question(t, stream)
				schema := asked.GetParams().GetFields()["requestedSchema"].GetStructValue().GetFields()
				if asked.GetMethod() != "elicitation/create" || asked.GetParams().GetFields()["message"].GetStringValue() != "What is your name?" || schema["properties"] == nil {
					t.Errorf("question %v", asked)
				}
				if err := stream.Send(answering(asked.GetId(), answer)); err != nil {
					t.Fatal(explain(err))
				}
				if got := outcome(t, stream); got != want {
					t.Errorf("after %s: %q", answer, got)
				}
			}

			// whoever hangs up has refused
			stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()})
			question(t, stream)
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if got := outcome(t, stream); got != "the user chose to cancel" {
				t.Errorf("after the end of the caller's side: %q", got)
			}
			one := s.target(t, name)
			if one.GetInteractiveOnly() != (one.GetEra() == pb.Era_ERA_LEGACY) || one.GetPool().GetInFlight() != 0 {
				t.Errorf("target %v", one)
			}
		})
	}
}

func TestTenInteractiveCallsOfALegacyServerAtOnceHaveTheirOwnQuestions(t *testing.T) {
	t.Parallel()
	targets := answerers(t)
	s := serve(t, targets).stubs(t)
	for name := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var streams []mcpbridgegrpc.ToolsService_CallToolInteractiveClient
		var asked []*pb.InputRequest
		for range 10 {
			stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "ask", ClientCapabilities: forms()})
			streams, asked = append(streams, stream), append(asked, question(t, stream))
		}
		for i := range streams { // in another order than they came
			i = (i + 5) % len(streams)
			if err := streams[i].Send(answering(asked[i].GetId(), fmt.Sprintf(`{"action":"accept","content":{"name":"number %d"}}`, i))); err != nil {
				t.Fatal(explain(err))
			}
			if got, want := outcome(t, streams[i]), fmt.Sprintf("Hello, number %d!", i); got != want {
				t.Errorf("%s: call %d: %q", name, i, got)
			}
		}
		eventually(t, name, func() string {
			if pool := s.target(t, name).GetPool(); pool.GetInFlight() != 0 {
				return pool.String()
			}
			return ""
		})
	}
}

func TestThePythonSDKAsksInRounds(t *testing.T) {
	t.Parallel()
	overHTTP, _ := pythonHTTP(t)
	child, _ := pythonStdio(t)
	targets := map[string]target{"http": overHTTP, "stdio": child}
	one, other := serve(t, targets), serve(t, targets)
	replies := map[string]string{
		"What is your name?":  accept,
		"Where are you, Ada?": `{"action":"accept","content":{"place":"London"}}`,
	}
	const want = "Hello, Ada in London!"
	reply := func(q *pb.InputRequest) string { return replies[q.GetParams().GetFields()["message"].GetStringValue()] }

	// an interactive call runs the rounds by itself
	s := one.stubs(t)
	for name := range targets {
		asked := 0
		got, err := s.chat(t, &pb.CallToolRequest{Target: name, Name: "ask_twice", ClientCapabilities: forms()}, func(q *pb.InputRequest) string {
			asked++
			return reply(q)
		})
		if err != nil || asked != 2 || firstText(t, got.GetResult()) != want {
			t.Errorf("%s: after %d questions %v, %s", name, asked, got, explain(err))
		}
	}

	// others go on with another call, through whichever bridge; a stream does it, too
	bridges := []stubs{s, other.stubs(t)}
	request := &pb.CallToolRequest{Target: "http", Name: "ask_twice", ClientCapabilities: forms()}
	for round := range 3 {
		response, err := bridges[round%2].tools.CallTool(t.Context(), request)
		if err != nil {
			t.Fatal(explain(err))
		}
		if round == 2 {
			if firstText(t, response.GetResult()) != want {
				t.Errorf("in the end %v", response)
			}
			break
		}
		wants := response.GetInputRequired()
		if len(wants.GetInputRequests()) != 1 || wants.RequestState == nil {
			t.Fatalf("round %d: %v, want a question and a state", round, response)
		}
		q := wants.GetInputRequests()[0]
		request.RequestState, request.InputResponses = wants.RequestState, map[string]*pb.InputResponse{q.GetId(): {ResultJson: new(reply(q))}}
	}
	all, err := s.follow(t.Context(), &pb.CallToolStreamRequest{Call: &pb.CallToolRequest{Target: "http", Name: "ask_twice", ClientCapabilities: forms()}}, nil)
	if err != nil || len(all.outcome.GetInputRequired().GetInputRequests()) != 1 {
		t.Errorf("on a stream: %v, %s", all.outcome, explain(err))
	}

	// the answers may be refusals
	for answer, want := range map[string]string{`{"action":"decline"}`: "the user chose to decline", `{"action":"cancel"}`: "the user chose to cancel"} {
		got, err := s.chat(t, &pb.CallToolRequest{Target: "http", Name: "ask_or_not", ClientCapabilities: forms()}, func(*pb.InputRequest) string { return answer })
		if err != nil || firstText(t, got.GetResult()) != want {
			t.Errorf("after %s: %v, %s", answer, got, explain(err))
		}
	}

	// whoever can answer nothing is told what it takes
	_, err = s.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: "http", Name: "ask_twice"})
	wantReason(t, err, codes.FailedPrecondition, "CAPABILITY_REQUIRED")
	if !strings.Contains(fmt.Sprint(err), "elicitation") {
		t.Errorf("%v does not name the capability", err)
	}
}

func TestServerEverythingAsksForURLsAndRoots(t *testing.T) {
	t.Parallel()
	targets := map[string]target{"stdio": everythingStdio(t), "http": everythingHTTP(t)}
	s := serve(t, targets).stubs(t)
	for name := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			able := &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true, Url: true}}
			got, err := s.chat(t, &pb.CallToolRequest{Target: name, Name: "trigger-url-elicitation", ClientCapabilities: able, ArgumentsJson: new(`{"url":"https://example.com/visit"}`)}, func(q *pb.InputRequest) string {
				if fields := q.GetParams().GetFields(); fields["mode"].GetStringValue() != "url" || fields["url"].GetStringValue() != "https://example.com/visit" {
					t.Errorf("question %v", q)
				}
				return `{"action":"accept"}`
			})
			if text := fmt.Sprint(got); err != nil || !strings.Contains(text, "accept") {
				t.Errorf("%s, %s", text, explain(err))
			}

			// it may also refuse the call until the URL was visited: then the bridge asks, and calls again
			asked := 0
			got, err = s.chat(t, &pb.CallToolRequest{Target: name, Name: "trigger-url-elicitation", ClientCapabilities: able, ArgumentsJson: new(`{"url":"https://example.com/first","elicitationId":"e1","errorPath":true}`)}, func(q *pb.InputRequest) string {
				asked++
				return `{"action":"accept"}`
			})
			if text := fmt.Sprint(got); err != nil || asked != 2 || !strings.Contains(text, "accept") {
				t.Errorf("after %d questions %s, %s", asked, text, explain(err))
			}

			// it asks for roots also by itself, so that an answer may come too late
			able = &pb.ClientCapabilities{Roots: &pb.ClientCapabilities_Roots{}}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			stream := s.begin(ctx, t, &pb.CallToolRequest{Target: name, Name: "get-roots-list", ClientCapabilities: able})
			for {
				m, err := stream.Recv()
				if err != nil {
					t.Fatal(explain(err))
				}
				if q := m.GetInputRequest(); q != nil {
					if err := stream.Send(answering(q.GetId(), `{"roots":[{"uri":"file:///srv/of-the-caller","name":"mine"}]}`)); err != nil && !errors.Is(err, io.EOF) {
						t.Fatal(explain(err))
					}
				}
				if m.GetOutcome() != nil {
					if text := m.String(); !strings.Contains(text, "file:///srv/of-the-caller") {
						t.Error(text)
					}
					break
				}
			}

			// a legacy server was told that others answer nothing, so that its tool is not there for them
			_, err = s.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: name, Name: "trigger-sampling-request", ClientCapabilities: &pb.ClientCapabilities{Sampling: &pb.ClientCapabilities_Sampling{}}})
			wantReason(t, err, codes.NotFound, "TOOL_NOT_FOUND")
		})
	}
}

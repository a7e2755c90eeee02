package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// unlisted is a server that never answers tools/list.
func unlisted(call mcptest.Handler) *mcptest.Server {
	server := shop(mcptest.Legacy)
	server.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Silence()}
	server.Tools[1].Call = call
	return server
}

func TestAnAnswerInHandIsDeliveredHoweverSlowTheCatalogueIs(t *testing.T) {
	isError := mcptest.Respond(mcptest.Raw(`{"content":[{"type":"text","text":"sold out"}],"isError":true}`))
	for name, within := range map[string]time.Duration{"no deadline": 0, "a deadline": 1500 * time.Millisecond, "a short deadline": 400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := func(handler mcptest.Handler) (*pb.CallToolResponse, time.Duration, error) {
				b := one(t, unlisted(handler)).ready()
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if within > 0 {
					ctx, cancel = context.WithTimeout(ctx, within)
				}
				defer cancel()
				start := time.Now()
				res, err := b.tools(overGRPC).CallTool(ctx, &pb.CallToolRequest{Name: "fail"})
				return res, time.Since(start), err
			}
			res, took, err := call(isError)
			if err != nil || !res.GetResult().GetIsError() || took > 3*time.Second {
				t.Errorf("isError: %v, %v after %v", res, err, took)
			}
			_, took, err = call(mcptest.Fail(-32602, "sold out", nil, 0))
			wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "sold out")
			if took > 3*time.Second {
				t.Errorf("the error came after %v", took)
			}
		})
	}
}

func TestResultsThatAnswerNothingAreErrorsOfTheServer(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Respond(mcptest.Raw(`{}`))
	server.Tools[1].Call = mcptest.Respond(mcptest.Raw(`{"content":{"type":"text","text":"x"}}`))
	server.Handle = map[string]mcptest.Handler{"resources/read": mcptest.Respond(mcptest.Raw(`{}`))}
	server.Prompts[0].Get = mcptest.Respond(mcptest.Raw(`{}`))
	server.Complete = mcptest.Respond(mcptest.Raw(`{}`))
	b := one(t, server).ready()
	_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamProtocol, "neither content nor structuredContent", "maintainer")
	_, err = b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "fail"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamProtocol, "content is not a list")
	_, err = b.resources(overGRPC).ReadResource(t.Context(), &pb.ReadResourceRequest{Uri: "a:"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamProtocol, "no contents")
	_, err = b.prompts(overGRPC).GetPrompt(t.Context(), &pb.GetPromptRequest{Name: "greet"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamProtocol, "no messages")
	_, err = b.completion(overGRPC).Complete(t.Context(), &pb.CompleteRequest{Ref: &pb.CompleteRequest_Prompt{Prompt: "greet"}, ArgumentName: "a"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamProtocol, "no completion")
}

func TestCallersGetQuestionsAlwaysAndTasksWhenTheyListThem(t *testing.T) {
	for name, c := range map[string]struct {
		capabilities *pb.ClientCapabilities
		tasks        bool
	}{
		"nothing":           {nil, false},
		"another extension": {&pb.ClientCapabilities{Extensions: map[string]*structpb.Struct{"com.example/x": {}}}, false},
		"tasks":             {&pb.ClientCapabilities{Extensions: map[string]*structpb.Struct{"io.modelcontextprotocol/tasks": {}}}, true},
	} {
		options, err := callOptions(&pb.CallToolRequest{ClientCapabilities: c.capabilities}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !options.ReturnInput || options.ReturnTask != c.tasks {
			t.Errorf("%s: ReturnInput %v, ReturnTask %v", name, options.ReturnInput, options.ReturnTask)
		}
	}
}

func TestHeadersOfACallerReachNeitherErrorsNorTheLog(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	const secret = "very-secret-value"
	headers := map[string]string{"Authorization": "Bearer " + secret, "Cookie": secret, "Mcp-Bridge-Affinity": secret, "Traceparent": secret}
	for path, body := range map[string]string{callTool: `{"name":"missing"}`, "/mcpbridge.v1.HealthService/GetTarget": `{"target":"x"}`, "/a.b/C": "{}"} {
		if code, _, text := answerOf(t, b, path, "application/json", headers, body); strings.Contains(text, secret) {
			t.Errorf("%s: %s %s", path, code, text)
		}
	}
	if strings.Contains(b.logs.String(), secret) {
		t.Errorf("the log holds a header:\n%s", b.logs)
	}
}

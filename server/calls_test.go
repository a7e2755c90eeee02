package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// shop is a server with one of everything.
func shop(era mcptest.Era) *mcptest.Server {
	return &mcptest.Server{
		Era:       era,
		Tools:     []mcptest.Tool{{Name: "echo", Call: mcptest.Echo()}, {Name: "fail", Call: mcptest.Respond(mcptest.Raw(`{"content":[{"type":"text","text":"sold out"}],"isError":true}`))}},
		Resources: []mcptest.Resource{{URI: "file:///a.txt", Name: "a", Text: "hello"}},
		Templates: []mcptest.Template{{URITemplate: "db:///{id}", Name: "row"}},
		Prompts:   []mcptest.Prompt{{Name: "greet", Get: mcptest.Respond(mcptest.Raw(`{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}`))}},
		Complete:  mcptest.Respond(mcptest.Raw(`{"completion":{"values":["blue","black"],"total":2,"hasMore":false}}`)),
	}
}

func TestEveryProtocolReachesServersOfBothEras(t *testing.T) {
	for name, era := range map[string]mcptest.Era{"modern": mcptest.Modern, "legacy": mcptest.Legacy} {
		b := one(t, shop(era)).ready()
		for _, protocol := range protocols() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				ctx, info := connect.NewClientContext(t.Context())
				arguments, err := structpb.NewStruct(map[string]any{"n": 7})
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.tools(protocol).CallTool(ctx, &pb.CallToolRequest{Name: "echo", Arguments: arguments})
				if err != nil {
					t.Fatal(err)
				}
				want := &pb.ToolResult{
					Content:           []*pb.Content{{Kind: &pb.Content_Text{Text: &pb.TextContent{Text: `{"n":7}`}}}},
					StructuredContent: structpb.NewStructValue(arguments),
				}
				if diff := cmp.Diff(want, got.GetResult(), protocmp.Transform(), protocmp.IgnoreFields(&pb.ToolResult{}, "meta", "meta_json")); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
				if got := info.ResponseHeader().Get(HeaderTarget); got != "shop" {
					t.Errorf("%s: %q, want shop", HeaderTarget, got)
				}
				tools, err := b.tools(protocol).ListTools(t.Context(), &pb.ListToolsRequest{Target: "shop"})
				if err != nil {
					t.Fatal(err)
				}
				if len(tools.GetTools()) != 2 || tools.GetTools()[0].GetName() != "echo" || tools.GetTools()[0].GetTarget() != "shop" {
					t.Errorf("tools %v", tools)
				}
				resource, err := b.resources(protocol).ReadResource(t.Context(), &pb.ReadResourceRequest{Uri: "file:///a.txt"})
				if err != nil {
					t.Fatal(err)
				}
				if got := resource.GetResult().GetContents()[0].GetText(); got != "hello" {
					t.Errorf("resource %q, want hello", got)
				}
				prompt, err := b.prompts(protocol).GetPrompt(t.Context(), &pb.GetPromptRequest{Name: "greet"})
				if err != nil {
					t.Fatal(err)
				}
				if got := prompt.GetResult().GetMessages()[0].GetContent().GetText().GetText(); got != "hi" {
					t.Errorf("prompt %q, want hi", got)
				}
				completion, err := mcpbridgev1connect.NewCompletionServiceClient(b.client(protocol)).Complete(t.Context(), &pb.CompleteRequest{
					Ref: &pb.CompleteRequest_Prompt{Prompt: "greet"}, ArgumentName: "color", ArgumentValue: "bl",
				})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string{"blue", "black"}, completion.GetValues()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestEveryProtocolCarriesTheWholeError(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Fail(-31000, "sold out", map[string]any{"left": 0}, 0)
	b := one(t, server).ready()
	for _, protocol := range protocols() {
		t.Run(protocol, func(t *testing.T) {
			_, err := b.tools(protocol).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
			wantError(t, err, connect.CodeUnknown, reasonMCPError, `"shop"`, "-31000", "sold out")
			if got := detail[*pb.JsonRpcError](t, err); got.GetDataJson() != `{"left":0}` {
				t.Errorf("JsonRpcError %v", got)
			}
			if got := detail[*errdetails.ErrorInfo](t, err).GetMetadata()["era"]; got != "modern" {
				t.Errorf("era %q, want modern", got)
			}
		})
	}
}

func TestAToolThatFailsIsAResult(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	got, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "fail"})
	if err != nil {
		t.Fatal(err)
	}
	if !got.GetResult().GetIsError() || got.GetResult().GetContent()[0].GetText().GetText() != "sold out" {
		t.Errorf("got %v, want is_error with the tool's text", got)
	}
}

func TestUnknownNamesAreNotFoundWhateverTheServerSays(t *testing.T) {
	isError := mcptest.Respond(mcptest.Raw(`{"content":[],"isError":true}`))
	for name, handler := range map[string]mcptest.Handler{
		"built-in answer": nil,
		"-32602":          mcptest.Fail(-32602, "Unknown tool: nope", nil, 0),
		"-32601":          mcptest.Fail(-32601, "Method not found", nil, 0),
		"-32603":          mcptest.Fail(-32603, "oops", nil, 0),
		"is_error":        isError,
	} {
		t.Run(name, func(t *testing.T) {
			server := shop(mcptest.Legacy)
			if handler != nil {
				server.Handle = map[string]mcptest.Handler{"tools/call": handler, "prompts/get": handler, "resources/read": handler}
				if name == "is_error" {
					delete(server.Handle, "prompts/get")
					delete(server.Handle, "resources/read")
				}
			}
			b := one(t, server)
			_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "nope"})
			wantError(t, err, connect.CodeNotFound, reasonToolNotFound, `"nope"`, "ListTools")
			_, err = b.prompts(overGRPC).GetPrompt(t.Context(), &pb.GetPromptRequest{Name: "nope"})
			wantError(t, err, connect.CodeNotFound, reasonPromptNotFound, `"nope"`, "ListPrompts")
			_, err = b.resources(overGRPC).ReadResource(t.Context(), &pb.ReadResourceRequest{Uri: "file:///nope"})
			wantError(t, err, connect.CodeNotFound, reasonResourceNotFound, `file:///nope`)
		})
	}
}

func TestErrorsOfKnownNamesStayWhatTheyAre(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Fail(-32602, "n must be positive", nil, 0)
	b := one(t, server)
	_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "n must be positive")
}

func TestRequestsAreCheckedBeforeTheyAreSent(t *testing.T) {
	server := shop(mcptest.Modern)
	b := one(t, server).ready()
	tools := b.tools(overGRPC)
	for name, c := range map[string]struct {
		req    *pb.CallToolRequest
		reason reason
		names  string
	}{
		"no name":               {&pb.CallToolRequest{}, reasonInvalidParams, "name"},
		"both arguments":        {&pb.CallToolRequest{Name: "echo", Arguments: &structpb.Struct{}, ArgumentsJson: new("{}")}, reasonInvalidParams, "arguments_json"},
		"broken JSON":           {&pb.CallToolRequest{Name: "echo", ArgumentsJson: new("{")}, reasonJSONInvalid, "arguments_json"},
		"answer without result": {&pb.CallToolRequest{Name: "echo", InputResponses: map[string]*pb.InputResponse{"q": {}}}, reasonInvalidParams, "input_responses"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tools.CallTool(t.Context(), c.req)
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.names)
			if got := detail[*errdetails.BadRequest](t, err).GetFieldViolations(); len(got) != 1 || !strings.HasPrefix(got[0].GetField(), c.names) {
				t.Errorf("BadRequest %v does not name %s", got, c.names)
			}
		})
	}
	_, err := b.resources(overGRPC).ReadResource(t.Context(), &pb.ReadResourceRequest{})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "uri")
	_, err = b.prompts(overGRPC).GetPrompt(t.Context(), &pb.GetPromptRequest{})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "name")
	completion := mcpbridgev1connect.NewCompletionServiceClient(b.client(overGRPC))
	_, err = completion.Complete(t.Context(), &pb.CompleteRequest{ArgumentName: "a"})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "prompt")
	_, err = completion.Complete(t.Context(), &pb.CompleteRequest{Ref: &pb.CompleteRequest_Prompt{Prompt: "greet"}})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "argument_name")
	if n := server.Count("tools/call"); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
}

func TestTargetsAreFoundByName(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"a": {server: shop(mcptest.Modern)}, "b": {server: shop(mcptest.Legacy)}}).ready()
	tools := b.tools(overGRPC)
	_, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeInvalidArgument, reasonTargetRequired, "target", "ListTargets")
	_, err = tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "echo", Target: "c"})
	wantError(t, err, connect.CodeNotFound, reasonTargetNotFound, `"c"`, "ListTargets")
	if got := detail[*errdetails.ErrorInfo](t, err).GetMetadata()["target"]; got != "c" {
		t.Errorf("metadata target %q, want c", got)
	}
	for _, name := range []string{"a", "b"} {
		ctx, info := connect.NewClientContext(t.Context())
		if _, err := tools.CallTool(ctx, &pb.CallToolRequest{Name: "echo", Target: name}); err != nil {
			t.Error(err)
		}
		if got := info.ResponseHeader().Get(HeaderTarget); got != name {
			t.Errorf("%s: %q, want %q", HeaderTarget, got, name)
		}
	}
}

func TestInputRequiredAndItsContinuation(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = func(_ context.Context, r *mcptest.Request) (any, error) {
		if r.Param("inputResponses") == nil {
			return mcptest.Raw(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"which?"}}},"requestState":""}`), nil
		}
		return mcptest.Text(fmt.Sprintf("%s %s %s", r.Param("inputResponses"), r.Param("requestState"), r.Meta("io.modelcontextprotocol/clientCapabilities"))), nil
	}
	b := one(t, server)
	tools := b.tools(overGRPC)
	first, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "echo", ClientCapabilities: &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}}})
	if err != nil {
		t.Fatal(err)
	}
	question := first.GetInputRequired()
	if question.GetInputRequests()[0].GetId() != "q" || question.RequestState == nil {
		t.Fatalf("got %v, want question q and an empty request_state", first)
	}
	second, err := tools.CallTool(t.Context(), &pb.CallToolRequest{
		Name: "echo", RequestState: question.RequestState,
		ClientCapabilities: &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}},
		InputResponses:     map[string]*pb.InputResponse{"q": {ResultJson: new(`{"action":"accept"}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"q":{"action":"accept"}} "" {"elicitation":{"form":{}}}`
	if got := second.GetResult().GetContent()[0].GetText().GetText(); got != want {
		t.Errorf("the server saw %s, want %s", got, want)
	}
}

func TestATaskIsAnOutcome(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Respond(mcptest.Raw(`{"resultType":"task","taskId":"t1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null}`))
	b := one(t, server)
	got, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo", ClientCapabilities: &pb.ClientCapabilities{
		Extensions: map[string]*structpb.Struct{"io.modelcontextprotocol/tasks": {}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetTask().GetTaskId() != "t1" || got.GetTask().GetStatus() != pb.TaskStatus_TASK_STATUS_WORKING {
		t.Errorf("got %v, want task t1, working", got)
	}
}

func TestACallersDeadlineEndsTheCall(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Silence()
	b := one(t, server).ready()
	for _, protocol := range []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect} {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, err := b.tools(protocol).CallTool(ctx, &pb.CallToolRequest{Name: "echo"})
			if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Errorf("got %v, want deadline_exceeded", err)
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestAConfiguredTimeoutIsNamed(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Silence()
	b := start(t, Options{}, map[string]targetConfig{"shop": {server: server, change: func(c *config.Target) { c.Timeouts.Tool = 50 * time.Millisecond }}})
	_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeDeadlineExceeded, reasonTimeout, "50ms", "timeouts.tool")
}

func TestAReplyOverTheLimitNamesItsSetting(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Respond(mcptest.Text(strings.Repeat("x", 100_000)))
	b := start(t, Options{}, map[string]targetConfig{"shop": {server: server, change: func(c *config.Target) { c.MaxReplyBytes = 50_000 }}})
	_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeResourceExhausted, reasonTooLarge, "targets.shop.max_reply_bytes")
}

func TestFaultsOfAServerArriveAsTheyShould(t *testing.T) {
	status := func(reply mcptest.Reply) func(*mcptest.Server) {
		return func(s *mcptest.Server) {
			s.Status = func(method string, _ int) *mcptest.Reply {
				if method == "tools/call" {
					return &reply
				}
				return nil
			}
		}
	}
	call := func(h mcptest.Handler) func(*mcptest.Server) {
		return func(s *mcptest.Server) { s.Tools[0].Call = h }
	}
	for name, c := range map[string]struct {
		change func(*mcptest.Server)
		code   connect.Code
		reason reason
		names  string
		retry  bool
	}{
		"hang up":            {call(mcptest.Hangup()), connect.CodeUnknown, reasonOutcomeUnknown, "check before calling again", false},
		"401":                {status(mcptest.Reply{Status: 401}), connect.CodeUnavailable, reasonUpstreamAuth, "targets.shop.headers", false},
		"429":                {status(mcptest.Reply{Status: 429, Header: http.Header{"Retry-After": {"3"}}}), connect.CodeResourceExhausted, reasonUpstreamRateLimited, `"shop"`, true},
		"503":                {status(mcptest.Reply{Status: 503}), connect.CodeUnavailable, reasonUpstreamHTTP, "503", false},
		"418":                {status(mcptest.Reply{Status: 418}), connect.CodeInternal, reasonUpstreamHTTP, "418", false},
		"login page":         {call(mcptest.HTML(200)), connect.CodeInternal, reasonUpstreamProtocol, `"shop"`, false},
		"unknown resultType": {call(mcptest.Respond(mcptest.Raw(`{"resultType":"dream"}`))), connect.CodeInternal, reasonUpstreamProtocol, "dream", false},
		"no object":          {call(mcptest.Respond(mcptest.Raw(`[]`))), connect.CodeInternal, reasonUpstreamProtocol, `"shop"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := shop(mcptest.Modern)
			c.change(server)
			b := one(t, server).ready()
			_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
			wantError(t, err, c.code, c.reason, c.names)
			if got := detail[*errdetails.RetryInfo](t, err) != nil; got != c.retry {
				t.Errorf("RetryInfo is set: %v, want %v", got, c.retry)
			}
			if n := server.Count("tools/call"); n != 1 {
				t.Errorf("the tool was called %d times", n)
			}
		})
	}
}

func TestAPromptCannotBeATask(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Prompts[0].Get = mcptest.Respond(mcptest.Raw(`{"resultType":"task","taskId":"t"}`))
	b := one(t, server)
	_, err := b.prompts(overGRPC).GetPrompt(t.Context(), &pb.GetPromptRequest{Name: "greet"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamProtocol, "task", `"greet"`)
}

func TestADeadTargetIsUnavailable(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"shop": {url: deadURL}})
	_, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeUnavailable, reasonTargetUnavailable, `"shop"`)
	if detail[*errdetails.RetryInfo](t, err) == nil {
		t.Error("the error has no RetryInfo")
	}
}

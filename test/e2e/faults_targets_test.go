package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// probing makes the bridge look after a quiet target so often that a test can wait for it.
func (c target) probing() target {
	c["health"] = map[string]any{"interval": "100ms", "timeout": "5s"}
	return c
}

func TestFault20AGETThatIsNotAllowedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	server := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{echoTool()}, Session: mcptest.SessionOptions{GetStatus: http.StatusMethodNotAllowed}}
	s := serve(t, map[string]target{"one": fake(t, server).probing().quick()}).stubs(t)
	ticks := 0
	for session := 1; session <= 3; session++ {
		for range 20 {
			s.must(t, "one", "echo", "{}")
		}
		if _, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{}); err != nil {
			t.Error(explain(err))
		}
		ticks += 15
		arrived(t, &server.Log, "ping", ticks) // the bridge has had time to try again
		wantCount(t, &server.Log, mcptest.MethodGet, session)
		wantCount(t, &server.Log, "initialize", session)
		if n := server.Count("tools/list"); n > session {
			t.Errorf("%d lists were fetched for %d sessions", n, session)
		}
		server.ExpireSessions()
	}
}

func TestFault21AServerWithoutAGETStreamServesEverything(t *testing.T) {
	for _, refusal := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusInternalServerError, http.StatusNotImplemented} {
		t.Run(fmt.Sprint(refusal), func(t *testing.T) {
			server := &mcptest.Server{
				Era: mcptest.Legacy, Tools: []mcptest.Tool{echoTool()},
				Resources: []mcptest.Resource{{URI: "test://a", Text: "a"}}, Templates: []mcptest.Template{{URITemplate: "test://{id}"}},
				Prompts:  []mcptest.Prompt{{Name: "hi"}},
				Complete: mcptest.Respond(mcptest.Raw(`{"completion":{"values":["x"]}}`)),
				Session:  mcptest.SessionOptions{GetStatus: refusal},
			}
			s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
			arrived(t, &server.Log, mcptest.MethodGet, 1)
			for range 3 {
				everyUnaryCall(t, s)
			}
			wantCount(t, &server.Log, "initialize", 1)
		})
	}
}

func everyUnaryCall(t *testing.T, s stubs) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check := func(what string, n int, err error) {
		t.Helper()
		if err != nil || n != 1 {
			t.Errorf("%s: %d, %s", what, n, explain(err))
		}
	}
	s.must(t, "one", "echo", "{}")
	tools, err := s.tools.ListTools(ctx, &pb.ListToolsRequest{})
	check("ListTools", len(tools.GetTools()), err)
	resources, err := s.resources.ListResources(ctx, &pb.ListResourcesRequest{})
	check("ListResources", len(resources.GetResources()), err)
	templates, err := s.resources.ListResourceTemplates(ctx, &pb.ListResourceTemplatesRequest{})
	check("ListResourceTemplates", len(templates.GetResourceTemplates()), err)
	read, err := s.resources.ReadResource(ctx, &pb.ReadResourceRequest{Uri: "test://a"})
	check("ReadResource", len(read.GetResult().GetContents()), err)
	prompts, err := s.prompts.ListPrompts(ctx, &pb.ListPromptsRequest{})
	check("ListPrompts", len(prompts.GetPrompts()), err)
	prompt, err := s.prompts.GetPrompt(ctx, &pb.GetPromptRequest{Name: "hi"})
	check("GetPrompt", len(prompt.GetResult().GetMessages()), err)
	values, err := s.completion.Complete(ctx, &pb.CompleteRequest{Ref: &pb.CompleteRequest_Prompt{Prompt: "hi"}, ArgumentName: "a"})
	check("Complete", len(values.GetValues()), err)
}

func TestFault23AServerWithoutSubscriptionsKeepsItsConnection(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]mcptest.Handler{
		"404 with -32601":  mcptest.Fail(-32601, "Method not found", nil, http.StatusNotFound),
		"200 with -32601":  mcptest.Fail(-32601, "Method not found", nil, http.StatusOK),
		"404 with a page":  mcptest.HTML(http.StatusNotFound),
		"405 without body": mcptest.Respond(&mcptest.Reply{Status: http.StatusMethodNotAllowed}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &mcptest.Server{Tools: []mcptest.Tool{echoTool()}, Handle: map[string]mcptest.Handler{"subscriptions/listen": refusal}}
			config, connections := fakeBehind(t, server, bare)
			s := serve(t, map[string]target{"one": config.probing()}).stubs(t)
			s.must(t, "one", "echo", "{}")
			arrived(t, &server.Log, "subscriptions/listen", 1)
			since := s.target(t, "one").GetSince().AsTime()
			for range 100 {
				s.must(t, "one", "echo", "{}")
			}
			arrived(t, &server.Log, "server/discover", server.Count("server/discover")+10) // ticks of the health check
			one := s.target(t, "one")
			if one.GetState() != pb.TargetState_TARGET_STATE_READY || !one.GetSince().AsTime().Equal(since) || one.GetPool().GetConnections() != 1 || one.GetLastError() != nil {
				t.Errorf("it was ready since %v, now it is %v", since, one)
			}
			wantCount(t, &server.Log, "subscriptions/listen", 1)
			if connections.Load() > 3 {
				t.Errorf("%d TCP connections", connections.Load())
			}
		})
	}
}

func TestFault25AnInvalidSchemaSpoilsNoListAndNoTool(t *testing.T) {
	schemas := map[string]string{
		"unknown type":     `{"type":"strin"}`,
		"number as type":   `{"type":5}`,
		"broken pattern":   `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`,
		"broken reference": `{"$ref":"#/nowhere"}`,
		"properties":       `{"type":"object","properties":[]}`,
		"required":         `{"type":"object","required":"all"}`,
		"null":             `null`,
		"array":            `[]`,
		"text":             `"object"`,
		"true":             `true`,
	}
	for era, version := range map[mcptest.Era]string{mcptest.Modern: modern, mcptest.Legacy: legacy} {
		t.Run(version, func(t *testing.T) {
			server := &mcptest.Server{Era: era, Tools: []mcptest.Tool{echoTool()}}
			for name, schema := range schemas {
				server.Tools = append(server.Tools, mcptest.Tool{Name: name, InputSchema: schema, Call: mcptest.Echo()})
			}
			server.Tools = append(server.Tools, mcptest.Tool{Name: "no schema", Raw: `{"name":"no schema"}`, Call: mcptest.Echo()}, mcptest.Tool{Name: "last", Call: mcptest.Echo()})
			s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
			list, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "one"})
			if err != nil {
				t.Fatal(explain(err))
			}
			named := append(names(list.GetTools(), (*pb.Tool).GetName), names(list.GetExcluded(), (*pb.ExcludedTool).GetName)...)
			for _, tool := range server.Tools {
				if !slices.Contains(named, tool.Name) {
					t.Errorf("%q is neither listed nor said to be left out", tool.Name)
				}
				const arguments = `{"a":"b"}`
				if got, err := s.call(t.Context(), "one", tool.Name, arguments); err != nil || got != arguments {
					t.Errorf("%q returned %q, %s", tool.Name, got, explain(err))
				}
			}
			good := names(list.GetTools(), (*pb.Tool).GetName)
			if !slices.Contains(good, "echo") || !slices.Contains(good, "last") {
				t.Errorf("listed are %q", good)
			}
		})
	}
}

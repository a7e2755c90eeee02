package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func TestABadRequestIsRefusedWithItsReasonAndTheNextOneWorks(t *testing.T) {
	one, _ := gosdkHTTP(t, "-stateless")
	two, _ := gosdkStdio(t)
	two["max_reply_bytes"] = "1MiB"
	c := serve(t, map[string]target{"one": one, "two": two}, func(config map[string]any, _ *exec.Cmd) {
		config["listen"] = map[string]any{"max_request_bytes": "64KiB"}
	}).clients(t)
	for _, test := range []struct {
		name    string
		request *pb.CallToolRequest
		code    connect.Code
		reason  string
		says    string // in the message
	}{
		{"unknown target", &pb.CallToolRequest{Target: "tree", Name: "echo"}, connect.CodeNotFound, "TARGET_NOT_FOUND", "tree"},
		{"no target", &pb.CallToolRequest{Name: "echo"}, connect.CodeInvalidArgument, "TARGET_REQUIRED", "target"},
		{"unknown tool", &pb.CallToolRequest{Target: "one", Name: "ecco"}, connect.CodeNotFound, "TOOL_NOT_FOUND", "ecco"},
		{"unknown tool over stdio", &pb.CallToolRequest{Target: "two", Name: "ecco"}, connect.CodeNotFound, "TOOL_NOT_FOUND", "ecco"},
		{"arguments that are no object", &pb.CallToolRequest{Target: "one", Name: "echo", ArgumentsJson: new(`[1]`)}, connect.CodeInvalidArgument, "JSON_INVALID", "arguments_json"},
		{"arguments that are no JSON", &pb.CallToolRequest{Target: "one", Name: "echo", ArgumentsJson: new(`{"text":`)}, connect.CodeInvalidArgument, "JSON_INVALID", "arguments_json"},
		{"two JSON documents", &pb.CallToolRequest{Target: "two", Name: "echo", ArgumentsJson: new("{}\n{}")}, connect.CodeInvalidArgument, "JSON_INVALID", "arguments_json"},
		{"both kinds of arguments", &pb.CallToolRequest{Target: "one", Name: "echo", ArgumentsJson: new(`{}`), Arguments: pbStruct(t, map[string]any{})}, connect.CodeInvalidArgument, "INVALID_PARAMS", "arguments_json"},
		{"a request over the limit", &pb.CallToolRequest{Target: "one", Name: "echo", ArgumentsJson: new(`{"text":"` + strings.Repeat("x", 100_000) + `"}`)}, connect.CodeResourceExhausted, "TOO_LARGE", "max_request_bytes"},
		{"a reply over the limit", &pb.CallToolRequest{Target: "two", Name: "big", ArgumentsJson: new(`{"bytes":2000000}`)}, connect.CodeResourceExhausted, "TOO_LARGE", "max_reply_bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.tools.CallTool(t.Context(), test.request)
			got, _ := wantError(t, err, test.code, test.reason)
			if !strings.Contains(got.Message(), test.says) {
				t.Errorf("message %q does not name %q", got.Message(), test.says)
			}
			for _, target := range []string{"one", "two"} {
				result := c.result(t, &pb.CallToolRequest{Target: target, Name: "echo", ArgumentsJson: new(`{"text":"still here"}`)})
				if firstText(t, result) != "still here" {
					t.Errorf("then %s returned %v", target, result)
				}
			}
		})
	}
}

func TestAPageTokenIsGoodForItsOwnListOnly(t *testing.T) {
	one, _ := gosdkHTTP(t, "-stateless")
	two, _ := gosdkStdio(t)
	c := serve(t, map[string]target{"one": one, "two": two}).clients(t)
	first, err := c.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "one", PageSize: 1})
	if err != nil || first.GetNextPageToken() == "" {
		t.Fatalf("first page: %v %s", first, describe(err))
	}
	token := first.GetNextPageToken()
	if _, err := c.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "one", PageSize: 5, PageToken: token}); err != nil {
		t.Errorf("the token with another page size: %s", describe(err))
	}
	_, err = c.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "two", PageToken: token})
	wantError(t, err, connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID")
	_, err = c.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: "one", PageToken: "made up"})
	wantError(t, err, connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID")
	_, err = c.prompts.ListPrompts(t.Context(), &pb.ListPromptsRequest{Target: "one", PageToken: token})
	wantError(t, err, connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID")
}

func TestABadConfigurationIsRefusedWithItsPlace(t *testing.T) {
	for _, test := range []struct {
		name, config string
		says         []string
	}{
		{"unknown key", "targets:\n  one:\n    url: http://127.0.0.1:1/mcp\n    protocol_versoin: auto\n", []string{"bridge.yaml:4:5", "protocol_versoin"}},
		{"wrong type", "targets:\n  one:\n    url: http://127.0.0.1:1/mcp\n    timeouts:\n      tool: soon\n", []string{"bridge.yaml:5:13", "soon"}},
		{"unset variable", "targets:\n  one:\n    url: http://127.0.0.1:1/mcp\n    headers:\n      Authorization: Bearer ${NO_SUCH_TOKEN}\n", []string{"bridge.yaml:5:", "NO_SUCH_TOKEN"}},
		{"no YAML", "targets: [", []string{"bridge.yaml:1:"}},
		{"url and command", "targets:\n  one:\n    url: http://127.0.0.1:1/mcp\n    command: [true]\n", []string{"bridge.yaml:", "command", "url"}},
		{"other address without insecure", "listen: {address: 0.0.0.0:0}\ntargets:\n  one:\n    url: http://127.0.0.1:1/mcp\n", []string{"listen.address", "insecure"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bridge.yaml")
			if err := os.WriteFile(file, []byte(test.config), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(bridgeBinary, "serve", "--config", file)
			cmd.Env = cleanEnv()
			code, out := start(t, "bridge", cmd).exited(t)
			if code == 0 {
				t.Errorf("exit code 0, want a failure")
			}
			for _, part := range test.says {
				if !strings.Contains(out, part) {
					t.Errorf("output does not name %q:\n%s", part, out)
				}
			}
			if strings.Contains(out, "goroutine ") || strings.Contains(out, "panic") {
				t.Errorf("output has a stack trace:\n%s", out)
			}
		})
	}
}

func TestATargetThatCannotWorkFailsAloneAndSaysWhy(t *testing.T) {
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte("<!doctype html><title>Welcome</title>"))
	}))
	defer html.Close()
	good, _ := gosdkHTTP(t, "-stateless")
	c := serve(t, map[string]target{
		"good":       good,
		"no-command": {"command": []string{"/no/such/program", "--flag"}},
		"html":       {"url": html.URL + "/mcp"},
		"exits":      {"command": []string{"sh", "-c", "echo cannot find the licence >&2; exit 3"}},
		"refused":    {"url": "http://127.0.0.1:1/mcp"},
	}).clients(t)
	for name, says := range map[string]string{
		"no-command": "/no/such/program",
		"html":       "text/html",
		"exits":      "exit",
		"refused":    "127.0.0.1:1",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: name, Name: "echo"})
			got := asConnect(err)
			if got == nil || (got.Code() != connect.CodeUnavailable && got.Code() != connect.CodeInternal) {
				t.Fatalf("error %s, want UNAVAILABLE or INTERNAL", describe(err))
			}
			// What went wrong may hold private details, so it is for the operator: ListTargets tells it in full.
			response, err := c.health.GetTarget(t.Context(), &pb.GetTargetRequest{Target: name})
			if err != nil {
				t.Fatal(describe(err))
			}
			target := response.GetTarget()
			if all := got.Message() + target.GetLastError().GetMessage(); !strings.Contains(all, says) {
				t.Errorf("neither %q nor the last error %q names %q", got.Message(), target.GetLastError().GetMessage(), says)
			}
			if name == "exits" && !strings.Contains(strings.Join(target.GetStderrTail(), "\n"), "cannot find the licence") {
				t.Errorf("stderr_tail is %q, want the last words of the child", target.GetStderrTail())
			}
			result := c.result(t, &pb.CallToolRequest{Target: "good", Name: "echo", ArgumentsJson: new(`{"text":"fine"}`)})
			if firstText(t, result) != "fine" {
				t.Errorf("the good target returned %v", result)
			}
		})
	}
}

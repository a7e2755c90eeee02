package e2e

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// call is a tool call and what its first text must contain.
type call struct {
	tool, arguments, want string
}

// server is a real MCP server and what the bridge must make of it. Empty fields are not offered by the server.
type server struct {
	name    string
	start   func(t *testing.T) target // nil for the built-in one
	era     pb.Era
	version string
	// tools, resources and prompts are the smallest numbers that must be listed.
	tools, resources, templates, prompts int
	echo                                 call
	fail                                 call // ends in a tool error
	image                                string
	resource, resourceWant               string
	prompt, promptWant                   string
	promptArguments                      map[string]string
	complete                             *pb.CompleteRequest
	completeWant                         string
	fixture                              bool // has the tools big, bigint and the odd names
}

// target is the name under which the server is configured.
func (s server) target() string {
	if s.start == nil {
		return "demo"
	}
	return "the-server"
}

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

func gosdk(name string, start func(t *testing.T) target, era pb.Era, version string) server {
	return server{
		name: name, start: start, era: era, version: version, fixture: true,
		tools: 11, resources: 5, templates: 1, prompts: 4,
		echo:     call{"echo", `{"text":"hello"}`, "hello"},
		fail:     call{"fail", `{"text":"no luck"}`, "no luck"},
		image:    "image",
		resource: "test://static/one", resourceWant: "contents of test://static/one",
		prompt: "greet", promptArguments: map[string]string{"name": "Ada"}, promptWant: "Greet Ada",
		complete:     &pb.CompleteRequest{Ref: &pb.CompleteRequest_Prompt{Prompt: "greet"}, ArgumentName: "name", ArgumentValue: "A"},
		completeWant: "Alan",
	}
}

// pythonFixture is the Python fixture.
func pythonFixture(name string, start func(t *testing.T) target, era pb.Era, version string) server {
	s := gosdk(name, start, era, version)
	s.tools, s.resources, s.prompts = 9, 1, 1
	return s
}

func everything(name string, start func(t *testing.T) target) server {
	return server{
		name: name, start: start, era: pb.Era_ERA_LEGACY, version: legacy,
		tools: 10, resources: 7, templates: 2, prompts: 4,
		echo:     call{"echo", `{"message":"hello"}`, "Echo: hello"},
		fail:     call{"echo", `{}`, "Invalid arguments"},
		image:    "get-tiny-image",
		resource: "demo://resource/static/document/features.md", resourceWant: "Everything",
		prompt: "args-prompt", promptArguments: map[string]string{"city": "Zürich"}, promptWant: "Zürich",
		complete:     &pb.CompleteRequest{Ref: &pb.CompleteRequest_Prompt{Prompt: "completable-prompt"}, ArgumentName: "department", ArgumentValue: "E"},
		completeWant: "Engineering",
	}
}

func servers() []server {
	pinned := func(start func(t *testing.T) (target, events), version string) func(t *testing.T) target {
		return func(t *testing.T) target {
			config, _ := start(t)
			if version != "" {
				config.pin(version)
			}
			return config
		}
	}
	http := func(flags ...string) func(t *testing.T) (target, events) {
		return func(t *testing.T) (target, events) { return gosdkHTTP(t, flags...) }
	}
	files := server{
		name: "server-filesystem over stdio", era: pb.Era_ERA_LEGACY, version: legacy, tools: 14,
		start: func(t *testing.T) target { config, _ := filesystemStdio(t); return config },
		echo:  call{"list_allowed_directories", `{}`, "Allowed directories"},
		fail:  call{"read_text_file", `{"path":"/nowhere"}`, "denied"},
	}
	builtIn := server{
		name: "the demo", era: pb.Era_ERA_MODERN, version: modern,
		tools: 7, resources: 1, templates: 1, prompts: 1,
		echo:     call{"echo", `{"text":"hello"}`, "hello"},
		fail:     call{"fail", `{"message":"no luck"}`, "no luck"},
		image:    "image",
		resource: "demo://greet/J%C3%B6rg", resourceWant: "Hello, Jörg!",
		prompt: "poem", promptArguments: map[string]string{"topic": "rain"}, promptWant: "rain",
		complete:     &pb.CompleteRequest{Ref: &pb.CompleteRequest_Resource{Resource: "demo://greet/{name}"}, ArgumentName: "name", ArgumentValue: "j"},
		completeWant: "Jörg",
	}
	return []server{
		builtIn,
		gosdk("Go SDK, stateless HTTP", pinned(http("-stateless"), ""), pb.Era_ERA_MODERN, modern),
		gosdk("Go SDK, stateless HTTP with JSON replies", pinned(http("-stateless", "-json"), ""), pb.Era_ERA_MODERN, modern),
		gosdk("Go SDK, stateless HTTP, pinned to legacy", pinned(http("-stateless"), legacy), pb.Era_ERA_LEGACY, legacy),
		gosdk("Go SDK, HTTP with sessions", pinned(http(), ""), pb.Era_ERA_LEGACY, legacy),
		gosdk("Go SDK over stdio", pinned(gosdkStdio, ""), pb.Era_ERA_MODERN, modern),
		gosdk("Go SDK over stdio, pinned to 2025-06-18", pinned(gosdkStdio, "2025-06-18"), pb.Era_ERA_LEGACY, "2025-06-18"),
		pythonFixture("Python SDK, HTTP", pinned(pythonHTTP, ""), pb.Era_ERA_MODERN, modern),
		pythonFixture("Python SDK, HTTP, pinned to legacy", pinned(pythonHTTP, legacy), pb.Era_ERA_LEGACY, legacy),
		pythonFixture("Python SDK over stdio", pinned(pythonStdio, ""), pb.Era_ERA_MODERN, modern),
		pythonFixture("Python SDK over stdio, pinned to legacy", pinned(pythonStdio, legacy), pb.Era_ERA_LEGACY, legacy),
		everything("server-everything over stdio", everythingStdio),
		everything("server-everything over HTTP", everythingHTTP),
		files,
	}
}

func TestEveryServerIsReachableWithAllItOffers(t *testing.T) {
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			b := demoOr(t, s)
			c := b.clients(t)
			t.Run("target", func(t *testing.T) { checkTarget(t, c, s) })
			t.Run("lists", func(t *testing.T) { checkLists(t, c, s) })
			t.Run("tools", func(t *testing.T) { checkTools(t, c, s) })
			t.Run("reads", func(t *testing.T) { checkReads(t, c, s) })
			if s.fixture {
				t.Run("exact values", func(t *testing.T) { checkExact(t, c) })
			}
		})
	}
}

func demoOr(t *testing.T, s server) *bridge {
	t.Helper()
	if s.start == nil {
		return demo(t)
	}
	return serve(t, map[string]target{s.target(): s.start(t)})
}

func checkTarget(t *testing.T, c clients, s server) {
	c.result(t, &pb.CallToolRequest{Name: s.echo.tool, ArgumentsJson: &s.echo.arguments}) // connects first
	response, err := c.health.GetTarget(t.Context(), &pb.GetTargetRequest{Target: s.target()})
	if err != nil {
		t.Fatal(describe(err))
	}
	got := response.GetTarget()
	if got.GetState() != pb.TargetState_TARGET_STATE_READY || got.GetEra() != s.era || got.GetProtocolVersion() != s.version {
		t.Errorf("target is %v %v %q, want READY %v %q", got.GetState(), got.GetEra(), got.GetProtocolVersion(), s.era, s.version)
	}
	if got.GetServerInfo().GetName() == "" {
		t.Errorf("no server info in %v", got)
	}
}

func checkLists(t *testing.T, c clients, s server) {
	ctx := t.Context()
	target := s.target()
	tools := pages(t, func(token string) ([]*pb.Tool, string, error) {
		r, err := c.tools.ListTools(ctx, &pb.ListToolsRequest{Target: target, PageSize: 2, PageToken: token})
		return r.GetTools(), r.GetNextPageToken(), err
	})
	wantList(t, "tools", s.tools, names(tools, (*pb.Tool).GetName))
	for _, tool := range tools {
		if tool.GetTarget() != target || tool.GetInputSchema() == nil {
			t.Errorf("tool %v has no target or no input schema", tool)
		}
	}
	if s.resources > 0 {
		resources := pages(t, func(token string) ([]*pb.Resource, string, error) {
			r, err := c.resources.ListResources(ctx, &pb.ListResourcesRequest{Target: target, PageSize: 1, PageToken: token})
			return r.GetResources(), r.GetNextPageToken(), err
		})
		wantList(t, "resources", s.resources, names(resources, (*pb.Resource).GetUri))
		templates := pages(t, func(token string) ([]*pb.ResourceTemplate, string, error) {
			r, err := c.resources.ListResourceTemplates(ctx, &pb.ListResourceTemplatesRequest{Target: target, PageSize: 1, PageToken: token})
			return r.GetResourceTemplates(), r.GetNextPageToken(), err
		})
		wantList(t, "templates", s.templates, names(templates, (*pb.ResourceTemplate).GetUriTemplate))
	}
	if s.prompts > 0 {
		prompts := pages(t, func(token string) ([]*pb.Prompt, string, error) {
			r, err := c.prompts.ListPrompts(ctx, &pb.ListPromptsRequest{Target: target, PageSize: 2, PageToken: token})
			return r.GetPrompts(), r.GetNextPageToken(), err
		})
		wantList(t, "prompts", s.prompts, names(prompts, (*pb.Prompt).GetName))
	}
}

func wantList(t *testing.T, what string, least int, got []string) {
	t.Helper()
	distinct := slices.Compact(slices.Sorted(slices.Values(got)))
	if len(got) < least || len(distinct) != len(got) {
		t.Errorf("%d %s, %d of them distinct, want at least %d: %q", len(got), what, len(distinct), least, got)
	}
}

func checkTools(t *testing.T, c clients, s server) {
	result := c.result(t, &pb.CallToolRequest{Name: s.echo.tool, ArgumentsJson: &s.echo.arguments})
	if got := firstText(t, result); !strings.Contains(got, s.echo.want) || result.GetIsError() {
		t.Errorf("%s returned %v, want %q", s.echo.tool, result, s.echo.want)
	}
	result = c.result(t, &pb.CallToolRequest{Name: s.fail.tool, ArgumentsJson: &s.fail.arguments})
	if got := firstText(t, result); !strings.Contains(got, s.fail.want) || !result.GetIsError() {
		t.Errorf("%s returned %v, want a tool error with %q", s.fail.tool, result, s.fail.want)
	}
	if s.image != "" {
		result = c.result(t, &pb.CallToolRequest{Name: s.image})
		i := slices.IndexFunc(result.GetContent(), func(c *pb.Content) bool { return c.GetImage() != nil })
		if i < 0 {
			t.Fatalf("no image in %v", result)
		}
		image := result.GetContent()[i].GetImage()
		if !bytes.HasPrefix(image.GetData(), []byte("\x89PNG\r\n")) || image.GetMimeType() != "image/png" {
			t.Errorf("image is %s of %d bytes, want a PNG", image.GetMimeType(), len(image.GetData()))
		}
	}
	// some servers answer with an error, each with a code of its own, others with an is_error result
	_, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "no-such-tool"})
	_, info := wantError(t, err, connect.CodeNotFound, "TOOL_NOT_FOUND")
	if info.GetMetadata()["target"] != s.target() {
		t.Errorf("ErrorInfo metadata %v does not name the target", info.GetMetadata())
	}
}

func checkReads(t *testing.T, c clients, s server) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if s.resource != "" {
		r, err := c.resources.ReadResource(ctx, &pb.ReadResourceRequest{Uri: s.resource})
		if err != nil {
			t.Fatal(describe(err))
		}
		contents := r.GetResult().GetContents()
		if len(contents) == 0 || !strings.Contains(contents[0].GetText(), s.resourceWant) {
			t.Errorf("resource %s is %v, want %q", s.resource, contents, s.resourceWant)
		}
	}
	if s.prompt != "" {
		r, err := c.prompts.GetPrompt(ctx, &pb.GetPromptRequest{Name: s.prompt, Arguments: s.promptArguments})
		if err != nil {
			t.Fatal(describe(err))
		}
		messages := r.GetResult().GetMessages()
		if len(messages) == 0 || !strings.Contains(messages[0].GetContent().GetText().GetText(), s.promptWant) {
			t.Errorf("prompt %s is %v, want %q", s.prompt, messages, s.promptWant)
		}
		_, err = c.prompts.GetPrompt(ctx, &pb.GetPromptRequest{Name: "no-such-prompt"})
		wantError(t, err, connect.CodeNotFound, "PROMPT_NOT_FOUND")
	}
	if s.complete != nil {
		r, err := c.completion.Complete(ctx, s.complete)
		if err != nil {
			t.Fatal(describe(err))
		}
		if !slices.Contains(r.GetValues(), s.completeWant) {
			t.Errorf("completion is %v, want %q in it", r, s.completeWant)
		}
	}
}

func checkExact(t *testing.T, c clients) {
	const integer = "9007199254740993" // 2^53+1, which no double holds
	result := c.result(t, &pb.CallToolRequest{Name: "bigint", ArgumentsJson: new(`{"n":` + integer + `}`)})
	if got := firstText(t, result); got != integer {
		t.Errorf("the server saw %s, want %s", got, integer)
	}
	if got := strings.ReplaceAll(result.GetStructuredContentJson(), " ", ""); got != `{"n":`+integer+`}` {
		t.Errorf("structured_content_json is %q, want the integer digit for digit", got)
	}
	result = c.result(t, &pb.CallToolRequest{Name: "bigint", ArgumentsJson: new(`{"n":` + integer + `}`), JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT})
	if result.StructuredContent != nil || !strings.Contains(result.GetStructuredContentJson(), integer) {
		t.Errorf("as text: %v", result)
	}

	const size = 5_000_000
	result = c.result(t, &pb.CallToolRequest{Name: "big", ArgumentsJson: new(`{"bytes":5000000}`)})
	if got := firstText(t, result); len(got) != size || !strings.HasSuffix(got, "0123456789abcdef") {
		t.Errorf("big result has %d bytes, want %d", len(got), size)
	}

	const name, text = "Grüße, 世界", "Füße 世界 😀 \"\\ \u2028\x01"
	arguments := pbStruct(t, map[string]any{"text": text})
	if got := firstText(t, c.result(t, &pb.CallToolRequest{Name: name, Arguments: arguments})); got != text {
		t.Errorf("%s returned %q, want %q", name, got, text)
	}
}

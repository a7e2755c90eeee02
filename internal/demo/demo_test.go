package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

const stdioChild = "MCPBRIDGE_DEMO_TEST_STDIO"

func TestMain(m *testing.M) {
	if os.Getenv(stdioChild) != "" { // the test binary plays the server of TestRunStdioServesAParentProcess
		if err := RunStdio(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// connect returns a client of a demo server in memory.
func connect(t *testing.T, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := NewServer(Options{Version: "1.2.3"}).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		_ = server.Wait() // ends with the client's close; how is the SDK's matter
	})
	return client
}

func call(t *testing.T, c *mcp.ClientSession, name, arguments string) *mcp.CallToolResult {
	t.Helper()
	result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s %s: %v", name, arguments, err)
	}
	return result
}

func textOf(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	if len(r.Content) != 1 {
		t.Fatalf("want one content, got %d", len(r.Content))
	}
	content, ok := r.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("want text, got %T", r.Content[0])
	}
	return content.Text
}

func TestEveryToolIsListedWithItsSchemas(t *testing.T) {
	c := connect(t, nil)
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ascii := true
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.InputSchema == nil || tool.Description == "" || tool.Title == "" {
			t.Errorf("%s: %+v", tool.Name, tool)
		}
		ascii = ascii && strings.IndexFunc(tool.Description, func(c rune) bool { return c > 127 }) < 0
	}
	if diff := cmp.Diff([]string{"add", "ask_name", "big_number", "countdown", "echo", "fail", "image", "meta", "slow"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if ascii {
		t.Error("no description has a character outside ASCII")
	}
}

func TestToolsAnswer(t *testing.T) {
	c := connect(t, nil)
	for _, tt := range []struct{ name, arguments, text, structured string }{
		{"echo", `{"text":"Grüße \"你好\" \u0000 👋"}`, "Grüße \"你好\" \x00 👋", `{"text":"Grüße \"你好\" \u0000 👋"}`},
		{"echo", `{"text":""}`, "", `{"text":""}`},
		{"add", `{"a":2,"b":-3}`, "-1", `{"sum":-1}`},
		{"big_number", `{}`, "9007199254740993", ""},
		{"countdown", `{"from":3}`, "lift-off", ""},
		{"slow", `{"ms":1}`, "slept 1 ms", ""},
	} {
		result := call(t, c, tt.name, tt.arguments)
		if got := textOf(t, result); got != tt.text || result.IsError {
			t.Errorf("%s %s: %q, error %v", tt.name, tt.arguments, got, result.IsError)
		}
		if tt.structured == "" {
			continue
		}
		got, err := json.Marshal(result.StructuredContent)
		if err != nil || string(got) != tt.structured {
			t.Errorf("%s %s: structured %s, %v", tt.name, tt.arguments, got, err)
		}
	}
}

func TestUnfitArgumentsGiveAnErrorResult(t *testing.T) {
	c := connect(t, nil)
	for _, tt := range []struct{ name, arguments, want string }{
		{"echo", `{}`, "needs the argument text"},
		{"echo", `{"text":1}`, "not valid"},
		{"echo", `{"text":"a","more":1}`, `unknown field "more"`},
		{"add", `{"a":1}`, "needs the arguments a and b"},
		{"add", `{"a":1.5,"b":1}`, "not valid"},
		{"add", `{"a":9223372036854775807,"b":1}`, "does not fit into 64 bits"},
		{"add", `{"a":-9223372036854775808,"b":-1}`, "does not fit into 64 bits"},
		{"countdown", `{}`, "needs the argument from"},
		{"countdown", `{"from":1001}`, "needs the argument from"},
		{"countdown", `{"from":1,"delay_ms":-1}`, "delay_ms must be"},
		{"slow", `{}`, "needs the argument ms"},
		{"slow", `{"ms":9223372036854775807}`, "ms must be"},
		{"image", `{"x":1}`, "not valid"},
		{"fail", `{}`, "this tool always fails"},
		{"fail", `{"message":"because 100%"}`, "because 100%"},
	} {
		result := call(t, c, tt.name, tt.arguments)
		if got := textOf(t, result); !result.IsError || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %q, error %v", tt.name, tt.arguments, got, result.IsError)
		}
	}
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "nope"}); err == nil {
		t.Error("an unknown tool gave no error")
	}
}

func TestImageIsAPicture(t *testing.T) {
	result := call(t, connect(t, nil), "image", "{}")
	content, ok := result.Content[0].(*mcp.ImageContent)
	if !ok || content.MIMEType != "image/png" {
		t.Fatalf("got %+v", result.Content[0])
	}
	img, err := png.Decode(bytes.NewReader(content.Data))
	if err != nil || img.Bounds().Dx() != 16 {
		t.Errorf("got %v, %v", img, err)
	}
}

func TestCountdownReportsEachStep(t *testing.T) {
	progress := make(chan *mcp.ProgressNotificationParams, 10)
	c := connect(t, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params },
	})
	params := &mcp.CallToolParams{Name: "countdown", Arguments: map[string]any{"from": 3}}
	params.SetProgressToken("p1")
	if _, err := c.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= 3; step++ {
		p := <-progress
		if p.ProgressToken != "p1" || p.Progress != float64(step) || p.Total != 3 || p.Message != fmt.Sprintf("%d left", 3-step) {
			t.Errorf("step %d: %+v", step, p)
		}
	}
}

func TestSlowStopsWhenItIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	for name, arguments := range map[string]string{"slow": `{"ms":600000}`, "countdown": `{"from":2,"delay_ms":600000}`} {
		req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: name, Arguments: json.RawMessage(arguments)}}
		var err error
		if name == "slow" {
			_, err = slow(ctx, req, &struct{ MS *int64 }{new(int64(600000))})
		} else {
			_, err = countdown(ctx, req, &countdownInput{From: 2, DelayMS: 600000})
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}

func TestResourcesAreRead(t *testing.T) {
	c := connect(t, nil)
	for uri, want := range map[string]string{
		"demo://greeting":      "Hello, world!",
		"demo://greet/Ada":     "Hello, Ada!",
		"demo://greet/J%C3%B6": "Hello, Jö!",
	} {
		got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || len(got.Contents) != 1 || got.Contents[0].Text != want || got.Contents[0].URI != uri {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
	for _, uri := range []string{"demo://nothing", "demo://greet/"} {
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s: no error", uri)
		}
	}
	templates, err := c.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != "demo://greet/{name}" {
		t.Errorf("templates: %+v, %v", templates, err)
	}
}

func TestThePromptNeedsItsTopic(t *testing.T) {
	c := connect(t, nil)
	got, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "poem", Arguments: map[string]string{"topic": "rain"}})
	if err != nil {
		t.Fatal(err)
	}
	content, ok := got.Messages[0].Content.(*mcp.TextContent)
	if !ok || content.Text != "Write a short poem about rain, in the style of free verse." {
		t.Errorf("got %+v", got.Messages[0].Content)
	}
	_, err = c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "poem"})
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("without its topic: %v", err)
	}
}

func TestCompletionProposesWhatBeginsWithTheValue(t *testing.T) {
	c := connect(t, nil)
	prompt, template := &mcp.CompleteReference{Type: "ref/prompt", Name: "poem"}, &mcp.CompleteReference{Type: "ref/resource", URI: "demo://greet/{name}"}
	for _, tt := range []struct {
		ref             *mcp.CompleteReference
		argument, value string
		want            []string
	}{
		{prompt, "style", "", []string{"ballad", "free verse", "haiku", "limerick", "sonnet"}},
		{prompt, "style", "HA", []string{"haiku"}},
		{prompt, "topic", "r", []string{"rain"}},
		{prompt, "nothing", "", []string{}},
		{template, "name", "a", []string{"Ada", "Alan"}},
	} {
		got, err := c.Complete(t.Context(), &mcp.CompleteParams{Ref: tt.ref, Argument: mcp.CompleteParamsArgument{Name: tt.argument, Value: tt.value}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.Completion.Values); diff != "" {
			t.Errorf("%s %q: (-want +got)\n%s", tt.argument, tt.value, diff)
		}
	}
}

// post sends one modern request and returns the body of the answer.
func post(t *testing.T, url, method, name, params string) string {
	t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + meta + `}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", method)
	if name != "" {
		req.Header.Set("Mcp-Name", name)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(answer))
}

func startHTTP(t *testing.T, o Options) string {
	t.Helper()
	srv := httptest.NewServer(Handler(o))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	return srv.URL
}

func TestOverHTTPEveryDigitIsOnTheWire(t *testing.T) {
	url := startHTTP(t, Options{})
	for name, want := range map[string]string{
		"big_number": `"structuredContent":{"value":9007199254740993}`,
		"add":        `"structuredContent":{"sum":9007199254740993}`,
	} {
		arguments := map[string]string{"big_number": "{}", "add": `{"a":9007199254740992,"b":1}`}[name]
		if got := post(t, url, "tools/call", name, `"name":"`+name+`","arguments":`+arguments+`,`); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTheStatelessServerSpeaksTheModernRevision(t *testing.T) {
	if got := post(t, startHTTP(t, Options{}), "server/discover", "", ""); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"2026-07-28"`) {
		t.Errorf("stateless: %s", got)
	}
	if got := post(t, startHTTP(t, Options{Stateful: true}), "server/discover", "", ""); strings.Contains(got, `"2026-07-28"`) {
		t.Errorf("stateful: %s", got)
	}
}

func TestTheStatefulServerKeepsASession(t *testing.T) {
	for stateful, want := range map[bool]bool{true: true, false: false} {
		c, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: startHTTP(t, Options{Stateful: stateful})}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ID() != ""; got != want {
			t.Errorf("stateful %v: session id %q", stateful, c.ID())
		}
		if got := textOf(t, call(t, c, "echo", `{"text":"hi"}`)); got != "hi" {
			t.Errorf("stateful %v: %q", stateful, got)
		}
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func TestRunStdioServesAParentProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), stdioChild+"=1")
	cmd.Stderr = t.Output()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := textOf(t, call(t, c, "big_number", "{}")); got != "9007199254740993" {
		t.Errorf("got %q", got)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestMetaReturnsTheMetaOfTheCall(t *testing.T) {
	session := connect(t, nil)
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "meta", Meta: mcp.Meta{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})
	if err != nil {
		t.Fatal(err)
	}
	if text := textOf(t, res); !strings.Contains(text, "0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("got %s", text)
	}
}

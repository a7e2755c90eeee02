package zoo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// A server that was restarted does not know the session any more, and each says so in its own way: 400 with -32000
// (server-everything), 404 with -32001 (mcp-proxy, supergateway), 404 as text (go-sdk); mcp-go takes any session.
func TestASessionThatARestartForgotIsReplacedUnderTheCall(t *testing.T) {
	for _, s := range []struct {
		name, path      string
		program         func(port int) program
		tool, arguments string
		text            string
		refused         string // how the first tool call may fail; "" = not at all
		connects        int
	}{
		// -32000 may mean anything, so a tool is not called twice for it; a list is read again.
		{"server-everything", "/mcp", everythingOn("streamableHttp"), "echo", `{"message":"hi"}`, "Echo: hi", "rpc -32000 ", 3},
		{"mcp-proxy", "/mcp", proxyOn, "echo", `{"message":"hi"}`, "Echo: hi", "", 3},
		{"supergateway", "/mcp", gatewayOn("--outputTransport", "streamableHttp", "--stateful"), "read_graph", `{}`, "entities", "", 3},
		{"go-sdk", "/", gosdkOn("-stateless=false"), "test_simple_text", `{}`, "simple text", "", 3},
		{"mcp-go", "/mcp", mcpgoConformance, "test_simple_text", `{}`, "simple text", "", 1},
	} {
		t.Run(s.name, func(t *testing.T) {
			port := freePort(t)
			d := s.program(port).serve(t, port)
			c := dial(t, &transport.HTTP{URL: "http://" + d.address + s.path, Logger: logger(t)}, func(o *mcpclient.Options) {
				o.Version.Pin = legacy
				o.Cache.NoTools = true
				o.Reconnect.Interval = time.Second
			})
			c.mustCall(s.tool, s.arguments, s.text)

			d.kill()
			d.start(t)
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Errorf("list after a restart: %v", err)
			}
			c.mustCall(s.tool, s.arguments, s.text)

			d.kill()
			d.start(t)
			got := describe(c.call(s.tool, s.arguments))
			if !strings.Contains(got, s.text) && (s.refused == "" || !strings.HasPrefix(got, s.refused)) {
				t.Errorf("call after a restart: got %s", got)
			}
			c.mustCall(s.tool, s.arguments, s.text)
			if n := c.Status().Connects; n < s.connects {
				t.Errorf("%d connections, want %d", n, s.connects)
			}
		})
	}
}

// A page of an Express server, or a text of net/http, is no JSON-RPC; callers must not see its markup.
func TestAWrongPathIsAnHTTPErrorWithoutTheServersPage(t *testing.T) {
	for name, p := range map[string]func(port int) program{
		"HTML of server-everything": everythingOn("streamableHttp"), "HTML of supergateway": gatewayOn("--outputTransport", "streamableHttp"),
		"mcp-proxy": proxyOn, "text of mcp-go": mcpgoConformance,
	} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			d := p(port).serve(t, port)
			c := dial(t, &transport.HTTP{URL: "http://" + d.address + "/nowhere", Logger: logger(t)}, nil)
			began := time.Now()
			_, err := c.call("echo", `{}`)
			e, ok := asError(err)
			if !ok || e.Status != 404 || e.Sent && e.SafeToRetry || strings.ContainsAny(e.Message, "<>") {
				t.Errorf("got %v (%+v), want an error of status 404", err, e)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Servers have an id space of their own: server-everything's first question has id 0, the next 1, while our calls with
// the same ids are in flight.
func TestQuestionsOfTheServerDoNotMixWithOurCalls(t *testing.T) {
	for name, target := range map[string]func(*testing.T) transport.Transport{
		"stdio": stdio(npm(serverEverything, "stdio")), "HTTP": http("/mcp", everythingOn("streamableHttp")),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, target(t), nil)
			c.connect()
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					switch i % 3 {
					case 0:
						c.mustCall("trigger-sampling-request", `{"prompt":"what?","maxTokens":9}`, "forty-two")
					case 1:
						c.mustCall("trigger-elicitation-request", `{}`, "declined")
					default:
						c.mustCall("echo", fmt.Sprintf(`{"message":"number %d"}`, i), fmt.Sprintf("Echo: number %d", i))
					}
				})
			}
			wg.Wait()
			c.mustCall("get-roots-list", `{}`, "file:///tmp")
		})
	}
}

// server-everything reports a change for each tool that it adds after the handshake, and a list that was read in
// between must not survive.
func TestAStormOfChangesLeavesTheNewestList(t *testing.T) {
	c := dial(t, npm(serverEverything, "stdio").stdio(t), nil)
	checkList(t, "tools", 16, c.ListTools)
	c.await("notifications/tools/list_changed", 3)
}

// The go-sdk ends at a line that is not JSON, so two calls must never mix their bytes.
func TestManyCallsAtOnceDoNotMixOnOnePipe(t *testing.T) {
	for name, s := range map[string]struct {
		program program
		tool    string
		text    string
	}{
		"go-sdk": {binary("gosdk-everything"), "test_simple_text", "simple text"}, "mcp-go": {binary("mcpgo-everything"), "echo", "Echo: "},
		"TypeScript": {npm(serverEverything, "stdio"), "echo", "Echo: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s.program.stdio(t), nil)
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					filler := strings.Repeat(fmt.Sprint(i%10), 1<<(i%17))
					want := s.text
					if s.tool == "echo" {
						want += filler
					}
					c.mustCall(s.tool, `{"message":"`+filler+`"}`, want)
				})
			}
			wg.Wait()
			if n := c.Status().Connects; n != 1 {
				t.Errorf("%d connections, want one", n)
			}
		})
	}
}

// A server that is slow to start answers the probe after the client gave it up. The go-sdk then refuses the handshake
// ("duplicate initialize", code 0); others take it. Either way the client must end up connected.
func TestAProbeThatIsAnsweredTooLateDoesNoHarm(t *testing.T) {
	for name, s := range map[string]struct {
		program program
		tool    string
		text    string
	}{
		"go-sdk": {binary("gosdk-everything"), "test_simple_text", "simple text"}, "mcp-go": {binary("mcpgo-everything"), "echo", "Echo: hi"},
		"TypeScript 1": {npm(serverEverything, "stdio"), "echo", "Echo: hi"},
		"TypeScript 2": {npm(context7), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s.program.stdio(t), func(o *mcpclient.Options) {
				o.Version.DetectTimeout = time.Millisecond
				o.Reconnect.Interval = time.Second
			})
			c.connect()
			if s.tool != "" {
				c.mustCall(s.tool, `{"message":"hi"}`, s.text)
			}
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Errorf("list: %v", err)
			}
			t.Logf("%v %s after %d connections", c.Status().Server.Era, c.Status().Server.ProtocolVersion, c.Status().Connects)
		})
	}
}

func TestUnknownNamesAreTheServersErrors(t *testing.T) {
	for name, s := range map[string]struct {
		target           func(*testing.T) transport.Transport
		pin              string
		resource, prompt string
	}{
		"server-everything":  {stdio(npm(serverEverything, "stdio")), "", "rpc -32602", "rpc -32602"},
		"go-sdk, modern":     {http("/", gosdkOn()), modern, "rpc -32602", "rpc -32602"},
		"go-sdk, sessions":   {http("/", gosdkOn("-stateless=false")), legacy, "rpc -32602", "rpc -32602"},
		"go-sdk, 2024-11-05": {stdio(binary("gosdk-everything")), old, "rpc -32602", "rpc -32602"},
		"mcp-go, modern":     {http("/mcp", mcpgoConformance), modern, "rpc -32602", "rpc -32602"},
		"mcp-go, legacy":     {stdio(binary("mcpgo-everything")), legacy, "rpc -32002", "rpc -32602"},
		"mcp-proxy, modern":  {http("/mcp", proxyOn), modern, "rpc -32602", "rpc -32602"},
		"supergateway":       {http("/mcp", gatewayOn("--outputTransport", "streamableHttp")), "", "rpc -32602", "unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s.target(t), func(o *mcpclient.Options) { o.Version.Pin = s.pin })
			if got := describe(c.ReadResource(t.Context(), "nowhere://x", nil)); !strings.HasPrefix(got, s.resource+" ") {
				t.Errorf("a resource: got %s, want %s", got, s.resource)
			}
			if got := describe(c.GetPrompt(t.Context(), "no_such_prompt", nil, nil)); !strings.HasPrefix(got, s.prompt+" ") {
				t.Errorf("a prompt: got %s, want %s", got, s.prompt)
			}
			if n := c.Status().Connects; n != 1 {
				t.Errorf("%d connections, want one", n)
			}
		})
	}
}

// The go-sdk answers what it cannot decode with 400 and text, or with a JSON-RPC error; both end the call alone.
func TestArgumentsThatAreNoObjectHurtTheCallAlone(t *testing.T) {
	for name, target := range map[string]func(*testing.T) transport.Transport{
		"go-sdk, stdio": stdio(binary("gosdk-everything")), "go-sdk, stateless": http("/", gosdkOn()),
		"go-sdk, sessions": http("/", gosdkOn("-stateless=false")), "mcp-go": http("/mcp", mcpgoConformance),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, target(t), nil)
			c.connect()
			if got := describe(c.call("test_simple_text", `[1]`)); strings.Contains(got, "foreign") || strings.Contains(got, "internal") {
				t.Errorf("got %s", got)
			} else {
				t.Log(got)
			}
			c.mustCall("test_simple_text", `{}`, "simple text")
			if n := c.Status().Connects; n != 1 {
				t.Errorf("%d connections, want one", n)
			}
		})
	}
}

// Progress comes before the answer and in order; a server that reports progress nobody asked for does no harm.
func TestProgressArrivesInOrderBeforeTheAnswer(t *testing.T) {
	for name, s := range map[string]struct {
		target          func(*testing.T) transport.Transport
		tool, arguments string
		steps           int
	}{
		"server-everything, stdio": {stdio(npm(serverEverything, "stdio")), "trigger-long-running-operation", `{"duration":0.3,"steps":3}`, 3},
		"server-everything, HTTP":  {http("/mcp", everythingOn("streamableHttp")), "trigger-long-running-operation", `{"duration":0.3,"steps":3}`, 3},
		// These two often write the answer before the last step.
		"mcp-proxy":         {http("/mcp", proxyOn), "trigger-long-running-operation", `{"duration":0.3,"steps":3}`, 2},
		"mcp-go":            {http("/mcp", mcpgoConformance), "test_tool_with_progress", `{}`, 2},
		"go-sdk, stdio":     {stdio(binary("gosdk-everything")), "test_tool_with_progress", `{}`, 3},
		"go-sdk, stateless": {http("/", gosdkOn()), "test_tool_with_progress", `{}`, 3},
		"go-sdk, sessions":  {http("/", gosdkOn("-stateless=false")), "test_tool_with_progress", `{}`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s.target(t), nil)
			c.mustCall(s.tool, s.arguments, `"content"`)
			var mu sync.Mutex
			var seen []float64
			options := &mcpclient.CallOptions{Progress: func(_ context.Context, p mcpclient.Progress) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, p.Progress)
			}}
			got := describe(c.CallTool(t.Context(), s.tool, jsontext.Value(s.arguments), options))
			mu.Lock()
			defer mu.Unlock()
			if !strings.HasPrefix(got, "result ") || len(seen) < s.steps {
				t.Fatalf("got %s after the progress %v", got, seen)
			}
			for i := 1; i < len(seen); i++ {
				if seen[i] <= seen[i-1] {
					t.Errorf("progress %v", seen)
				}
			}
		})
	}
}

// The standard error of a server is banners and colours, and never part of the protocol.
func TestTheBannerOfAServerIsKeptForDiagnosis(t *testing.T) {
	target := npm(serverEverything, "stdio").stdio(t).(*transport.Command)
	c := dial(t, target, nil)
	c.mustCall("echo", `{"message":"hi"}`, "Echo: hi")
	if lines := target.StderrTail(); len(lines) == 0 || !strings.Contains(strings.Join(lines, "\n"), "STDIO") {
		t.Errorf("stderr: %q", lines)
	}
}

package zoo

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// The go-sdk server changes a resource every 3 s, and lists when its tools are called.
func TestChangesReachTheClientInEveryEra(t *testing.T) {
	for _, s := range []struct {
		name   string
		target func(*testing.T) transport.Transport
		pin    string
	}{
		{"go-sdk, modern HTTP", http("/", gosdkOn()), modern},
		{"go-sdk, modern stdio", stdio(binary("gosdk-everything")), modern},
		{"go-sdk, sessions", http("/", gosdkOn("-stateless=false")), ""},
		{"go-sdk, legacy stdio", stdio(binary("gosdk-everything")), legacy},
	} {
		t.Run(s.name, func(t *testing.T) {
			const uri = "test://watched-resource"
			updates := make(chan string, 100)
			c := dial(t, s.target(t), func(o *mcpclient.Options) {
				o.Version.Pin = s.pin
				o.Handlers.ResourceUpdated = func(_ context.Context, uri string) {
					select {
					case updates <- uri:
					default:
					}
				}
			})
			if err := c.SubscribeResource(t.Context(), uri); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				select {
				case got := <-updates:
					if got != uri {
						t.Errorf("%s changed", got)
					}
				case <-time.After(patience):
					t.Fatal("no update came")
				}
			}
			c.mustCall("test_trigger_tool_change", `{}`, "content")
			c.await("notifications/tools/list_changed", 1)
			c.mustCall("test_trigger_prompt_change", `{}`, "content")
			c.await("notifications/prompts/list_changed", 1)
			if err := c.UnsubscribeResource(t.Context(), uri); err != nil {
				t.Errorf("unsubscribe: %v", err)
			}
			if n := c.Status().Connects; n != 1 {
				t.Errorf("%d connections, want one", n)
			}
		})
	}
}

// Servers that speak HTTP+SSE alone answer a POST to the address of their stream with 404 or 405, as text or HTML.
func TestAnHTTPTransportFallsBackToTheOldOne(t *testing.T) {
	for _, s := range []struct {
		name, path      string
		program         func(port int) program
		tool, arguments string
		text            string
	}{
		{"server-everything", "/sse", everythingOn("sse"), "echo", `{"message":"hi"}`, "Echo: hi"},
		{"supergateway", "/sse", gatewayOn("--outputTransport", "sse"), "read_graph", `{}`, "entities"},
		{"mcp-proxy", "/sse", proxyOn, "echo", `{"message":"hi"}`, "Echo: hi"},
		{"go-sdk", "/greeter1", gosdkSSE, "greet1", `{"name":"zoo"}`, "zoo"},
		{"mcp-go", "/api/acme/sse", mcpgoDynamicPath, "echo", `{"message":"hi"}`, "Echo: hi"},
	} {
		t.Run(s.name, func(t *testing.T) {
			port := freePort(t)
			d := s.program(port).serve(t, port)
			url := strings.Replace("http://"+d.address+s.path, "127.0.0.1", "localhost", 1)
			c := dial(t, &transport.HTTP{URL: url, Logger: logger(t)}, func(o *mcpclient.Options) { o.Reconnect.Interval = 200 * time.Millisecond })
			c.mustCall(s.tool, s.arguments, s.text)
			if era := c.connect().Era; era != mcpclient.EraLegacy {
				t.Errorf("the era is %v", era)
			}

			d.kill()
			d.start(t)
			c.awaitConnections(2) // its stream has told the client, which comes back by itself
			c.mustCall(s.tool, s.arguments, s.text)
		})
	}
}

// mcp-go names its message endpoint by a host of its own; requests must not follow it to another origin.
func TestAnEndpointOfAnotherOriginIsRefused(t *testing.T) {
	port := freePort(t)
	d := mcpgoDynamicPath(port).serve(t, port)
	c := dial(t, &transport.SSE{URL: "http://" + d.address + "/api/acme/sse", Logger: logger(t)}, nil)
	_, err := c.call("echo", `{"message":"hi"}`)
	if e, ok := asError(err); !ok || !strings.Contains(err.Error(), "origin") {
		t.Errorf("got %v (%+v), want that the origin is refused", err, e)
	}
}

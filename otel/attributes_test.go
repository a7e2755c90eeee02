package bridgeotel

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// Semantic conventions v1.41.1: docs/gen-ai/mcp.md, and the registry for the
// general ones. A key that changes here changes every user's queries.
func TestAttributeKeysAreThoseOfTheConventions(t *testing.T) {
	for key, want := range map[attribute.Key]string{
		keyMethod:          "mcp.method.name",
		keyResourceURI:     "mcp.resource.uri",
		keyProtocolVersion: "mcp.protocol.version",
		keyTool:            "gen_ai.tool.name",
		keyPrompt:          "gen_ai.prompt.name",
		keyOperation:       "gen_ai.operation.name",
		keyRequestID:       "jsonrpc.request.id",
		keyTransport:       "network.transport",
		keyNetworkProtocol: "network.protocol.name",
		keyServerAddress:   "server.address",
		keyServerPort:      "server.port",
		keyErrorType:       "error.type",
		keyRPCStatus:       "rpc.response.status_code",
		keyHTTPStatus:      "http.response.status_code",
		keyTarget:          "mcpbridge.target",
		keyAttempt:         "mcpbridge.attempt",
	} {
		if string(key) != want {
			t.Errorf("key %q, want %q", key, want)
		}
	}
	values := []string{operationExecuteTool, transportTCP, transportPipe, transportUnix, protocolHTTP, errorTool, errorTimeout, errorCanceled, errorOther}
	want := []string{"execute_tool", "tcp", "pipe", "unix", "http", "tool_error", "timeout", "canceled", "_OTHER"}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestTheNamesOfTransportsAreTheClientsOnes(t *testing.T) {
	got := []string{nameHTTP, nameSSE, nameStdio, nameUnix, nameTCP}
	want := []string{transport.NameHTTP, transport.NameSSE, transport.NameStdio, transport.NameUnix, transport.NameTCP}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorTypesOfTheClientsKindsAreTheConventionsOnes(t *testing.T) {
	if got := mcpclient.KindTimeout.String(); got != errorTimeout {
		t.Errorf("KindTimeout is %q, want %q", got, errorTimeout)
	}
	if got := mcpclient.KindCanceled.String(); got != errorCanceled {
		t.Errorf("KindCanceled is %q, want %q", got, errorCanceled)
	}
}

func TestSpansCarryTheAttributesOfTheirMethod(t *testing.T) {
	for _, tt := range []struct {
		name     string
		call     mcpclient.Call
		spanName string
		want     map[string]any
	}{
		{
			name: "a tool call over HTTP",
			call: mcpclient.Call{
				Method: "tools/call", Name: "get_weather", ID: jsonrpc.IntID(7), Attempt: 1,
				ProtocolVersion: "2026-07-28", Transport: "streamable_http", Endpoint: "mcp.example:8443",
			},
			spanName: "tools/call get_weather",
			want: map[string]any{
				"mcp.method.name": "tools/call", "gen_ai.tool.name": "get_weather", "gen_ai.operation.name": "execute_tool",
				"jsonrpc.request.id": "7", "mcp.protocol.version": "2026-07-28",
				"network.transport": "tcp", "network.protocol.name": "http",
				"server.address": "mcp.example", "server.port": int64(8443),
			},
		},
		{
			name: "a prompt over stdio",
			call: mcpclient.Call{
				Method: "prompts/get", Name: "greet", ID: jsonrpc.StringID("a-1"), Attempt: 2,
				ProtocolVersion: "2025-11-25", Transport: "stdio",
			},
			spanName: "prompts/get greet",
			want: map[string]any{
				"mcp.method.name": "prompts/get", "gen_ai.prompt.name": "greet", "jsonrpc.request.id": "a-1",
				"mcp.protocol.version": "2025-11-25", "network.transport": "pipe", "mcpbridge.attempt": int64(2),
			},
		},
		{
			name: "a resource, whose URI stays out of the name",
			call: mcpclient.Call{
				Method: "resources/read", Name: "file:///a/b.txt", ID: jsonrpc.IntID(1), Attempt: 1,
				Transport: "streamable_http", Endpoint: "[::1]:80",
			},
			spanName: "resources/read",
			want: map[string]any{
				"mcp.method.name": "resources/read", "mcp.resource.uri": "file:///a/b.txt", "jsonrpc.request.id": "1",
				"network.transport": "tcp", "network.protocol.name": "http", "server.address": "::1", "server.port": int64(80),
			},
		},
		{
			name:     "a list over a TCP socket, which is no HTTP",
			call:     mcpclient.Call{Method: "tools/list", ID: jsonrpc.IntID(2), Attempt: 1, Transport: "tcp", Endpoint: "10.0.0.1:9000"},
			spanName: "tools/list",
			want: map[string]any{
				"mcp.method.name": "tools/list", "jsonrpc.request.id": "2", "network.transport": "tcp",
				"server.address": "10.0.0.1", "server.port": int64(9000),
			},
		},
		{
			name:     "a list over a Unix socket",
			call:     mcpclient.Call{Method: "tools/list", ID: jsonrpc.IntID(2), Attempt: 1, Transport: "unix", Endpoint: "/run/mcp.sock"},
			spanName: "tools/list",
			want:     map[string]any{"mcp.method.name": "tools/list", "jsonrpc.request.id": "2", "network.transport": "unix", "server.address": "/run/mcp.sock"},
		},
		{
			name:     "a list in memory",
			call:     mcpclient.Call{Method: "tools/list", ID: jsonrpc.IntID(2), Attempt: 1, Transport: "memory"},
			spanName: "tools/list",
			want:     map[string]any{"mcp.method.name": "tools/list", "jsonrpc.request.id": "2"},
		},
		{
			name:     "a task, whose id is neither tool nor prompt",
			call:     mcpclient.Call{Method: "tasks/get", Name: "task-9", ID: jsonrpc.IntID(3), Attempt: 1, Transport: "stdio"},
			spanName: "tasks/get",
			want:     map[string]any{"mcp.method.name": "tasks/get", "jsonrpc.request.id": "3", "network.transport": "pipe"},
		},
		{
			name:     "a notification, which has no id",
			call:     mcpclient.Call{Method: "notifications/cancelled", Attempt: 1, Transport: "stdio"},
			spanName: "notifications/cancelled",
			want:     map[string]any{"mcp.method.name": "notifications/cancelled", "network.transport": "pipe"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := spanName(&tt.call); got != tt.spanName {
				t.Errorf("span name %q, want %q", got, tt.spanName)
			}
			if diff := cmp.Diff(tt.want, plain(callAttributes(nil, &tt.call))); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEndpointsSplitIntoAddressAndPort(t *testing.T) {
	for endpoint, want := range map[string]struct {
		host string
		port int
	}{
		"a.example:443": {"a.example", 443},
		"a.example":     {"a.example", 0},
		"[fe80::1]:80":  {"fe80::1", 80},
		"[fe80::1]":     {"fe80::1", 0},
		"a.example:x":   {"a.example", 0},
	} {
		if host, port := splitEndpoint(endpoint); host != want.host || port != want.port {
			t.Errorf("%q gives %q and %d, want %q and %d", endpoint, host, port, want.host, want.port)
		}
	}
}

func TestLongOrBrokenTextsAreClipped(t *testing.T) {
	for name, s := range map[string]string{
		"short":                  "get_weather",
		"long":                   strings.Repeat("x", 1<<20),
		"cut inside a character": strings.Repeat("x", maxText-1) + "€€",
		"no UTF-8":               "a\xffb",
		"long and no UTF-8":      strings.Repeat("\x80", 4*maxText),
	} {
		got := clip(s)
		if !utf8.ValidString(got) || len(got) > 3*maxText {
			t.Errorf("%s: %d bytes, valid UTF-8: %t", name, len(got), utf8.ValidString(got))
		}
		if len(s) <= maxText && utf8.ValidString(s) && got != s {
			t.Errorf("%s: became %q", name, got)
		}
	}
	if got := clip(strings.Repeat("x", maxText-1) + "€€"); got != strings.Repeat("x", maxText-1) {
		t.Errorf("cut inside a character leaves %q at the end", got[maxText-4:])
	}
}

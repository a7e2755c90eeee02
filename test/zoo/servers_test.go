package zoo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// none stands for a list whose capability the server does not declare.
const none = -1

// server is one row of the zoo.
type server struct {
	name string
	dial func(t *testing.T) transport.Transport
	pin  string // a protocol version to insist on; "" = detect

	era     mcpclient.Era
	version string
	// tools, resources, templates and prompts that it lists
	tools, resources, templates, prompts int
	// a call, and what its outcome begins with and contains; see describe
	tool, arguments, outcome, text string
	// unknown is how the outcome of a call of an unknown tool begins
	unknown string
}

// pinned is the same server, spoken to in one version.
func (s server) pinned(version string, era mcpclient.Era) server {
	s.name += " at " + version
	s.pin, s.version, s.era = version, version, era
	return s
}

const (
	modern, legacy, old = "2026-07-28", "2025-11-25", "2024-11-05"

	serverEverything = "@modelcontextprotocol/server-everything/dist/index.js"
	serverFilesystem = "@modelcontextprotocol/server-filesystem/dist/index.js"
	serverMemory     = "@modelcontextprotocol/server-memory/dist/index.js"
	serverGitHub     = "@modelcontextprotocol/server-github/dist/index.js"
	context7         = "@upstash/context7-mcp/dist/index.js"
	excel            = "@negokaz/excel-mcp-server/dist/launcher.js"
	mcpProxy         = "mcp-proxy/dist/bin/mcp-proxy.mjs"
	supergateway     = "supergateway/dist/index.js"
)

// stdio starts a program for each connection.
func stdio(p program) func(t *testing.T) transport.Transport {
	return p.stdio
}

// http runs a program, given a free port, and connects to a path.
func http(path string, p func(port int) program) func(t *testing.T) transport.Transport {
	return func(t *testing.T) transport.Transport {
		t.Helper()
		port := freePort(t)
		d := p(port).serve(t, port)
		return &transport.HTTP{URL: "http://" + d.address + path, Logger: logger(t)}
	}
}

// sse is http for servers of the old transport, HTTP+SSE.
func sse(path string, p func(port int) program) func(t *testing.T) transport.Transport {
	return func(t *testing.T) transport.Transport {
		t.Helper()
		port := freePort(t)
		d := p(port).serve(t, port)
		// mcp-go names itself by this host, and the messages must go to where the stream is
		url := strings.Replace("http://"+d.address+path, "127.0.0.1", "localhost", 1)
		return &transport.SSE{URL: url, Logger: logger(t)}
	}
}

func gosdkSSE(port int) program {
	return binary("gosdk-sse", "-host", "127.0.0.1", "-port", fmt.Sprint(port))
}

func mcpgoDynamicPath(port int) program {
	return binary("mcpgo-dynamic-path", "-addr", fmt.Sprint(":", port))
}

func everythingOn(mode string) func(port int) program {
	return func(port int) program { return npm(serverEverything, mode).with("PORT", port) }
}

func gosdkOn(flags ...string) func(port int) program {
	return func(port int) program {
		return binary("gosdk-everything", append(flags, "-http", fmt.Sprint("127.0.0.1:", port))...)
	}
}

func mcpgoConformance(port int) program {
	return binary("mcpgo-conformance").with("CONFORMANCE_ADDR", fmt.Sprint("127.0.0.1:", port))
}

func context7On(port int) program {
	return npm(context7, "--transport", "http", "--port", fmt.Sprint(port))
}

func proxyOn(port int) program {
	return npm(mcpProxy, "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--", "node", cached("npm", "node_modules", serverEverything), "stdio")
}

func gatewayOn(flags ...string) func(port int) program {
	return func(port int) program {
		inner := "node " + cached("npm", "node_modules", serverMemory)
		return npm(supergateway, append([]string{"--stdio", inner, "--port", fmt.Sprint(port), "--logLevel", "none"}, flags...)...)
	}
}

func zoo(t *testing.T) []server {
	everything := server{
		version: legacy, era: mcpclient.EraLegacy, tools: 16, resources: 7, templates: 2, prompts: 4,
		tool: "echo", arguments: `{"message":"hi"}`, outcome: "result", text: "Echo: hi", unknown: "isError",
	}
	memory := server{
		version: legacy, era: mcpclient.EraLegacy, tools: 9, resources: 1, templates: 0, prompts: none,
		tool: "read_graph", outcome: "result", text: `"entities"`, unknown: "isError",
	}
	resolver := server{ // its tools need the Internet, so only the unknown one is called
		version: modern, era: mcpclient.EraModern, tools: 2, resources: 0, templates: 0, prompts: 0, unknown: "rpc -32602",
	}
	proxy := everything
	proxy.version, proxy.era, proxy.tools = modern, mcpclient.EraModern, 13
	proxySSE := proxy
	proxySSE.version, proxySSE.era = legacy, mcpclient.EraLegacy
	gosdk := server{
		version: modern, era: mcpclient.EraModern, tools: 28, resources: 3, templates: 1, prompts: 5,
		tool: "test_simple_text", outcome: "result", text: "simple text", unknown: "rpc -32602",
	}
	gosdkLegacy := gosdk
	gosdkLegacy.version, gosdkLegacy.era = legacy, mcpclient.EraLegacy
	mcpgo := server{
		version: modern, era: mcpclient.EraModern, tools: 6, resources: 101, templates: 1, prompts: 2,
		tool: "echo", arguments: `{"message":"hi"}`, outcome: "result", text: "Echo: hi", unknown: "rpc -32602",
	}
	mcpgoHTTP := mcpgo
	mcpgoHTTP.tools, mcpgoHTTP.resources, mcpgoHTTP.prompts = 12, 2, 4
	mcpgoHTTP.tool, mcpgoHTTP.arguments, mcpgoHTTP.text = "test_simple_text", "", "simple text"

	row := func(name string, s server, dial func(t *testing.T) transport.Transport) server {
		s.name, s.dial = name, dial
		return s
	}
	return []server{
		row("server-everything over stdio", everything, stdio(npm(serverEverything, "stdio"))),
		row("server-everything over HTTP", everything, http("/mcp", everythingOn("streamableHttp"))),
		row("server-filesystem", server{
			version: legacy, era: mcpclient.EraLegacy, tools: 14, resources: none, templates: none, prompts: none,
			tool: "list_allowed_directories", outcome: "result", text: "Allowed directories", unknown: "isError",
		}, func(t *testing.T) transport.Transport { return npm(serverFilesystem, t.TempDir()).stdio(t) }),
		row("server-memory", memory, stdio(npm(serverMemory).with("MEMORY_FILE_PATH", t.TempDir()+"/memory.jsonl"))),
		row("server-github", server{
			version: old, era: mcpclient.EraLegacy, tools: 26, resources: none, templates: none, prompts: none,
			tool: "create_branch", arguments: `{}`, outcome: "rpc -32603", text: "Invalid input", unknown: "rpc -32603",
		}, stdio(npm(serverGitHub))),
		row("context7 over stdio", resolver, stdio(npm(context7))),
		row("context7 over stdio", resolver, stdio(npm(context7))).pinned(legacy, mcpclient.EraLegacy),
		row("context7 over HTTP", resolver, http("/mcp", context7On)),
		row("context7 over HTTP", resolver, http("/mcp", context7On)).pinned(legacy, mcpclient.EraLegacy),
		row("mcp-proxy", proxy, http("/mcp", proxyOn)),
		row("mcp-proxy", proxy, http("/mcp", proxyOn)).pinned(legacy, mcpclient.EraLegacy),
		row("supergateway", memory, http("/mcp", gatewayOn("--outputTransport", "streamableHttp", "--stateful"))),
		row("supergateway without sessions", memory, http("/mcp", gatewayOn("--outputTransport", "streamableHttp"))),
		row("server-everything over HTTP+SSE", everything, sse("/sse", everythingOn("sse"))),
		row("mcp-proxy over HTTP+SSE", proxySSE, sse("/sse", proxyOn)),
		row("supergateway over HTTP+SSE", memory, sse("/sse", gatewayOn("--outputTransport", "sse"))),
		row("go-sdk over HTTP+SSE", server{
			version: legacy, era: mcpclient.EraLegacy, tools: 1, resources: none, templates: none, prompts: none,
			tool: "greet1", arguments: `{"name":"zoo"}`, outcome: "result", text: "zoo", unknown: "rpc -32602",
		}, sse("/greeter1", gosdkSSE)),
		row("mcp-go over HTTP+SSE", server{ // which the newer era left behind, but this server serves it there
			version: modern, era: mcpclient.EraModern, tools: 1, resources: none, templates: none, prompts: none,
			tool: "echo", arguments: `{"message":"hi"}`, outcome: "result", text: "Echo: hi", unknown: "rpc -32602",
		}, sse("/api/acme/sse", mcpgoDynamicPath)),
		row("excel", server{
			version: "2025-03-26", era: mcpclient.EraLegacy, tools: 6, resources: none, templates: none, prompts: none,
			tool: "excel_describe_sheets", arguments: `{"fileAbsolutePath":"/nowhere.xlsx"}`, outcome: "rpc -32603", text: "no such file", unknown: "rpc -32602",
		}, stdio(npm(excel))),
		row("go-sdk over stdio", gosdk, stdio(binary("gosdk-everything"))),
		row("go-sdk over stdio", gosdk, stdio(binary("gosdk-everything"))).pinned(legacy, mcpclient.EraLegacy),
		row("go-sdk over HTTP", gosdk, http("/", gosdkOn())),
		row("go-sdk over HTTP", gosdk, http("/", gosdkOn())).pinned(old, mcpclient.EraLegacy),
		row("go-sdk over HTTP with sessions", gosdkLegacy, http("/", gosdkOn("-stateless=false"))),
		row("mcp-go over stdio", mcpgo, stdio(binary("mcpgo-everything"))),
		row("mcp-go over stdio", mcpgo, stdio(binary("mcpgo-everything"))).pinned(legacy, mcpclient.EraLegacy),
		row("mcp-go over HTTP", mcpgoHTTP, http("/mcp", mcpgoConformance)),
		row("mcp-go over HTTP", mcpgoHTTP, http("/mcp", mcpgoConformance)).pinned(legacy, mcpclient.EraLegacy),
	}
}

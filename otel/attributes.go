package bridgeotel

import (
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// Attribute keys of the MCP semantic conventions, core v1.41.1, docs/gen-ai/mcp.md.
// They are our own constants because newer semconv packages of otel-go no
// longer have them; a test pins their text.
const (
	keyMethod          = attribute.Key("mcp.method.name")
	keyResourceURI     = attribute.Key("mcp.resource.uri")
	keyProtocolVersion = attribute.Key("mcp.protocol.version")
	keyTool            = attribute.Key("gen_ai.tool.name")
	keyPrompt          = attribute.Key("gen_ai.prompt.name")
	keyOperation       = attribute.Key("gen_ai.operation.name")
	keyRequestID       = attribute.Key("jsonrpc.request.id")
	keyTransport       = attribute.Key("network.transport")
	keyNetworkProtocol = attribute.Key("network.protocol.name")
	keyServerAddress   = attribute.Key("server.address")
	keyServerPort      = attribute.Key("server.port")
	keyErrorType       = attribute.Key("error.type")
	keyRPCStatus       = attribute.Key("rpc.response.status_code")
	keyHTTPStatus      = attribute.Key("http.response.status_code")

	// Ours: the target's name in the configuration, and the number of an attempt
	// from the second on.
	keyTarget  = attribute.Key("mcpbridge.target")
	keyAttempt = attribute.Key("mcpbridge.attempt")
)

// Values of those attributes.
const (
	operationExecuteTool = "execute_tool"
	transportTCP         = "tcp"
	transportPipe        = "pipe"
	transportUnix        = "unix"
	protocolHTTP         = "http"
	errorTool            = "tool_error"
	errorTimeout         = "timeout"
	errorCanceled        = "canceled"
	errorOther           = "_OTHER"
)

// Methods whose name is something other than a plain method name.
const (
	methodCallTool    = "tools/call"
	methodGetPrompt   = "prompts/get"
	methodRead        = "resources/read"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodGetTask     = "tasks/get"
	methodUpdateTask  = "tasks/update"
	methodCancelTask  = "tasks/cancel"
)

// Values of mcpclient.Call.Transport, as package transport has them.
const (
	nameHTTP  = "streamable_http"
	nameSSE   = "sse"
	nameStdio = "stdio"
	nameUnix  = "unix"
	nameTCP   = "tcp"
)

// maxText bounds, in bytes, every text that callers or servers chose: names and
// error messages may be megabytes long.
const maxText = 1024

// spanName is "{method} {target}"; the target is a tool or a prompt, never a
// URI, of which there are too many.
func spanName(call *mcpclient.Call) string {
	if call.Name != "" && (call.Method == methodCallTool || call.Method == methodGetPrompt) {
		return call.Method + " " + clip(call.Name)
	}
	return call.Method
}

// callAttributes appends what is known before the request is sent.
func callAttributes(dst []attribute.KeyValue, call *mcpclient.Call) []attribute.KeyValue {
	dst = append(dst, keyMethod.String(call.Method))
	switch call.Method {
	case methodCallTool:
		dst = append(dst, keyOperation.String(operationExecuteTool), keyTool.String(clip(call.Name)))
	case methodGetPrompt:
		dst = append(dst, keyPrompt.String(clip(call.Name)))
	case methodRead, methodSubscribe, methodUnsubscribe:
		dst = append(dst, keyResourceURI.String(clip(call.Name)))
	}
	if !call.IsNotification() {
		dst = append(dst, keyRequestID.String(clip(call.ID.String())))
	}
	if call.ProtocolVersion != "" {
		dst = append(dst, keyProtocolVersion.String(clip(call.ProtocolVersion)))
	}
	if call.Attempt > 1 {
		dst = append(dst, keyAttempt.Int(call.Attempt))
	}
	return networkAttributes(dst, call.Transport, call.Endpoint)
}

// networkAttributes appends how a server is reached; in memory there is no
// network.
func networkAttributes(dst []attribute.KeyValue, transportName, endpoint string) []attribute.KeyValue {
	switch transportName {
	case nameStdio:
		return append(dst, keyTransport.String(transportPipe))
	case nameUnix:
		return append(dst, keyTransport.String(transportUnix), keyServerAddress.String(clip(endpoint)))
	case nameHTTP, nameSSE:
		dst = append(dst, keyTransport.String(transportTCP), keyNetworkProtocol.String(protocolHTTP))
	case nameTCP:
		dst = append(dst, keyTransport.String(transportTCP))
	default:
		return dst
	}
	host, port := splitEndpoint(endpoint)
	dst = append(dst, keyServerAddress.String(host))
	if port > 0 {
		dst = append(dst, keyServerPort.Int(port))
	}
	return dst
}

// splitEndpoint separates "host:port", "host" and "[v6]:port"; port is 0 when
// there is none.
func splitEndpoint(endpoint string) (host string, port int) {
	host, text, err := net.SplitHostPort(endpoint)
	if err != nil {
		return strings.Trim(endpoint, "[]"), 0
	}
	port, err = strconv.Atoi(text)
	if err != nil {
		return host, 0
	}
	return host, port
}

// clip bounds s to maxText bytes of valid UTF-8: one broken string would make
// the exporter lose the whole batch.
func clip(s string) string {
	if len(s) > maxText {
		cut := maxText
		for cut > maxText-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

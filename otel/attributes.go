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
	keyAttempt         = attribute.Key("mcpbridge.attempt") // ours: set from the second attempt on
)

// Values of those attributes.
const (
	operationExecuteTool = "execute_tool"
	transportTCP         = "tcp"
	transportPipe        = "pipe"
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
	switch {
	case call.Endpoint != "":
		dst = append(dst, keyTransport.String(transportTCP), keyNetworkProtocol.String(protocolHTTP))
		host, port := splitEndpoint(call.Endpoint)
		dst = append(dst, keyServerAddress.String(host))
		if port > 0 {
			dst = append(dst, keyServerPort.Int(port))
		}
	case call.Transport == "stdio":
		dst = append(dst, keyTransport.String(transportPipe))
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

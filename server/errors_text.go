package server

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// about begins a text with the target and the call.
func (s scope) about(text string) string {
	call := s.method
	if call != "" && s.name != "" {
		call += " " + quote(s.name)
	}
	if call != "" {
		text = call + ": " + text
	}
	return s.aboutTarget(text)
}

func (s scope) aboutTarget(text string) string {
	if s.target == "" {
		return text
	}
	return "target " + quote(s.target) + ": " + text
}

// requiredCapabilities names the members of data.requiredCapabilities, with
// their own members (2026-07-28 schema, MissingRequiredClientCapabilityError).
func requiredCapabilities(data jsontext.Value) string {
	var names []string
	for name, value := range members(memberOf(data, "requiredCapabilities")) {
		var inner []string
		for key := range members(value) {
			inner = append(inner, key)
		}
		if len(inner) > 0 {
			name += " (" + strings.Join(inner, ", ") + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "a capability it does not name"
	}
	return cut(strings.Join(names, ", "), 200)
}

// supportedVersions names data.supported (2026-07-28 schema,
// UnsupportedProtocolVersionError).
func supportedVersions(data jsontext.Value) string {
	var versions []string
	for value := range elements(memberOf(data, "supported")) {
		if text, ok := unquote(value); ok {
			versions = append(versions, text)
		}
	}
	if len(versions) == 0 {
		return ""
	}
	return cut(": "+strings.Join(versions, ", "), 200)
}

// placeholder is the target's name inside the name of a setting.
func placeholder(target string) string {
	if target == "" {
		return "NAME"
	}
	return cut(target, 64)
}

// quote writes a name in quotes, shortened, control characters escaped.
func quote(name string) string { return strconv.Quote(cut(name, 100)) }

// quoteLong is quote for a sentence.
func quoteLong(text string) string { return strconv.Quote(cut(text, 250)) }

// cut shortens text to at most limit bytes of valid UTF-8, with an ellipsis
// when something is missing.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	const ellipsis = "..."
	if limit <= len(ellipsis) {
		return cutExact(text, limit)
	}
	return cutExact(text, limit-len(ellipsis)) + ellipsis
}

// cutExact shortens text to at most limit bytes at a rune boundary.
func cutExact(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// notFound replaces an error about a name that the server's own fresh list
// does not have.
func (s scope) notFound(r reason, rpc *jsonrpc.Error, cause error) *failure {
	f := &failure{reason: r, rpc: rpc, cause: cause}
	what, list := "tool", "ToolsService.ListTools"
	switch r {
	case reasonPromptNotFound:
		what, list = "prompt", "PromptsService.ListPrompts"
	case reasonResourceNotFound:
		what, list = "resource", "ResourcesService.ListResources"
	case reasonTaskNotFound:
		f.message = s.aboutTarget("the server does not know a task " + quote(s.name) + "; it may have ended so long ago that the server forgot it, or belong to another target or mcp-bridge-affinity")
		return f
	default:
	}
	f.message = s.aboutTarget("there is no " + what + " " + quote(s.name) + "; " + list + " lists those it has")
	return f
}

// badReply is a result that does not have the form its method requires.
func (s scope) badReply(cause error) *failure {
	text := "the server's result does not have the form that MCP requires"
	if form, ok := errors.AsType[*convert.FormError](cause); ok {
		text += ": " + form.Problem
	}
	return &failure{reason: reasonUpstreamProtocol, message: s.about(text + "; report it to the server's maintainer"), cause: cause}
}

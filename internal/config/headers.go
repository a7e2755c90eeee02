package config

import (
	"maps"
	"slices"
	"strings"
)

// ownHeaders are set by the MCP transport or by net/http; a configured value
// would be overwritten or would break the exchange.
func ownHeaders() []string {
	return []string{
		"accept", "connection", "content-length", "content-type", "host", "last-event-id",
		"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "te", "trailer",
		"transfer-encoding", "upgrade",
	}
}

// headers checks names and values. No message quotes a value.
func (r *report) headers(key string, headers map[string]Secret) {
	seen := make(map[string]string, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at := entry(key, name)
		lower := strings.ToLower(name)
		switch {
		case name == "" || strings.IndexFunc(name, invalidInHeaderName) >= 0:
			r.add(at, "%q is not the name of an HTTP header", name)
		case slices.Contains(ownHeaders(), lower):
			r.add(at, "is set by the bridge itself; remove it")
		case seen[lower] != "":
			r.add(at, "is the same header as %s; keep one", seen[lower])
		}
		seen[lower] = name
		r.headerValue(at, headers[name].Reveal())
	}
}

func (r *report) headerValue(at, value string) {
	for _, c := range value {
		switch {
		case c > 0x7e:
			r.add(at, "contains a character outside ASCII, which HTTP headers cannot carry; encode it the way the server expects, such as Base64 or percent-encoding")
			return
		case c == '\n' || c == '\r':
			r.add(at, "contains a line break; remove it")
			return
		case c < ' ' && c != '\t':
			r.add(at, "contains a control character; remove it")
			return
		}
	}
	if value != strings.TrimSpace(value) {
		r.add(at, "begins or ends with white space, which HTTP drops; remove it")
	}
}

func invalidInHeaderName(c rune) bool {
	const marks = "!#$%&'*+-.^_`|~"
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune(marks, c))
}

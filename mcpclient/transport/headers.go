package transport

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Headers of the streamable HTTP transport.
const (
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerSession   = "Mcp-Session-Id"
	headerLastEvent = "Last-Event-Id"
)

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
	acceptPost = typeJSON + ", " + typeStream
)

const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// EncodeHeaderValue returns s in a form that is safe in an Mcp-Name or
// Mcp-Param-* header: s itself, or its Base64 in a sentinel when it holds
// anything but visible ASCII and inner spaces, or looks like a sentinel
// (2026-07-28 streamable HTTP, Value Encoding).
func EncodeHeaderValue(s string) string {
	if plainHeaderValue(s) {
		return s
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelEnd
}

// DecodeHeaderValue is the inverse of [EncodeHeaderValue], for servers.
func DecodeHeaderValue(s string) (string, error) {
	if !looksEncoded(s) {
		return s, nil
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(s, sentinelStart), sentinelEnd)
	b, err := base64.StdEncoding.DecodeString(inner)
	if err != nil {
		return "", fmt.Errorf("header value has the Base64 sentinel but is not Base64: %w", err)
	}
	return string(b), nil
}

func plainHeaderValue(s string) bool {
	if s == "" {
		return true
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s[0] != ' ' && s[len(s)-1] != ' ' && !looksEncoded(s)
}

func looksEncoded(s string) bool {
	return strings.HasPrefix(s, sentinelStart) && strings.HasSuffix(s, sentinelEnd)
}

// protocolHeader reports whether a header belongs to the protocol or to HTTP
// framing, so that users cannot set it.
func protocolHeader(canonical string) bool {
	switch canonical {
	case headerVersion, headerMethod, headerName, headerSession, headerLastEvent,
		"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Trailer", "Te", "Upgrade":
		return true
	}
	return false
}

// checkHeader refuses configured headers that HTTP cannot carry.
func checkHeader(h http.Header) error {
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("header name %q is not a valid HTTP token; remove spaces and special characters", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) || !ascii(v) {
				return fmt.Errorf("the value of header %s holds characters that HTTP does not allow; use visible ASCII", name)
			}
		}
	}
	return nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// addHeader adds users' headers to dst; those of the protocol are left out,
// and Accept is extended, not replaced.
func addHeader(dst, users http.Header) {
	for name, values := range users {
		if len(values) == 0 {
			continue
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch name {
		case "Host":
			continue // set on the request by the sender
		case "Accept":
			if accept := dst[name]; len(accept) > 0 {
				values = []string{accept[0] + ", " + strings.Join(values, ", ")}
			}
		case "Idempotency-Key", "X-Idempotency-Key":
			// net/http replays a POST that carries them in canonical form,
			// even after it was written: a tool could run twice.
			name = strings.ToLower(name)
		}
		if !protocolHeader(name) {
			dst[name] = values
		}
	}
}

// maxWait bounds every wait that a server may ask for.
const maxWait = 24 * time.Hour

// retryAfter reads a Retry-After header, in seconds or as a date; 0 = none.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxWait)
}

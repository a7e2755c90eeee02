package mcpclient

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// MetaSupplier adds members to the `_meta` of one outgoing request or
// notification. It is called for every one of them, per attempt, after the
// interceptors (so that a span they started is in ctx), and never for
// responses. The Meta already holds the caller's own members, which it may
// replace; the protocol's own keys are written after it and always win.
//
// An error fails the request before anything is sent; for a notification it
// is logged and the notification goes out without the supplier's members.
// It may be called from many goroutines at once.
type MetaSupplier func(ctx context.Context, call *Call, meta *Meta) error

// HeaderSupplier adds HTTP headers to one outgoing request or notification.
// It runs right after the [MetaSupplier] with the same ctx and is not called
// on transports without headers. Headers of the protocol itself win. It may be
// called from many goroutines at once.
type HeaderSupplier func(ctx context.Context, call *Call, header http.Header)

// Keys of `_meta` that the protocol reserves (2026-07-28 basic/index, `_meta`).
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaProgressToken      = "progressToken"
	MetaTraceparent        = "traceparent"
	MetaTracestate         = "tracestate"
	MetaBaggage            = "baggage"
)

// Meta is the `_meta` object of one message under construction: an ordered
// set of members. The zero value is empty and ready. It is not safe for
// concurrent use.
type Meta struct {
	members []metaMember
}

// usualMembers is how many members most messages have room for: three of the
// protocol, those of a trace, and a token.
const usualMembers = 6

type metaMember struct {
	key string
	raw jsontext.Value
}

// Set stores one JSON value under key, replacing an earlier one. The value is
// kept, not copied, and must be one valid JSON value without line breaks.
func (m *Meta) Set(key string, value jsontext.Value) {
	if i := m.index(key); i >= 0 {
		m.members[i].raw = value
		return
	}
	m.members = append(m.members, metaMember{key, value})
}

// SetString stores a string under key, replacing an earlier value.
func (m *Meta) SetString(key, value string) {
	m.Set(key, appendString(nil, value))
}

// Get returns the value under key.
func (m *Meta) Get(key string) (jsontext.Value, bool) {
	if i := m.index(key); i >= 0 {
		return m.members[i].raw, true
	}
	return nil, false
}

// GetString returns the string under key; "" when there is none or it is no
// string.
func (m *Meta) GetString(key string) string {
	raw, _ := m.Get(key)
	if raw.Kind() != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(s)
}

// Delete removes key.
func (m *Meta) Delete(key string) {
	if i := m.index(key); i >= 0 {
		m.members = slices.Delete(m.members, i, i+1)
	}
}

// Keys returns the keys in order.
func (m *Meta) Keys() []string {
	keys := make([]string, len(m.members))
	for i, member := range m.members {
		keys[i] = member.key
	}
	return keys
}

func (m *Meta) index(key string) int {
	for i := range m.members {
		if m.members[i].key == key {
			return i
		}
	}
	return -1
}

// setObject stores every member of a JSON object; null members are dropped,
// since the protocol never sends null in `_meta`.
func (m *Meta) setObject(object jsontext.Value) error {
	if len(object) == 0 {
		return nil
	}
	return eachMember(object, func(key string, value jsontext.Value) error {
		if value.Kind() != 'n' {
			m.Set(key, value)
		}
		return nil
	})
}

// appendMembers writes the members without braces, with a comma before each
// but the first when first is true.
func (m *Meta) appendMembers(dst []byte) []byte {
	for i, member := range m.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, member.key)
		dst = append(dst, ':')
		dst = append(dst, member.raw...)
	}
	return dst
}

// appendString writes s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	out, _ := jsontext.AppendQuote(dst, s) // the only error is invalid UTF-8, already replaced
	return out
}

// errNotObject says that a JSON object was expected.
func errNotObject(kind jsontext.Kind) error {
	return fmt.Errorf("expected a JSON object, got %s", kind)
}

package mcptest

import (
	"context"
	"slices"
)

// LoggingOptions script notifications/message.
type LoggingOptions struct {
	On          bool // declare the capability
	IgnoreLevel bool // send messages that nobody asked for
}

// levels are the log levels, least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogMessage sends notifications/message on the request's own stream, if its
// level was asked for: by logging/setLevel of the legacy session (without it all
// are), by `_meta` of the modern request (without it none is).
func (r *Request) LogMessage(level string, data any) {
	if r.server.Logging.IgnoreLevel || r.wantsLevel(level) {
		r.Notify("notifications/message", map[string]any{"level": level, "data": data})
	}
}

func (r *Request) wantsLevel(level string) bool {
	if r.Era == Legacy {
		return r.conn.wantsLevel(level)
	}
	least, ok := unquote(r.Meta("io.modelcontextprotocol/logLevel"))
	return ok && slices.Index(levels, level) >= slices.Index(levels, least)
}

// LogMessage sends notifications/message on the shared stream of each legacy
// connection that asked for its level.
func (s *Server) LogMessage(level string, data any) {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		if c.isLegacy() && (s.Logging.IgnoreLevel || c.wantsLevel(level)) {
			c.stream().send(notification("notifications/message", marshal(map[string]any{"level": level, "data": data})))
		}
	}
}

func (c *conn) wantsLevel(level string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Index(levels, level) >= slices.Index(levels, c.level)
}

// setLevel is the correct answer to logging/setLevel.
func setLevel(_ context.Context, r *Request) (any, error) {
	level := r.Text("level")
	if !slices.Contains(levels, level) {
		r.server.violate("logging/setLevel: %q is no level", level)
		return nil, &Error{Code: -32602, Message: "Invalid level"}
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.conn.level = level
	return Raw("{}"), nil
}

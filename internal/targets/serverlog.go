package targets

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// serverLogRate is how many log messages of one server are written a second.
const serverLogRate = 50

// maxServerLog bounds what one log message of a server may add to ours.
const maxServerLog = 4 << 10

// serverLog writes the log messages of a server to logger, which already names
// the target.
func serverLog(logger *slog.Logger, redact func(string) string) func(context.Context, mcpclient.LogMessage) {
	limit := rate.NewLimiter(serverLogRate, serverLogRate)
	var dropped atomic.Int64
	return func(ctx context.Context, m mcpclient.LogMessage) {
		level := severity(m.Level)
		if !logger.Enabled(ctx, level) {
			return
		}
		if !limit.Allow() {
			dropped.Add(1)
			return
		}
		if n := dropped.Swap(0); n > 0 {
			logger.WarnContext(ctx, "log messages of the server were dropped: there were too many", "dropped", n)
		}
		data := shorten(redact(string(m.Data)), maxServerLog)
		logger.LogAttrs(ctx, level, "the server logged a message",
			slog.String("severity", string(m.Level)), slog.String("logger", shorten(redact(m.Logger), 256)), slog.String("data", data))
	}
}

// severity maps the levels of MCP, which are those of syslog, to ours.
func severity(level mcpclient.LogLevel) slog.Level {
	switch level {
	case mcpclient.LogDebug:
		return slog.LevelDebug
	case mcpclient.LogWarning:
		return slog.LevelWarn
	case mcpclient.LogError, mcpclient.LogCritical, mcpclient.LogAlert, mcpclient.LogEmergency:
		return slog.LevelError
	case mcpclient.LogInfo, mcpclient.LogNotice:
	}
	return slog.LevelInfo // also for a level that MCP does not have
}

// shorten cuts text to at most limit bytes of valid UTF-8 and says so.
func shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	cut := limit
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

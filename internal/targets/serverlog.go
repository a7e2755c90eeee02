package targets

import (
	"context"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// maxServerLog bounds what one log message of a server may add to ours.
const maxServerLog = 4 << 10

// serverLog writes the log messages of a server to logger, which already names
// the target.
func serverLog(logger *slog.Logger, redact func(string) string) func(context.Context, mcpclient.LogMessage) {
	return func(ctx context.Context, m mcpclient.LogMessage) {
		level := severity(m.Level)
		if !logger.Enabled(ctx, level) {
			return
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

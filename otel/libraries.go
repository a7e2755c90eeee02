package bridgeotel

import (
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// errorLogInterval is how often an error of the libraries is logged.
const errorLogInterval = time.Minute

// LibraryLog writes what the OpenTelemetry libraries report, for lack of a
// caller, to the whole process. It is an otel.ErrorHandler, and [LibraryLog.Logger]
// makes the logger for otel.SetLogger. A program should set both before [Setup]
// and [SetupMetrics]; this package sets nothing globally. Its methods are safe
// for concurrent use.
type LibraryLog struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the following
	logged  time.Time
	leftOut int // since then
}

// NewLibraryLog writes to logger; nil discards.
func NewLibraryLog(logger *slog.Logger) *LibraryLog {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &LibraryLog{logger: logger}
}

// Handle logs an error, such as of baggage of a caller beyond the W3C limits: at
// most one a minute, because callers can cause them, and never with what the
// caller has sent.
func (l *LibraryLog) Handle(err error) {
	l.mu.Lock()
	if !l.logged.IsZero() && time.Since(l.logged) < errorLogInterval {
		l.leftOut++
		l.mu.Unlock()
		return
	}
	leftOut := l.leftOut
	l.leftOut, l.logged = 0, time.Now()
	l.mu.Unlock()
	l.logger.Warn("OpenTelemetry reports an error", "error", withoutInput(err), "left_out", leftOut)
}

// Logger is for otel.SetLogger: errors and warnings become warnings, what the
// libraries tell beside them is left out.
func (l *LibraryLog) Logger() logr.Logger { return logr.New(librarySink{l.logger}) }

// librarySink leaves out the values that come with a message, because they are
// often what was wrong in a variable, and so perhaps a secret.
type librarySink struct{ logger *slog.Logger }

// maxVerbosity is that of the libraries' warnings; errors have none.
const maxVerbosity = 1

func (librarySink) Init(logr.RuntimeInfo)  {}
func (librarySink) Enabled(level int) bool { return level <= maxVerbosity }
func (s librarySink) Info(_ int, msg string, keysAndValues ...any) {
	s.logger.Warn("OpenTelemetry reports a problem", append([]any{"problem", cut(msg)}, harmless(keysAndValues)...)...)
}

func (s librarySink) Error(err error, msg string, keysAndValues ...any) {
	attrs := append([]any{"problem", cut(msg)}, harmless(keysAndValues)...)
	if err != nil {
		attrs = append(attrs, "error", withoutInput(err))
	}
	s.logger.Warn("OpenTelemetry reports a problem", attrs...)
}

func (s librarySink) WithValues(...any) logr.LogSink { return s }
func (s librarySink) WithName(string) logr.LogSink   { return s }

// harmless keeps the names of variables and instruments.
func harmless(keysAndValues []any) []any {
	var kept []any
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		key, _ := keysAndValues[i].(string)
		value, isText := keysAndValues[i+1].(string)
		if isText && (key == "environment variable" || key == "name") {
			kept = append(kept, strings.ReplaceAll(key, " ", "_"), cut(value))
		}
	}
	return kept
}

// withoutInput is the text of an error of the libraries without the input that
// was wrong, which they quote.
func withoutInput(err error) string {
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		return number.Err.Error()
	}
	_, isURL := errors.AsType[*url.Error](err)
	_, isEscape := errors.AsType[url.EscapeError](err)
	text := err.Error()
	for _, mark := range []string{"baggage", "list-member", "tracestate", "invalid key", "invalid value", "invalid property", "invalid member"} {
		if strings.Contains(text, mark) {
			return "baggage or tracestate of a caller is not valid W3C or beyond its limits; what is wrong was left out"
		}
	}
	if (isURL && strings.HasPrefix(text, "parse ")) || isEscape {
		return "not a valid URL or escape"
	}
	return cut(text)
}

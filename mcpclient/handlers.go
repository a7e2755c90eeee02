package mcpclient

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Handlers answer what servers ask and receive what they report. All may be
// called from many goroutines at once; a panic in one is logged and fails only
// the message it was called for.
//
// The same handlers serve both eras: a legacy server sends requests of its
// own, a modern one embeds them in input_required results. Setting a handler
// declares its capability.
type Handlers struct {
	// Elicit asks the user (2026-07-28 client/elicitation). It is declared for
	// forms, and for URLs if ElicitURLs is set.
	Elicit     func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error)
	ElicitURLs bool
	// Sample asks a language model (2026-07-28 client/sampling): params and
	// result are the CreateMessageRequest params and CreateMessageResult.
	Sample func(ctx context.Context, params jsontext.Value) (result jsontext.Value, err error)
	// Roots returns the roots at the time of asking, in place of Options.Roots.
	Roots func(ctx context.Context) ([]Root, error)
	// Request answers further requests of legacy servers, by method.
	Request map[string]func(ctx context.Context, params jsontext.Value) (result jsontext.Value, err error)
	// Notification receives notifications by method, in order of arrival per
	// stream; "" receives those that have no handler of their own.
	Notification map[string]func(ctx context.Context, n Notification)
	// Log receives log messages that belong to no call that asked for its own.
	Log func(ctx context.Context, m LogMessage)
	// Progress receives the progress of every tool call that does not bring a
	// handler of its own. Setting it asks for progress on every tool call.
	Progress func(ctx context.Context, p Progress)
	// ResourceUpdated is told that a subscribed resource changed.
	ResourceUpdated func(ctx context.Context, uri string)
}

// Notification is one notification from the server.
type Notification struct {
	Method string
	Params jsontext.Value // nil = none
}

// LogLevel is the severity of a log message (RFC 5424, in lower case).
type LogLevel string

// The log levels, least severe first.
const (
	LogDebug     LogLevel = "debug"
	LogInfo      LogLevel = "info"
	LogNotice    LogLevel = "notice"
	LogWarning   LogLevel = "warning"
	LogError     LogLevel = "error"
	LogCritical  LogLevel = "critical"
	LogAlert     LogLevel = "alert"
	LogEmergency LogLevel = "emergency"
)

var logLevels = []LogLevel{LogDebug, LogInfo, LogNotice, LogWarning, LogError, LogCritical, LogAlert, LogEmergency}

func (l LogLevel) valid() bool {
	return slices.Contains(logLevels, l)
}

// LogMessage is one notifications/message of the server.
type LogMessage struct {
	Level  LogLevel       `json:"level"`
	Logger string         `json:"logger,omitzero"`
	Data   jsontext.Value `json:"data"`

	// Shed is how many messages of the same call were dropped since the one before
	// it, at the in-flight dispatch cap; 0 also for messages that belong to no call.
	Shed int64 `json:"-"`
}

// Progress is one notifications/progress for a request of ours.
type Progress struct {
	Progress float64  `json:"progress"`
	Total    *float64 `json:"total,omitzero"`
	Message  string   `json:"message,omitzero"`
}

// ElicitRequest is a question for the user (2026-07-28 client/elicitation).
type ElicitRequest struct {
	// Mode is "form" or "url"; a server that names none means a form.
	Mode    string `json:"mode"`
	Message string `json:"message"`
	// Schema is the requestedSchema of a form.
	Schema jsontext.Value `json:"requestedSchema"`
	// URL and ElicitationID belong to a visit of a web page.
	URL           string `json:"url"`
	ElicitationID string `json:"elicitationId"`
	// Raw is the whole params object.
	Raw jsontext.Value `json:"-"`
}

// ElicitResult is the user's answer.
type ElicitResult struct {
	// Action is "accept", "decline" or "cancel".
	Action string `json:"action"`
	// Content is the filled-in form, a JSON object; only with "accept".
	Content jsontext.Value `json:"content,omitzero"`
}

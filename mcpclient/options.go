package mcpclient

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// NoTimeout switches one timeout off.
const NoTimeout time.Duration = -1

// Unlimited switches one limit off.
const Unlimited = -1

// Options configures a [Client]. The zero value works. It is copied and
// checked by [New], before anything starts. docs/client.md and
// docs/client-options.md have every option with its default and the test that
// proves it.
type Options struct {
	// Key names the client in logs, and to who holds many. It never reaches the
	// server. "" = a random one.
	Key string
	// Info identifies this client to servers. An empty Name is "mcpbridge", an
	// empty Version that of the module.
	Info Implementation
	// HideInfo leaves Info out of modern requests, where it is optional.
	HideInfo bool
	// Capabilities are declared to servers, beside those that follow from
	// Handlers and Roots. A single request may declare others, see [CallOptions].
	Capabilities Capabilities
	// Version selects protocol versions and the time for finding them out.
	Version VersionOptions
	// Timeouts bounds the operations.
	Timeouts Timeouts
	// Health probes an idle connection.
	Health HealthOptions
	// Reconnect paces connection attempts after a failure.
	Reconnect ReconnectOptions
	// Cache controls the list caches.
	Cache CacheOptions
	// Changes selects the change notifications to subscribe to.
	Changes ChangeOptions
	// Rounds bounds multi-round-trip requests.
	Rounds RoundOptions
	// Tasks controls the tasks extension.
	Tasks TaskOptions
	// Dispatch bounds what the server makes this client do.
	Dispatch DispatchOptions
	// Roots are the file system roots told to servers that ask. Without any,
	// and without Handlers.Roots, the roots capability is not declared.
	Roots []Root
	// Handlers answer requests of the server and receive its notifications.
	Handlers Handlers
	// Listeners watch operations, in order; see [Listener].
	Listeners []Listener
	// LogLevel is the least severe log message that servers should send; ""
	// = the server's own default on legacy connections, none on modern ones.
	// Single requests may ask for another one.
	LogLevel LogLevel
	// MaxPages bounds one list; 0 = 1024. More pages fail the list.
	MaxPages int
	// MaxListBytes bounds one list over all of its pages; 0 = 64 MiB, Unlimited =
	// no bound. A larger list fails.
	MaxListBytes int64
	// Lazy connects at the first call instead of at Start.
	Lazy bool
	// Interceptors wrap every attempt, the first outermost.
	Interceptors []Interceptor
	// Meta adds `_meta` members to every request and notification; may be nil.
	Meta MetaSupplier
	// InitializeMeta are `_meta` members of the initialize request alone, a JSON
	// object. They win over Meta's.
	InitializeMeta jsontext.Value
	// Headers adds HTTP headers to every request and notification; may be nil.
	Headers HeaderSupplier
	// NewID returns request ids: strings, or integers within ±(2^53-1), never
	// used before by this client, which calls it from many goroutines. nil = 1,
	// 2, 3…
	NewID func() any
	// NewProgressToken returns progress tokens, under the rules of NewID. nil =
	// "progress-1", "progress-2"…
	NewProgressToken func() any
	// ToolResult turns results of [Client.CallToolValue] into a value; nil =
	// [JoinText].
	ToolResult ToolResultExtractor
	// ConnectGate, when set, is called before each connection attempt and may
	// block until there is room for it; done is called with the outcome when the
	// attempt is over. A gate that refuses with an [Error] is asked again after
	// its RetryAfter; the refused attempt does not count as a failed one.
	ConnectGate func(ctx context.Context) (done func(error), err error)
	// OnConnect, when set, is called when a connection attempt begins, with a
	// context inside that of the client's life. What the attempt sends has the
	// context that OnConnect returns; done is called when it is over, with what the
	// server told of itself or an error. Attempts that ConnectGate refuses are none.
	OnConnect func(ctx context.Context, a ConnectAttempt) (inside context.Context, done func(*Server, error))
	// OnWait, when set, is called when an operation has to wait for a connection
	// attempt, with the operation's context. done is called when the wait is over,
	// with the context that OnConnect returned for the attempt, nil if it did not,
	// and the error that the wait ended with.
	OnWait func(ctx context.Context) (done func(attempt context.Context, err error))
	// OnRequest, when set, is called when a request of a legacy server, other than
	// ping, is about to be answered, with a context that has the values of the
	// caller whose call it belongs to, if it does. The answer is made in the context
	// that OnRequest returns, which must be inside; done is called when it is there,
	// with the error that the server gets instead, or with context.Canceled if the
	// call ended first.
	OnRequest func(ctx context.Context, r InboundRequest) (inside context.Context, done func(error))
	// OnState, when set, is told of every change of [Status].State, in order,
	// from the client's own goroutine. It must not block or call the client.
	OnState func(Status)
	// OnSessionEnd, when set, is told of every connection that no longer serves,
	// on a goroutine of its own. Close waits for it.
	OnSessionEnd func(SessionEnd)
	// OnList, when set, is told of every list that was read to its end, by the
	// method that asked for it. It must not block.
	OnList func(method string, list *List)
	// Logger receives lifetime events (Info), faults (Warn) and single
	// messages (Debug); nil discards.
	Logger *slog.Logger
}

// Implementation describes an MCP client or server (2026-07-28 schema,
// Implementation). Absent fields are left out on the wire.
type Implementation struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Title       string `json:"title,omitzero"`
	Description string `json:"description,omitzero"`
	WebsiteURL  string `json:"websiteUrl,omitzero"`
	Icons       []Icon `json:"icons,omitzero"`
}

// Icon is a picture of an implementation (2026-07-28 basic/index, icons).
type Icon struct {
	Src      string   `json:"src"`
	MIMEType string   `json:"mimeType,omitzero"`
	Sizes    []string `json:"sizes,omitzero"`
	Theme    string   `json:"theme,omitzero"`
}

// Root is one file system root (2026-07-28 client/roots).
type Root struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitzero"`
}

// VersionOptions says which protocol version to speak.
type VersionOptions struct {
	// Pin is the one version to speak, requested and minimum; "" finds out
	// which era the server belongs to. A modern pin never falls back to a
	// handshake, a legacy pin never probes.
	Pin string
	// Minimum is the oldest version to accept; "" = any that this client speaks.
	// Versions are dates, so 2026-07-28 here means "modern only, newest first".
	Minimum string
	// Advertise is the legacy version to ask for in a handshake that follows
	// detection; "" = the newest.
	Advertise string
	// DetectTimeout is how long an era probe may stay unanswered before the
	// server is taken for a legacy one. 0 = 5 s over HTTP, 15 s over stdio (a
	// child may still be starting). NoTimeout waits as long as Timeout lasts.
	DetectTimeout time.Duration
	// FailOnSilence makes an unanswered probe over HTTP an error: the
	// specification speaks of silence over stdio only.
	FailOnSilence bool
	// Timeout bounds one whole connection attempt, probe and handshake
	// together. 0 = 30 s over HTTP, 60 s over stdio; NoTimeout = none.
	Timeout time.Duration
	// SeparateBudgets gives the handshake after a probe a Timeout of its own.
	SeparateBudgets bool
}

// Timeouts bounds operations; each request of an operation gets the whole
// time. 0 = 60 s, NoTimeout = none, unless the field says otherwise. A
// caller's earlier deadline wins.
type Timeouts struct {
	Tool       time.Duration // tools/call and each page of tools/list
	Resource   time.Duration // resources/read, (un)subscribe, each page of the resource lists
	Prompt     time.Duration // prompts/get and each page of prompts/list
	Completion time.Duration // completion/complete
	// Tools overrides Tool for single tools by name.
	Tools map[string]time.Duration
	// ProgressExtends restarts the time at each progress notification of a
	// request that asked for progress.
	ProgressExtends bool
	// Max bounds one operation over all of its requests, rounds and extensions;
	// 0 = none. The time that CallOptions.Answer takes does not count.
	Max time.Duration
	// ToolResult, when not "", makes a tool call that exceeds its own timeout a
	// normal result with this text and Result.TimedOut, instead of an error.
	ToolResult string
}

// HealthOptions probes a connection that has been quiet for Interval: ping on
// legacy connections, server/discover on modern ones. Any answer, even an
// error, proves life. A server that is busy with a call may leave probes
// unanswered up to the call's timeout. While CallOptions.Answer has a question of
// a legacy server, whose time stands still, silence is no sign of death however
// long it lasts, but any other failure of the probes is.
type HealthOptions struct {
	Disabled bool
	Interval time.Duration // 0 = 30 s; varied by a tenth, so that clients do not probe in step
	Timeout  time.Duration // of one probe; 0 = 10 s
	Failures int           // probes in a row that must fail; 0 = 2
}

// ReconnectOptions paces connection attempts after a failure: the wait grows
// from Interval by Multiplier to MaxInterval, with jitter.
type ReconnectOptions struct {
	// Disabled leaves a lost connection lost until a call needs it.
	Disabled    bool
	Interval    time.Duration // 0 = 5 s
	MaxInterval time.Duration // 0 = 60 s, or Interval if that is longer
	Multiplier  float64       // 0 = 2; 1 = always Interval
	// MaxAttempts is how many attempts in a row may fail before the client
	// gives up for good; 0 = no limit.
	MaxAttempts int
	// StopTimeout is how long Close waits for attempts under way and handlers;
	// 0 = as long as its context.
	StopTimeout time.Duration
	// NoRetry keeps requests of safe methods from being sent again when the
	// connection ended under them.
	NoRetry bool
}

// CacheOptions controls list caches. A cached list is served until its ttlMs
// passed, the server reports a change, or the connection is replaced.
type CacheOptions struct {
	NoTools     bool
	NoResources bool // resources and resource templates
	NoPrompts   bool
	// IgnoreTTL keeps lists until a change is reported, whatever their ttlMs.
	IgnoreTTL bool
}

// ChangeOptions selects change notifications. By default all that the server
// offers are subscribed to; legacy servers send them unasked.
type ChangeOptions struct {
	NoTools     bool
	NoResources bool
	NoPrompts   bool
	// Force subscribes although the server does not declare listChanged.
	Force bool
	// Interval and MaxInterval pace re-subscriptions after a stream was lost;
	// 0 = 1 s and 30 s.
	Interval, MaxInterval time.Duration
}

// RoundOptions bounds multi-round-trip requests (2026-07-28 patterns/mrtr).
type RoundOptions struct {
	// MaxRetries is how often one request is repeated with answers; 0 = 3,
	// negative = never: the first input_required result fails the call. Rounds
	// that CallOptions.Answer answers have no bound; those that ask nothing do.
	MaxRetries int
}

// TaskOptions controls the tasks extension (io.modelcontextprotocol/tasks) and
// the tasks of 2025-11-25, as which tools are called that demand it.
type TaskOptions struct {
	// Disabled keeps the extension from being declared, and calls all tools of
	// 2025-11-25 plainly.
	Disabled bool
	// MaxStuckPolls is how many polls in a row may find a task waiting for
	// input without asking anything new; 0 = 60, at least 1.
	MaxStuckPolls int
	// PollInterval is the wait between polls when the server names none; 0 = 1 s.
	PollInterval time.Duration
	// MinPollInterval and MaxPollInterval bound what the server names; 0 =
	// 100 ms and no bound.
	MinPollInterval, MaxPollInterval time.Duration
}

// DispatchOptions bounds what the server can make this client do at once:
// requests it sends, notifications that have a handler, subscription
// deliveries. Past MaxInFlight a request is answered with OverloadCode, a
// notification is dropped, and a subscription whose delivery was dropped ends.
type DispatchOptions struct {
	MaxInFlight  int   // 0 = 1024; Unlimited = no bound, at that risk
	OverloadCode int64 // 0 = -32000
}

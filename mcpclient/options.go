package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// NoTimeout switches one timeout off.
const NoTimeout time.Duration = -1

// Unlimited switches one limit off.
const Unlimited = -1

// Options configures a [Client]. The zero value works. It is copied by [New].
type Options struct {
	// Info identifies this client to servers. An empty Name is "mcpbridge", an
	// empty Version that of the module.
	Info Implementation
	// Version selects protocol versions and the time for finding them out.
	Version VersionOptions
	// Timeouts bounds the operations.
	Timeouts Timeouts
	// Reconnect paces connection attempts after a failure.
	Reconnect ReconnectOptions
	// Cache switches the list caches.
	Cache CacheOptions
	// Roots are the file system roots told to servers that ask. Without any,
	// the roots capability is not declared.
	Roots []Root
	// MaxPages bounds one list; 0 = 1024. More pages fail the list.
	MaxPages int
	// Lazy connects at the first call instead of at Start.
	Lazy bool
	// Interceptors wrap every attempt, the first outermost.
	Interceptors []Interceptor
	// Meta adds `_meta` members to every request and notification; may be nil.
	Meta MetaSupplier
	// Headers adds HTTP headers to every request and notification; may be nil.
	Headers HeaderSupplier
	// NewID returns request ids: strings or integers within ±(2^53-1), unique
	// among the requests in flight. nil = 1, 2, 3…
	NewID func() any
	// ConnectGate, when set, is called before each connection attempt and may
	// block until there is room for it; release is called when it is over.
	ConnectGate func(ctx context.Context) (release func(), err error)
	// OnState, when set, is told of every change of [Status].State, in order,
	// from the client's own goroutine. It must not block or call the client.
	OnState func(Status)
	// Logger receives lifetime events (Info), faults (Warn) and single
	// messages (Debug); nil discards.
	Logger *slog.Logger
}

// Implementation describes an MCP client or server (2026-07-28 schema,
// Implementation). Absent fields are left out on the wire.
type Implementation struct {
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	Title       string         `json:"title,omitzero"`
	Description string         `json:"description,omitzero"`
	WebsiteURL  string         `json:"websiteUrl,omitzero"`
	Icons       jsontext.Value `json:"icons,omitzero"`
}

// Root is one file system root (2026-07-28 client/roots).
type Root struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitzero"`
}

// VersionOptions says which protocol version to speak.
type VersionOptions struct {
	// Pin is the one version to speak, requested and minimum; "" finds out
	// which era the server belongs to.
	Pin string
	// DetectTimeout is how long an era probe may stay unanswered before the
	// server is taken for a legacy one. 0 = 5 s over HTTP, 15 s over stdio (a
	// child may still be starting). NoTimeout waits as long as Timeout lasts.
	DetectTimeout time.Duration
	// Timeout bounds one whole connection attempt, probe and handshake
	// together. 0 = 30 s over HTTP, 60 s over stdio; NoTimeout = none.
	Timeout time.Duration
}

// Timeouts bounds operations; each request of an operation gets the whole
// time. 0 = 60 s, NoTimeout = none. A caller's earlier deadline wins.
type Timeouts struct {
	Tool       time.Duration // tools/call and each page of tools/list
	Resource   time.Duration // resources/read and each page of the resource lists
	Prompt     time.Duration // prompts/get and each page of prompts/list
	Completion time.Duration // completion/complete
	// Tools overrides Tool for single tools by name.
	Tools map[string]time.Duration
}

// ReconnectOptions paces connection attempts after a failure: the wait grows
// from Interval to MaxInterval, with jitter.
type ReconnectOptions struct {
	Interval    time.Duration // 0 = 5 s
	MaxInterval time.Duration // 0 = 60 s
}

// CacheOptions switches list caches off. A cached list is served until its
// ttlMs passed, the server reports a change, or the connection is replaced.
type CacheOptions struct {
	NoTools     bool
	NoResources bool // resources and resource templates
	NoPrompts   bool
}

const (
	defaultOperationTimeout = 60 * time.Second
	defaultMaxPages         = 1024
)

// prepare checks the options and fills in every default.
func (o *Options) prepare(transport string) error {
	var errs []error
	if o.Info.Name == "" {
		o.Info.Name = "mcpbridge"
	}
	if o.Info.Version == "" {
		o.Info.Version = moduleVersion()
	}
	if pin := o.Version.Pin; pin != "" && EraOf(pin) == EraUnknown {
		errs = append(errs, fmt.Errorf("Version.Pin: %q is not a protocol version this client speaks; use one of %v or leave it empty", pin, SupportedVersions()))
	}
	detect, total := 5*time.Second, 30*time.Second
	if transport == "stdio" {
		detect, total = 15*time.Second, 60*time.Second
	}
	duration := func(name string, value *time.Duration, unset time.Duration, infinite bool) {
		switch {
		case *value == 0:
			*value = unset
		case *value == NoTimeout && infinite:
		case *value < 0:
			errs = append(errs, fmt.Errorf("%s: %v is negative; use a positive duration%s", name, *value, map[bool]string{true: " or NoTimeout"}[infinite]))
		}
	}
	duration("Version.DetectTimeout", &o.Version.DetectTimeout, detect, true)
	duration("Version.Timeout", &o.Version.Timeout, total, true)
	duration("Timeouts.Tool", &o.Timeouts.Tool, defaultOperationTimeout, true)
	duration("Timeouts.Resource", &o.Timeouts.Resource, defaultOperationTimeout, true)
	duration("Timeouts.Prompt", &o.Timeouts.Prompt, defaultOperationTimeout, true)
	duration("Timeouts.Completion", &o.Timeouts.Completion, defaultOperationTimeout, true)
	tools := make(map[string]time.Duration, len(o.Timeouts.Tools))
	for name, value := range o.Timeouts.Tools {
		duration("Timeouts.Tools["+name+"]", &value, NoTimeout, true)
		tools[name] = value
	}
	o.Timeouts.Tools = tools
	duration("Reconnect.Interval", &o.Reconnect.Interval, 5*time.Second, false)
	duration("Reconnect.MaxInterval", &o.Reconnect.MaxInterval, max(60*time.Second, o.Reconnect.Interval), false)
	if o.Reconnect.MaxInterval < o.Reconnect.Interval {
		errs = append(errs, fmt.Errorf("Reconnect.MaxInterval: %v is below Interval %v", o.Reconnect.MaxInterval, o.Reconnect.Interval))
	}
	if o.MaxPages == 0 {
		o.MaxPages = defaultMaxPages
	} else if o.MaxPages < 0 {
		errs = append(errs, fmt.Errorf("MaxPages: %d is negative; use a positive number, or 0 for %d", o.MaxPages, defaultMaxPages))
	}
	for i, root := range o.Roots {
		if u, err := url.Parse(root.URI); err != nil || u.Scheme != "file" {
			errs = append(errs, fmt.Errorf("root %d (Roots): %q is not a file:// URI", i, root.URI))
		}
	}
	o.Roots = slices.Clone(o.Roots)
	o.Interceptors = slices.Clone(o.Interceptors)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

package mcpclient

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"time"
)

const defaultOperationTimeout = 60 * time.Second

// checker collects what is wrong with options and fills in defaults.
type checker struct{ errs []error }

func (k *checker) fail(option, format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf("option %s: "+format, append([]any{option}, args...)...))
}

// duration checks a duration whose zero is a default.
func (k *checker) duration(option string, value *time.Duration, unset time.Duration, infinite bool) {
	switch {
	case *value == 0:
		*value = unset
	case *value == NoTimeout && infinite:
	case *value < 0 && infinite:
		k.fail(option, "%v is negative; use a positive duration or NoTimeout", *value)
	case *value < 0:
		k.fail(option, "%v is negative; use a positive duration", *value)
	}
}

// count checks a number whose zero is a default.
func (k *checker) count(option string, value *int, unset int) {
	if *value == 0 {
		*value = unset
	} else if *value < 0 {
		k.fail(option, "%d is negative; use a positive number, or 0 for %d", *value, unset)
	}
}

// prepare checks the options and fills in every default.
func (o *Options) prepare(transport string) error {
	var k checker
	if o.Key == "" {
		o.Key = rand.Text()
	}
	if o.Info.Name == "" {
		o.Info.Name = "mcpbridge"
	}
	if o.Info.Version == "" {
		o.Info.Version = moduleVersion()
	}
	o.Version.prepare(&k, transport)
	o.Timeouts.prepare(&k)
	k.duration("Health.Interval", &o.Health.Interval, 30*time.Second, false)
	k.duration("Health.Timeout", &o.Health.Timeout, 10*time.Second, false)
	k.count("Health.Failures", &o.Health.Failures, 2)
	o.Reconnect.prepare(&k)
	k.duration("Changes.Interval", &o.Changes.Interval, time.Second, false)
	k.duration("Changes.MaxInterval", &o.Changes.MaxInterval, max(30*time.Second, o.Changes.Interval), false)
	if o.Rounds.MaxRetries == 0 {
		o.Rounds.MaxRetries = 3
	}
	k.count("Tasks.MaxStuckPolls", &o.Tasks.MaxStuckPolls, 60)
	k.duration("Tasks.PollInterval", &o.Tasks.PollInterval, time.Second, false)
	k.duration("Tasks.MinPollInterval", &o.Tasks.MinPollInterval, 100*time.Millisecond, false)
	k.duration("Tasks.MaxPollInterval", &o.Tasks.MaxPollInterval, 1<<62, false)
	if o.Dispatch.MaxInFlight != Unlimited {
		k.count("Dispatch.MaxInFlight", &o.Dispatch.MaxInFlight, 1024)
	}
	if o.Dispatch.OverloadCode == 0 {
		o.Dispatch.OverloadCode = -32000
	}
	k.count("MaxPages", &o.MaxPages, 1024)
	if o.MaxListBytes == 0 {
		o.MaxListBytes = 64 << 20
	} else if o.MaxListBytes < Unlimited {
		k.fail("MaxListBytes", "%d is negative; use a positive number of bytes or Unlimited", o.MaxListBytes)
	}
	k.roots("Roots", o.Roots)
	if o.LogLevel != "" && !o.LogLevel.valid() {
		k.fail("LogLevel", "%q is no log level; use one of %v", o.LogLevel, logLevels)
	}
	if m := o.InitializeMeta; len(m) > 0 && (m.Kind() != '{' || !m.IsValid()) {
		k.fail("InitializeMeta", "it is not a JSON object")
	}
	for name, value := range o.Capabilities.Extensions {
		if value.Kind() != '{' || !value.IsValid() {
			k.fail("Capabilities.Extensions", "the settings of %s are not a JSON object", name)
		}
	}
	o.Roots, o.Interceptors, o.Listeners = slices.Clone(o.Roots), slices.Clone(o.Interceptors), slices.Clone(o.Listeners)
	o.InitializeMeta = slices.Clone(o.InitializeMeta)
	o.Handlers.Request, o.Handlers.Notification = maps.Clone(o.Handlers.Request), maps.Clone(o.Handlers.Notification)
	if o.ToolResult == nil {
		o.ToolResult = JoinText
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(k.errs...)
}

func (v *VersionOptions) prepare(k *checker, transport string) {
	for option, version := range map[string]string{"Version.Pin": v.Pin, "Version.Minimum": v.Minimum} {
		if version != "" && EraOf(version) == EraUnknown {
			k.fail(option, "%q is not a protocol version this client speaks; use one of %v or leave it empty", version, SupportedVersions())
		}
	}
	if v.Advertise != "" && EraOf(v.Advertise) != EraLegacy {
		k.fail("Version.Advertise", "%q is not a version with a handshake; use one of %v or leave it empty", v.Advertise, legacyVersions)
	}
	if v.Pin != "" && v.Pin < v.Minimum {
		k.fail("Version.Pin", "%s is older than Version.Minimum %s", v.Pin, v.Minimum)
	}
	detect, total := 5*time.Second, 30*time.Second
	if transport == "stdio" {
		detect, total = 15*time.Second, 60*time.Second
	}
	k.duration("Version.DetectTimeout", &v.DetectTimeout, detect, true)
	k.duration("Version.Timeout", &v.Timeout, total, true)
}

func (t *Timeouts) prepare(k *checker) {
	k.duration("Timeouts.Tool", &t.Tool, defaultOperationTimeout, true)
	k.duration("Timeouts.Resource", &t.Resource, defaultOperationTimeout, true)
	k.duration("Timeouts.Prompt", &t.Prompt, defaultOperationTimeout, true)
	k.duration("Timeouts.Completion", &t.Completion, defaultOperationTimeout, true)
	k.duration("Timeouts.Max", &t.Max, NoTimeout, true)
	tools := make(map[string]time.Duration, len(t.Tools))
	for name, value := range t.Tools {
		k.duration("Timeouts.Tools["+name+"]", &value, NoTimeout, true)
		tools[name] = value
	}
	t.Tools = tools
}

func (r *ReconnectOptions) prepare(k *checker) {
	k.duration("Reconnect.Interval", &r.Interval, 5*time.Second, false)
	k.duration("Reconnect.MaxInterval", &r.MaxInterval, max(60*time.Second, r.Interval), false)
	if r.MaxInterval < r.Interval {
		k.fail("Reconnect.MaxInterval", "%v is below Interval %v", r.MaxInterval, r.Interval)
	}
	if r.Multiplier == 0 {
		r.Multiplier = 2
	} else if r.Multiplier < 1 {
		k.fail("Reconnect.Multiplier", "%v is below 1", r.Multiplier)
	}
	if r.MaxAttempts < 0 {
		k.fail("Reconnect.MaxAttempts", "%d is negative; use 0 for no limit", r.MaxAttempts)
	}
	k.duration("Reconnect.StopTimeout", &r.StopTimeout, NoTimeout, true)
}

// roots checks that roots are file:// URIs.
func (k *checker) roots(option string, roots []Root) {
	for i, root := range roots {
		if u, err := url.Parse(root.URI); err != nil || u.Scheme != "file" {
			k.fail(option, "root %d, %q, is not a file:// URI", i, root.URI)
		}
	}
}

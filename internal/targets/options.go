package targets

import (
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// options translates a target's settings for its clients. Where zero means "no
// limit" in the configuration, it means "the default" there.
func (b *builder) options(name string, c *config.Target) mcpclient.Options {
	o := mcpclient.Options{
		Key: name,
		Info: mcpclient.Implementation{
			Name: b.info.Name + " - " + name, Version: b.info.Version,
			Title: b.info.Title, Description: b.info.Description, WebsiteURL: b.info.WebsiteURL,
		},
		Version: mcpclient.VersionOptions{
			Minimum:       string(c.MinimumProtocolVersion),
			DetectTimeout: noTimeout(c.Timeouts.Detect), Timeout: noTimeout(c.Timeouts.Initialize),
		},
		Timeouts: mcpclient.Timeouts{
			Tool: noTimeout(c.Timeouts.Tool), Resource: noTimeout(c.Timeouts.Resource),
			Prompt: noTimeout(c.Timeouts.Prompt), Completion: noTimeout(c.Timeouts.Completion),
			Max: noTimeout(c.Timeouts.Max), Tools: make(map[string]time.Duration, len(c.Timeouts.Tools)),
		},
		Health: mcpclient.HealthOptions{
			Disabled: !c.Health.Enabled, Interval: c.Health.Interval, Timeout: c.Health.Timeout, Failures: c.Health.Failures,
		},
		Reconnect: mcpclient.ReconnectOptions{
			Interval: c.Reconnect.Interval, MaxInterval: c.Reconnect.MaxInterval,
			Multiplier: c.Reconnect.Multiplier, MaxAttempts: c.Reconnect.MaxAttempts,
		},
		Cache: mcpclient.CacheOptions{
			NoTools: !c.Cache.Tools, NoResources: !c.Cache.Resources, NoPrompts: !c.Cache.Prompts, IgnoreTTL: c.Cache.IgnoreTTL,
		},
		Changes:      mcpclient.ChangeOptions{NoTools: !c.Changes.Tools, NoResources: !c.Changes.Resources, NoPrompts: !c.Changes.Prompts},
		Rounds:       mcpclient.RoundOptions{MaxRetries: never(c.Input.MaxRounds)},
		Tasks:        mcpclient.TaskOptions{Disabled: !c.Tasks.Enabled, MaxStuckPolls: c.Tasks.MaxStuckPolls, PollInterval: c.Tasks.PollInterval},
		Dispatch:     mcpclient.DispatchOptions{MaxInFlight: unlimited(c.Dispatch.MaxInFlight)},
		MaxListBytes: int64(c.MaxListBytes),
		Roots:        rootsOf(c),
		Logger:       b.deps.Logger.With("target", name),
	}
	if o.Info.Version == "" {
		o.Info.Version = b.deps.Version
	}
	if c.ProtocolVersion != config.VersionAuto {
		o.Version.Pin = string(c.ProtocolVersion)
	}
	if c.ServerLogLevel != config.ServerLogNone {
		o.LogLevel = mcpclient.LogLevel(c.ServerLogLevel)
	}
	for tool, timeout := range c.Timeouts.Tools {
		o.Timeouts.Tools[tool] = noTimeout(timeout)
	}
	return o
}

func rootsOf(c *config.Target) []mcpclient.Root {
	var roots []mcpclient.Root
	for _, root := range c.Roots {
		roots = append(roots, mcpclient.Root{URI: root.URI, Name: root.Name})
	}
	return roots
}

// noTimeout translates the configuration's "zero is no limit".
func noTimeout(d time.Duration) time.Duration {
	if d == 0 {
		return mcpclient.NoTimeout
	}
	return d
}

func unlimited(n int) int {
	if n == 0 {
		return mcpclient.Unlimited
	}
	return n
}

// never translates the configuration's "zero is never".
func never(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

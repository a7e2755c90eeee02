package mcpclient

import "time"

// The presets give the behaviour of other clients, for who moves from one of
// them. Each is a plain value to change further.

// PresetLangChain4j behaves like LangChain4j's DefaultMcpClient: detection and
// handshake have 30 s each, a tool that exceeds its timeout gives a normal
// result with a text, lists are cached until they change, the health check
// replaces a connection after one failed probe, attempts come every 5 s, and
// list changes are subscribed to whatever the server declares.
func PresetLangChain4j() Options {
	return Options{
		Version:   VersionOptions{DetectTimeout: 30 * time.Second, Timeout: 30 * time.Second, SeparateBudgets: true},
		Timeouts:  Timeouts{ToolResult: "There was a timeout executing the tool"},
		Health:    HealthOptions{Interval: 30 * time.Second, Timeout: 10 * time.Second, Failures: 1},
		Reconnect: ReconnectOptions{Interval: 5 * time.Second, MaxInterval: 5 * time.Second, Multiplier: 1},
		Cache:     CacheOptions{IgnoreTTL: true},
		Changes:   ChangeOptions{Force: true},
		Rounds:    RoundOptions{MaxRetries: 3},
	}
}

// PresetCSharp behaves like the C# SDK's McpClient: 60 s for connecting, 5 s of
// it for the probe, no operation timeouts, ten rounds, no health check and no
// reconnection by itself.
func PresetCSharp() Options {
	return Options{
		Version:   VersionOptions{DetectTimeout: 5 * time.Second, Timeout: 60 * time.Second},
		Timeouts:  Timeouts{Tool: NoTimeout, Resource: NoTimeout, Prompt: NoTimeout, Completion: NoTimeout},
		Health:    HealthOptions{Disabled: true},
		Reconnect: ReconnectOptions{Disabled: true},
		Cache:     CacheOptions{NoTools: true, NoResources: true, NoPrompts: true},
		Changes:   ChangeOptions{NoTools: true, NoResources: true, NoPrompts: true},
		Rounds:    RoundOptions{MaxRetries: 10},
		Tasks:     TaskOptions{MaxStuckPolls: 60},
	}
}

// PresetNexus behaves like the Nexus PHP client: an idle timeout of 60 s that
// progress restarts, 600 s over all, 1024 dispatches in flight, and requests
// that a lost connection swallowed are not sent again.
func PresetNexus() Options {
	return Options{
		Timeouts:  Timeouts{ProgressExtends: true, Max: 600 * time.Second},
		Dispatch:  DispatchOptions{MaxInFlight: 1024, OverloadCode: -32000},
		Reconnect: ReconnectOptions{NoRetry: true},
	}
}

// PresetRecovery behaves like the recovery of Spring AI Alibaba: a probe every
// 5 s, an attempt every 5 s, 10 s to stop.
func PresetRecovery() Options {
	return Options{
		Health:    HealthOptions{Interval: 5 * time.Second, Timeout: 5 * time.Second, Failures: 1},
		Reconnect: ReconnectOptions{Interval: 5 * time.Second, MaxInterval: 5 * time.Second, Multiplier: 1, StopTimeout: 10 * time.Second},
	}
}

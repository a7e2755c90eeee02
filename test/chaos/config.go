package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kind is how the bridge reaches a target.
type kind int

const (
	kindStdio  kind = iota // a child process
	kindLegacy             // streamable HTTP with sessions, revisions before 2026-07-28
	kindModern             // streamable HTTP of 2026-07-28
)

func (k kind) String() string { return [...]string{"stdio", "legacy HTTP", "modern HTTP"}[k] }

// target is one target of the bridge and how it may be disturbed.
type target struct {
	name    string
	kind    kind
	touched bool   // disturbed at all
	proxied bool   // behind the TCP proxy, which does the disturbing
	version string // the protocol version to pin; "" = found out

	address string // of the server; HTTP only
	via     string // what the bridge is told: address, or that of the proxy
}

// newTargets are the twenty of a run. The first of each kind are left alone.
func newTargets() []*target {
	var all []*target
	add := func(prefix string, k kind, untouched, direct, proxied int) {
		for i := range untouched + direct + proxied {
			all = append(all, &target{
				name: fmt.Sprintf("%s-%d", prefix, i+1), kind: k,
				touched: i >= untouched, proxied: i >= untouched+direct,
			})
		}
	}
	add("stdio", kindStdio, 2, 5, 0)
	add("legacy", kindLegacy, 2, 3, 2)
	add("modern", kindModern, 2, 2, 2)
	for i, t := range all {
		if t.kind == kindStdio && i%2 == 1 {
			t.version = "2025-11-25" // both eras over stdio
		}
	}
	return all
}

// The settings of the run: short enough for several recoveries, and for each call to end before callDeadline.
const (
	reconnectInterval = time.Second
	reconnectMax      = 5 * time.Second
	healthInterval    = 2 * time.Second
	healthTimeout     = 2 * time.Second
	healthFailures    = 2
	detectTimeout     = 2 * time.Second
	connectTimeout    = 4 * time.Second
	toolTimeout       = 5 * time.Second
	stopTimeout       = 2 * time.Second
	callDeadline      = 10 * time.Second // of the caller
)

// writeConfig writes the bridge's configuration file. JSON is YAML.
func writeConfig(path, self string, all []*target) error {
	targets := map[string]any{}
	for _, t := range all {
		c := map[string]any{
			"timeouts":  map[string]any{"tool": toolTimeout.String(), "initialize": connectTimeout.String(), "detect": detectTimeout.String()},
			"health":    map[string]any{"interval": healthInterval.String(), "timeout": healthTimeout.String(), "failures": healthFailures},
			"reconnect": map[string]any{"interval": reconnectInterval.String(), "max_interval": reconnectMax.String(), "multiplier": 2},
		}
		if t.version != "" {
			c["protocol_version"] = t.version
		}
		if t.kind == kindStdio {
			c["command"] = append([]string{self}, serverCommand(filepath.Dir(path), t)...)
			c["restart"] = map[string]any{"stop_timeout": stopTimeout.String(), "max": 0} // killed more often than any limit
		} else {
			c["url"] = "http://" + t.via + "/mcp"
		}
		targets[t.name] = c
	}
	raw, err := json.MarshalIndent(map[string]any{"targets": targets, "log": map[string]any{"level": "info"}}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

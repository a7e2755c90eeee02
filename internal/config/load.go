package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
)

// Load reads and parses the YAML file at path with the environment of the
// process. See [Parse].
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	return Parse(path, data, Env{})
}

// Parse reads one YAML document; name stands for the file in errors. The
// result has every default filled in. Unknown keys, values out of range and
// impossible combinations are errors, all of them together as [Errors].
//
// What flags may still change is left to [Config.Validate]: that there is a
// target, and that the listen addresses are safe ones.
func Parse(name string, data []byte, env Env) (*Config, error) {
	r := newReport(name)
	cfg := Default()
	if doc := parseYAML(data, r); doc != nil {
		d := decoder{report: r, env: env, element: newTargetFor}
		d.value(doc, reflect.ValueOf(cfg).Elem(), "")
		delete(r.at, "") // a missing setting has no place of its own
		r.poolDefaults(cfg)
		r.config(cfg)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// Validate checks the whole configuration again, after flags and other files
// have been merged into it: everything that [Parse] checks, and that there is
// at least one target and the listen addresses are safe ones.
func (c *Config) Validate() error {
	r := newReport("")
	r.config(c)
	if len(c.Targets) == 0 {
		r.add("targets", "there is no target; name at least one MCP server")
	}
	r.safeAddresses(&c.Listen)
	return r.err()
}

// Merge adds targets, as from [ParseMCPJSON]. A name that is already taken is
// an error and leaves c unchanged.
func (c *Config) Merge(targets map[string]*Target) error {
	r := newReport("")
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		if _, taken := c.Targets[name]; taken {
			r.add(entry("targets", name), "is configured twice, in two files; rename one of them")
		}
	}
	if err := r.err(); err != nil {
		return err
	}
	if c.Targets == nil {
		c.Targets = make(map[string]*Target, len(targets))
	}
	maps.Copy(c.Targets, targets)
	return nil
}

// newTargetFor returns the defaults of the target that n describes: those of
// a child process when it has a command.
func newTargetFor(n *node, _ reflect.Type) reflect.Value {
	transport := TransportAuto
	if command := n.get("command"); command != nil && command.kind != kindNull {
		transport = TransportStdio
	}
	return reflect.ValueOf(NewTarget(transport))
}

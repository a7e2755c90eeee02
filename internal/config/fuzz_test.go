package config

import (
	"errors"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? [k]\n: v\n--- !!binary |\n  aGk=\n"))
	f.Add([]byte("targets: {t: {url: 'http://${A:-h}/', timeouts: {tool: 1s}}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("f", data, testEnv())
		checkOutcome(t, cfg != nil, err)
		if err != nil {
			return
		}
		for name := range cfg.Targets {
			if !validTargetName(name) {
				t.Errorf("accepted the target name %q", name)
			}
		}
		if err := cfg.Validate(); len(cfg.Targets) > 0 && !cfg.Listen.Insecure && isLoopbackAddress(cfg) && err != nil {
			t.Errorf("Parse accepted what Validate refuses: %v", err)
		}
	})
}

func FuzzParseMCPJSON(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a": {"command": "x", "args": ["1"]}, "b": {"url": "http://h", "headers": {"X": "${TOKEN}"}}}}`))
	f.Add([]byte(`{"servers": {"": null}, "mcpServers": []}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		targets, err := ParseMCPJSON("f", data, testEnv())
		checkOutcome(t, targets != nil, err)
		if err != nil || len(targets) == 0 {
			return
		}
		cfg := Default()
		if err := errors.Join(cfg.Merge(targets), cfg.Validate()); err != nil {
			t.Errorf("ParseMCPJSON accepted what Validate refuses: %v", err)
		}
	})
}

func checkOutcome(t *testing.T, result bool, err error) {
	t.Helper()
	if result == (err != nil) {
		t.Fatalf("result %v with error %v", result, err)
	}
	if err == nil {
		return
	}
	if errs, ok := errors.AsType[Errors](err); !ok || len(errs) == 0 || err.Error() == "" {
		t.Fatalf("not a list of problems: %v", err)
	}
}

func isLoopbackAddress(cfg *Config) bool {
	r := newReport("")
	r.safeAddresses(&cfg.Listen)
	return r.err() == nil
}

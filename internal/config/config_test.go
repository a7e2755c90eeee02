package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestASecretIsNeverPrinted(t *testing.T) {
	cfg := Default()
	cfg.Targets["t"] = NewTarget(TransportAuto)
	cfg.Targets["t"].Headers = map[string]Secret{"Authorization": "s3cr3t"}
	cfg.Targets["t"].Env = map[string]Secret{"KEY": "s3cr3t"}
	target := *cfg.Targets["t"]

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", target)
		fmt.Fprintf(&out, verb+"\n", Secret("s3cr3t"))
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "target", target, "secret", Secret("s3cr3t"))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "target", target, "secret", Secret("s3cr3t"))
	if err := json.NewEncoder(&out).Encode(cfg); err != nil {
		t.Fatal(err)
	}
	for _, leak := range []string{"s3cr3t", fmt.Sprintf("%x", "s3cr3t")} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("leaked %q:\n%s", leak, out.String())
		}
	}
	if got := Reveal(cfg.Targets["t"].Env)["KEY"]; got != "s3cr3t" {
		t.Errorf("Reveal gave %q", got)
	}
	if Reveal(nil) != nil {
		t.Error("Reveal(nil) is not nil")
	}
}

func TestSizesAreWrittenInTheLargestUnit(t *testing.T) {
	for size, want := range map[Size]string{0: "0", 1000: "1000", 1024: "1KiB", 16 << 20: "16MiB", 3 << 30: "3GiB", 1<<20 + 1: "1048577"} {
		if got := size.String(); got != want {
			t.Errorf("%d: %q, want %q", int64(size), got, want)
		}
		if back, err := parseSize(want); err != nil || back != size {
			t.Errorf("%q: %d, %v", want, back, err)
		}
	}
	for text, want := range map[string]Size{"1KB": 1000, "2 MB": 2e6, "1GB": 1e9, "7B": 7, "007": 7} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "1.5MiB", "1Mi", "1 M B", "B1", "0x10", "1kib"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}

func TestOnlyLoopbackAddressesAreSafe(t *testing.T) {
	for address, safe := range map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9:0": true, "[::1]:8080": true, "localhost:80": true, "LOCALHOST:80": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:80": false, "host.example:80": false,
		"[::ffff:127.0.0.1]:80": true, "localhost.example:80": false,
	} {
		cfg := Default()
		cfg.Targets["t"] = NewTarget(TransportAuto)
		cfg.Targets["t"].URL = "http://h"
		cfg.Listen.Address = "127.0.0.1:9"
		for key, setting := range map[string]*string{"listen.address": &cfg.Listen.Address, "listen.grpc.address": &cfg.Listen.GRPC.Address} {
			before := *setting
			*setting, cfg.Listen.Insecure = address, false
			err := cfg.Validate()
			if safe != (err == nil) {
				t.Errorf("%s %s: %v", key, address, err)
			}
			if !safe && (!strings.Contains(err.Error(), "can be reached from other machines") || !strings.Contains(err.Error(), key)) {
				t.Errorf("%s %s: %v", key, address, err)
			}
			cfg.Listen.Insecure = true
			if err := cfg.Validate(); err != nil {
				t.Errorf("%s %s, insecure: %v", key, address, err)
			}
			*setting = before
		}
		cfg.Listen = Listen{Address: "127.0.0.1:1", MaxRequestBytes: 1, Insecure: true, Admin: Admin{Address: address}}
		if err := cfg.Validate(); safe != (err == nil) || !safe && !strings.Contains(err.Error(), "listen.admin.insecure") {
			t.Errorf("admin listener at %s: %v", address, err)
		}
		cfg.Listen.Admin.Insecure = true
		if err := cfg.Validate(); err != nil {
			t.Errorf("admin listener at %s, insecure: %v", address, err)
		}
	}
}

func TestValidateChecksWhatCodeSets(t *testing.T) {
	cfg := Default()
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "targets: there is no target") {
		t.Errorf("no target: %v", err)
	}
	cfg.Targets["nil"] = nil
	cfg.Targets["timeout"] = NewTarget(TransportStdio)
	cfg.Targets["timeout"].Command = []string{"a"}
	cfg.Targets["timeout"].Timeouts.Tool = -time.Second
	cfg.Targets["timeout"].Timeouts.Tools = map[string]time.Duration{"": 1}
	cfg.Listen.Address = "nonsense"
	err := cfg.Validate()
	for _, want := range []string{
		"listen.address: must be HOST:PORT",
		"targets.nil: has no settings",
		"targets.timeout.timeouts.tool: must not be negative",
		"targets.timeout.timeouts.tools: has an empty tool name",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in:\n%v", want, err)
		}
	}
}

func TestMergeRefusesANameThatIsTaken(t *testing.T) {
	cfg := &Config{}
	one, two := NewTarget(TransportAuto), NewTarget(TransportAuto)
	if err := cfg.Merge(map[string]*Target{"a": one}); err != nil || cfg.Targets["a"] != one {
		t.Fatalf("%v, %v", cfg.Targets, err)
	}
	err := cfg.Merge(map[string]*Target{"a": two, "b": two})
	if err == nil || err.Error() != "targets.a: is configured twice, in two files; rename one of them" {
		t.Errorf("got %v", err)
	}
	if len(cfg.Targets) != 1 || cfg.Targets["a"] != one {
		t.Errorf("a refused merge changed the targets: %v", cfg.Targets)
	}
}

func TestSecretsAreTakenOutOfForeignText(t *testing.T) {
	target := NewTarget(TransportAuto)
	target.Headers = map[string]Secret{"Authorization": "Bearer abcdef-token", "X-Key": "key-12", "X-Longer": "key-1234", "X-Short": "five5"}
	target.Env = map[string]Secret{"PEM": "line one\nline two", "LEVEL": "debug"}
	redact := target.Redactor()
	for text, want := range map[string]string{
		"bad header Authorization: Bearer abcdef-token!": "bad header Authorization: [redacted]!",
		"token abcdef-token, Bearer other":               "token [redacted], Bearer other",
		"key-12 key-1234 key-12345 key-1":                "[redacted] [redacted] [redacted]5 key-1",
		"five5 at debug level":                           "five5 at debug level",
		"pem: line one\nline two\nline three":            "pem: [redacted]\nline three",
		"":                                               "",
	} {
		if got := redact(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := NewTarget(TransportStdio).Redactor()("nothing to hide"); got != "nothing to hide" {
		t.Errorf("without secrets: %q", got)
	}
	target.Headers = map[string]Secret{"Cookie": "theme=light session=longsecret"}
	if got := target.Redactor()("session=longsecret"); got != "session=longsecret" {
		t.Errorf("a value with a space in it is no scheme and credentials: %q", got)
	}
}

func TestSocketURLsNameWhatToDial(t *testing.T) {
	for text, want := range map[string]string{
		"unix:///run/s.sock": "unix /run/s.sock true", "tcp://[::1]:9000": "tcp [::1]:9000 true", "tcp://h:1/": "tcp h:1 true",
		"http://h": "  false", "": "  false", "tcp://h:x": "  false",
	} {
		network, address, ok := (&Target{URL: text}).Socket()
		if got := fmt.Sprint(network, " ", address, " ", ok); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestSeveralProblemsBeginWithTheirNumber(t *testing.T) {
	cfg := Default()
	cfg.Log.Level, cfg.Log.Format = "x", "x"
	want := `3 problems in the configuration:
log.level: must be debug, info, warn or error
log.format: must be text or json
targets: there is no target; name at least one MCP server`
	if err := cfg.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

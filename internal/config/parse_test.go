package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testEnv is an environment with two variables and one file.
func testEnv() Env {
	vars := map[string]string{"TOKEN": "s3cr3t", "EMPTY": "", "COUNT": "7", "UMLAUT": "grün"}
	return Env{
		Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		ReadFile: func(path string) ([]byte, error) {
			if path == "/run/secrets/key" {
				return []byte("from-file\n"), nil
			}
			return nil, os.ErrNotExist
		},
	}
}

func TestAnEmptyFileGivesTheDefaults(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "targets:\n", "---\n"} {
		got, err := Parse("bridge.yaml", []byte(text), testEnv())
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(Default(), got); diff != "" {
			t.Errorf("%q: (-default +got)\n%s", text, diff)
		}
	}
}

func TestAByteOrderMarkAndWindowsLineEndsAreRead(t *testing.T) {
	cfg, err := Parse("", []byte("\ufefflog:\r\n  level: warn\r\n  format: json\r\n"), testEnv())
	if err != nil || cfg.Log != (Log{Level: LevelWarn, Format: FormatJSON, Access: AccessSampled}) {
		t.Errorf("got %+v, %v", cfg, err)
	}
	if _, err := Parse("f", []byte("\xff\xfel\x00o\x00"), testEnv()); err == nil || err.Error() != "f: is not UTF-8 text; save it as UTF-8" {
		t.Errorf("UTF-16: %v", err)
	}
}

const everything = `
listen: {address: "[::1]:9000", grpc: {address: "[::1]:9001"}, max_request_bytes: 4MiB, insecure: true, admin: {address: "0.0.0.0:9464", pprof: true, insecure: true}}
log: {level: debug, format: json, access: on}
shutdown: {timeout: 1m}
telemetry: {trust_remote: false}
client_info:
  name: acme
  title: Acme Bridge
  version: 1.10
  description: >-
    Reaches the
    tools of Acme
  website_url: https://acme.example
targets:
  child:
    command: [npx, -y, "@modelcontextprotocol/server-everything", 42, true]
    env: {PORT: 8080, KEY: "${TOKEN}", FILE: "${file:/run/secrets/key}", PLAIN: 'a$b $${c}'}
    cwd: /srv
    lazy: true
    restart: {max: 1, window: 2s, stop_timeout: 3s}
    roots: [{uri: "file:///srv/data", name: data}, {uri: "file:///srv/more"}]
  search.v2:
    url: https://search.example:8443/mcp?x=1
    headers: {Authorization: "Bearer ${TOKEN}", X-Other: "${MISSING:-none}"}
    transport: streamable_http
    protocol_version: 2025-11-25
    minimum_protocol_version: 2025-06-18
    timeouts: {tool: 0s, resource: 1s, prompt: 2s, completion: 3s, initialize: 4s, detect: 5s, max: 6s, tools: {slow_tool: 10m, never: 0}}
    pool:
      isolation: per_key
      max_connections: 3
      max_in_flight: "${COUNT}"
      max_in_flight_per_connection: 4
      max_queue: 0
      max_interactive: 5
      idle_timeout: 6s
      max_lifetime: 7s
    health: {enabled: false, interval: 7s, timeout: 8s, failures: 9}
    reconnect: {interval: 1s, max_interval: 2s, multiplier: 1.5, max_attempts: 10}
    cache: {tools: false, resources: false, prompts: true, ignore_ttl: true}
    changes: {tools: false, resources: true, prompts: false}
    input: {max_rounds: 0}
    tasks: {enabled: false, max_stuck_polls: 11, poll_interval: 12s}
    dispatch: {max_in_flight: 0}
    baggage: {policy: allow, keys: [tenant, "${MISSING:-user}"]}
    server_log_level: notice
    max_reply_bytes: 1000
    max_list_bytes: 2000
  replicas:
    urls: ["https://a.example/mcp", "https://${TOKEN}.example:8443/mcp"]
    pool: {isolation: per_call}
`

func TestEverySettingIsRead(t *testing.T) {
	got, err := Parse("bridge.yaml", []byte(everything), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	child := NewTarget(TransportStdio)
	child.Command = []string{"npx", "-y", "@modelcontextprotocol/server-everything", "42", "true"}
	child.Env = map[string]Secret{"PORT": "8080", "KEY": "s3cr3t", "FILE": "from-file", "PLAIN": "a$b ${c}"}
	child.Cwd = "/srv"
	child.Lazy = true
	child.Restart = Restart{Max: 1, Window: 2 * time.Second, StopTimeout: 3 * time.Second}
	child.Roots = []Root{{URI: "file:///srv/data", Name: "data"}, {URI: "file:///srv/more"}}
	replicas := NewTarget(TransportAuto)
	replicas.URLs = []string{"https://a.example/mcp", "https://s3cr3t.example:8443/mcp"}
	replicas.Pool.Isolation, replicas.Pool.MaxConnections = IsolationPerCall, 256
	want := &Config{
		Listen:   Listen{Address: "[::1]:9000", GRPC: GRPC{Address: "[::1]:9001"}, MaxRequestBytes: 4 << 20, Insecure: true, Admin: Admin{Address: "0.0.0.0:9464", Pprof: true, Insecure: true}},
		Log:      Log{Level: LevelDebug, Format: FormatJSON, Access: AccessOn},
		Shutdown: Shutdown{Timeout: time.Minute},
		ClientInfo: ClientInfo{
			Name: "acme", Title: "Acme Bridge", Version: "1.10",
			Description: "Reaches the tools of Acme", WebsiteURL: "https://acme.example",
		},
		Targets: map[string]*Target{
			"child":    child,
			"replicas": replicas,
			"search.v2": {
				URL:             "https://search.example:8443/mcp?x=1",
				Headers:         map[string]Secret{"Authorization": "Bearer s3cr3t", "X-Other": "none"},
				Transport:       TransportStreamableHTTP,
				ProtocolVersion: Version20251125, MinimumProtocolVersion: MinimumVersion(Version20250618),
				Timeouts: Timeouts{
					Resource: time.Second, Prompt: 2 * time.Second, Completion: 3 * time.Second,
					Initialize: 4 * time.Second, Detect: 5 * time.Second, Max: 6 * time.Second,
					Tools: map[string]time.Duration{"slow_tool": 10 * time.Minute, "never": 0},
				},
				Pool: Pool{
					Isolation: IsolationPerKey, MaxConnections: 3, MaxInFlight: 7, MaxInFlightPerConnection: 4,
					MaxInteractive: 5, IdleTimeout: 6 * time.Second, MaxLifetime: 7 * time.Second,
				},
				Health:         Health{Interval: 7 * time.Second, Timeout: 8 * time.Second, Failures: 9},
				Reconnect:      Reconnect{Interval: time.Second, MaxInterval: 2 * time.Second, Multiplier: 1.5, MaxAttempts: 10},
				Cache:          Cache{Prompts: true, IgnoreTTL: true},
				Changes:        Changes{Resources: true},
				Tasks:          Tasks{MaxStuckPolls: 11, PollInterval: 12 * time.Second},
				Baggage:        Baggage{Policy: BaggageAllow, Keys: []string{"tenant", "user"}},
				ServerLogLevel: ServerLogNotice,
				MaxReplyBytes:  1000,
				MaxListBytes:   2000,
			},
		},
	}
	if diff := cmp.Diff(want, got, asFields(), cmp.Comparer(func(a, b Secret) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
}

func TestAnUnsetTimeoutIsTheDefaultOfItsTransport(t *testing.T) {
	cfg, err := Parse("", []byte("targets:\n  a: {command: [a]}\n  b: {url: http://b/mcp}\n"), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	a, b := cfg.Targets["a"], cfg.Targets["b"]
	if a.Transport != TransportStdio || a.Timeouts.Initialize != 60*time.Second || a.Timeouts.Detect != 15*time.Second || a.Restart.StopTimeout != 10*time.Second {
		t.Errorf("child process: %+v", a)
	}
	if b.Transport != TransportAuto || b.Timeouts.Initialize != 30*time.Second || b.Timeouts.Detect != 5*time.Second || b.Timeouts.Tool != 60*time.Second {
		t.Errorf("HTTP: %+v", b)
	}
}

func TestAnchorsAliasesAndMergeKeysAreResolved(t *testing.T) {
	cfg, err := Parse("", []byte(`
targets:
  a: &base
    url: http://a/mcp
    headers: &h {X-A: "1"}
    timeouts: {tool: 7s}
  b:
    <<: *base
    url: http://b/mcp
  c:
    url: http://c/mcp
    headers: *h
`), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	b, c := cfg.Targets["b"], cfg.Targets["c"]
	if b.URL != "http://b/mcp" || b.Timeouts.Tool != 7*time.Second || b.Headers["X-A"] != "1" {
		t.Errorf("merged target: %+v", b)
	}
	if c.Headers["X-A"] != "1" {
		t.Errorf("alias: %+v", c)
	}
}

func TestProblemsAreReportedWithTheirPlaceAndARemedy(t *testing.T) {
	checkProblems(t, []problem{
		{"unknown top key", "listne:\n  address: x\n", `f:1:1: unknown key "listne"; did you mean "listen"?`},
		{"unknown nested key", ofURL("timeouts: {tol: 5s}"), `f:4:16: targets.t.timeouts: unknown key "tol"; did you mean "tool"?`},
		{"unknown key without a neighbour", "zzzzzz: 1\n", `known here: listen, log, shutdown, telemetry, client_info, targets`},
		{"key of another case", "Listen: {}\n", `did you mean "listen"?`},
		{"duplicate key", "log: {level: info}\nlog: {}\n", `f:2:1: not valid YAML: mapping key "log" already defined at [1:1]`},
		{"broken YAML", "log: [\n", "f:1:6: not valid YAML: "},
		{"tab", "log:\n\tlevel: info\n", "f:2:1: not valid YAML: "},
		{"second document", "log: {}\n---\nlog: {}\n", "f:3:4: a second document starts here"},
		{"list for a mapping", "log: [1]\n", "f:1:6: log: must be a mapping, not a list"},
		{"mapping for a scalar", "log: {level: {a: b}}\n", "log.level: must be a single value, not a mapping"},
		{"document is a scalar", "hello\n", "f:1:1: must be a mapping, not a single value"},
		{"alias of nothing", "log: *x\n", "f:1:6: not valid YAML: "},
		{"merge of a scalar", "log: {<<: 1}\n", "<< needs an alias of a mapping"},
		{"command as text", ofTarget("command: npx -y x"), "f:3:14: targets.t.command: must be a list, not a single value; write [first, second]"},
		{"empty command", ofTarget("command: []"), "f:3:14: targets.t.command: must not be empty"},
		{"empty program", ofTarget(`command: [""]`), "targets.t.command[0]: must name a program"},
		{"NUL in an argument", ofTarget(`command: [a, "b\0"]`), "targets.t.command[1]: must not contain a NUL"},
		{"null argument", ofTarget("command: [a, ~]"), "targets.t.command[1]: has no value"},
		{"neither command nor url", ofTarget("lazy: true"), "f:3:5: targets.t: needs a command (a child process) or a url"},
		{"target without settings", "targets:\n  t:\n", "targets.t: needs a command"},
		{"both", ofTarget("command: [a]\nurl: http://h"), "f:3:5: targets.t: has both a command and a url"},
		{"bad name", "targets:\n  a b: {url: http://h}\n", "f:2:9: targets.a b: a target name has 1 to 64 of the characters"},
		{"long name", "targets:\n  " + strings.Repeat("x", 65) + ": {url: http://h}\n", "1 to 64"},
		{"no scheme", ofTarget("url: host/mcp"), "f:3:10: targets.t.url: must be an http:// or https:// URL, such as https://host/mcp, or unix:///path or tcp://host:port for a socket"},
		{"wrong scheme", ofTarget("url: ws://host/mcp"), "must be an http:// or https:// URL"},
		{"no host", ofTarget("url: http:///mcp"), "must be an http:// or https:// URL"},
		{"credentials in the url", ofTarget("url: http://u:p@host/mcp"), "must not contain a user name or password"},
		{"fragment", ofTarget("url: http://host/mcp#x"), "must not contain a # fragment"},
		{"bad port", ofTarget("url: http://host:99999/mcp"), "port outside 1 to 65535"},
		{"bad header name", ofURL("headers: {'A B': x}"), `f:4:22: targets.t.headers.A B: "A B" is not the name of an HTTP header`},
		{"own header", ofURL("headers: {Content-Type: x}"), "targets.t.headers.Content-Type: is set by the bridge itself"},
		{"header twice", ofURL("headers: {X-A: x, x-a: y}"), "targets.t.headers.x-a: is the same header as X-A"},
		{"non-ASCII header", ofURL("headers: {X-A: '${UMLAUT}'}"), "targets.t.headers.X-A: contains a character outside ASCII"},
		{"line break in a header", ofURL(`headers: {X-A: "a\nb"}`), "contains a line break"},
		{"control character in a header", ofURL(`headers: {X-A: "a\x01b"}`), "contains a control character"},
		{"space around a header", ofURL("headers: {X-A: ' a'}"), "begins or ends with white space"},
		{"null header", ofURL("headers: {X-A: }"), `targets.t.headers.X-A: has no value; write ""`},
		{"headers on a child", ofChild("headers: {X-A: a}"), "f:4:15: targets.t.headers: has no effect on a target with a command"},
		{"env on a url", ofURL("env: {A: a}"), "targets.t.env: has no effect on a target with a url"},
		{"cwd on a url", ofURL("cwd: /"), "targets.t.cwd: has no effect"},
		{"restart on a url", ofURL("restart: {stop_timeout: 1s}"), "targets.t.restart: has no effect"},
		{"stdio for a url", ofURL("transport: stdio"), "f:4:16: targets.t.transport: stdio does not fit this target; remove it or write auto, streamable_http or sse"},
		{"http for a child", ofChild("transport: streamable_http"), "streamable_http does not fit this target; remove it or write stdio"},
		{"unknown transport", ofURL("transport: carrier_pigeon"), "must be auto, streamable_http, sse or stdio"},
		{"sse for a child", ofChild("transport: sse"), "sse does not fit this target; remove it or write stdio"},
		{"http for a socket", ofTarget("url: unix:///s\ntransport: streamable_http"), "f:4:16: targets.t.transport: streamable_http does not fit this target; remove it or write auto"},
		{"stdio for a socket", ofTarget("url: tcp://h:1\ntransport: stdio"), "stdio does not fit this target; remove it or write auto"},
		{"headers on a socket", ofTarget("url: unix:///s\nheaders: {X-A: a}"), "targets.t.headers: has no effect on a socket, which has none; remove it"},
		{"relative socket", ofTarget("url: unix://run/s"), "must be unix:// with an absolute path and nothing else, such as unix:///run/server.sock"},
		{"socket without a path", ofTarget("url: 'unix:'"), "must be unix:// with an absolute path"},
		{"socket with a query", ofTarget("url: unix:///s?x"), "must be unix:// with an absolute path"},
		{"socket path too long", ofTarget("url: unix:///" + strings.Repeat("x", 107)), "has a path that no socket can have: at most 107 bytes"},
		{"tcp without a port", ofTarget("url: tcp://host"), "must be tcp:// with a host, a port from 1 to 65535 and nothing else"},
		{"tcp with a path", ofTarget("url: tcp://host:1/mcp"), "must be tcp:// with a host"},
		{"tcp with a user", ofTarget("url: tcp://u@host:1"), "must be tcp:// with a host"},
		{"program and arguments in one", ofTarget("command: [npx -y x]"), "targets.t.command[0]: holds a program and its arguments; make each an item of its own, such as [npx, -y, package]"},
		{"bad env name", ofChild("env: {'A=B': c}"), `"A=B" is not the name of an environment variable`},
		{"NUL in env", ofChild(`env: {A: "b\0"}`), "targets.t.env.A: must not contain a NUL"},
		{"zero stop timeout", ofChild("restart: {stop_timeout: 0s}"), "targets.t.restart.stop_timeout: must be more than zero"},
		{"unknown version", ofURL("protocol_version: 2024-01-01"), "must be auto, 2026-07-28, 2025-11-25"},
		{"unknown minimum", ofURL("minimum_protocol_version: auto"), `targets.t.minimum_protocol_version: must be 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26 or 2024-11-05, or "" for none`},
		{"minimum above the pin", ofURL("protocol_version: 2025-11-25\nminimum_protocol_version: 2026-07-28"), "f:5:31: targets.t.minimum_protocol_version: 2026-07-28 is newer than the protocol_version 2025-11-25"},
		{"health without an interval", ofURL("health: {interval: 0s}"), "targets.t.health.interval: must be more than zero, such as 30s; health.enabled: false switches the probes off"},
		{"health without a timeout", ofURL("health: {timeout: 0s}"), "targets.t.health.timeout: must be more than zero"},
		{"health without failures", ofURL("health: {failures: 0}"), "targets.t.health.failures: must be more than zero, such as 2"},
		{"failures as a word", ofURL("health: {failures: two}"), `targets.t.health.failures: "two" is not a whole number`},
		{"small multiplier", ofURL("reconnect: {multiplier: 0.9}"), "targets.t.reconnect.multiplier: must be 1 or more"},
		{"endless multiplier", ofURL("reconnect: {multiplier: Inf}"), `targets.t.reconnect.multiplier: "Inf" is not a number`},
		{"negative attempts", ofURL("reconnect: {max_attempts: -1}"), "targets.t.reconnect.max_attempts: must not be negative; 0 means no limit"},
		{"negative rounds", ofURL("input: {max_rounds: -1}"), "targets.t.input.max_rounds: must not be negative; 0 means that the bridge answers no round itself"},
		{"no stuck polls", ofURL("tasks: {max_stuck_polls: 0}"), "targets.t.tasks.max_stuck_polls: must be more than zero"},
		{"no poll interval", ofURL("tasks: {poll_interval: 0s}"), "targets.t.tasks.poll_interval: must be more than zero"},
		{"negative dispatch", ofURL("dispatch: {max_in_flight: -1}"), "targets.t.dispatch.max_in_flight: must not be negative; 0 means no limit"},
		{"baggage policy", ofURL("baggage: {policy: some}"), "targets.t.baggage.policy: must be forward, drop or allow"},
		{"baggage of no key", ofURL("baggage: {policy: allow}"), "targets.t.baggage.keys: must name the baggage keys that policy: allow lets through"},
		{"baggage keys without effect", ofURL("baggage: {policy: drop, keys: [a]}"), "targets.t.baggage.keys: have no effect with this policy"},
		{"baggage key that is none", ofURL("baggage: {policy: allow, keys: [a, b=c]}"), "targets.t.baggage.keys[1]: is no baggage key"},
		{"log level of the bridge", ofURL("server_log_level: warn"), "targets.t.server_log_level: must be none, debug, info, notice, warning, error, critical, alert or emergency"},
		{"zero list size", ofURL("max_list_bytes: 0"), "targets.t.max_list_bytes: must be more than zero"},
		{"negative total", ofURL("timeouts: {max: -1s}"), `targets.t.timeouts.max: "-1s" must not be negative`},
		{"duration without a unit", ofURL("timeouts: {tool: 60}"), `targets.t.timeouts.tool: "60" is not a duration`},
		{"negative duration", ofURL("timeouts: {tools: {x: -1s}}"), `targets.t.timeouts.tools.x: "-1s" must not be negative`},
		{"negative count", ofURL("pool: {max_queue: -1}"), "targets.t.pool.max_queue: must not be negative"},
		{"fraction", ofURL("pool: {max_queue: 1.5}"), `"1.5" is not a whole number`},
		{"backoff reversed", ofURL("reconnect: {interval: 2m}"), "targets.t.reconnect.max_interval: 1m0s is below reconnect.interval, 2m0s"},
		{"zero interval", ofURL("reconnect: {interval: 0s}"), "targets.t.reconnect.interval: must be more than zero"},
		{"root with another scheme", ofURL("roots: [{uri: http://x}]"), "targets.t.roots[0].uri: must be a file:// URI"},
		{"root without a path", ofURL("roots: [{uri: 'file://x'}]"), "must be a file:// URI with an absolute path"},
		{"root twice", ofURL("roots: [{uri: 'file:///x'}, {uri: 'file:///x'}]"), "targets.t.roots[1].uri: is listed twice"},
		{"zero reply size", ofURL("max_reply_bytes: 0"), "targets.t.max_reply_bytes: must be more than zero"},
		{"bad size", ofURL("max_reply_bytes: 1XB"), `"1XB" is not a size`},
		{"size overflow", ofURL("max_reply_bytes: 9999999999GiB"), "is too large"},
		{"negative size", "listen: {max_request_bytes: -1}\n", "must not be negative"},
		{"bad bool", ofURL("lazy: maybe"), `targets.t.lazy: "maybe" must be true or false`},
		{"bad address", "listen: {address: localhost}\n", "f:1:19: listen.address: must be HOST:PORT"},
		{"bad gRPC address", "listen: {grpc: {address: '8081'}}\n", "f:1:26: listen.grpc.address: must be HOST:PORT"},
		{"the gRPC address twice", "listen: {grpc: {address: '127.0.0.1:8080'}}\n", "listen.grpc.address: is that of listen.address, which takes gRPC as well"},
		{"the admin's gRPC address", "listen: {grpc: {address: '127.0.0.1:1'}, admin: {address: '127.0.0.1:1'}}\n", "listen.admin.address: is that of listen.grpc.address"},
		{"bad admin address", "listen: {admin: {address: ':http'}}\n", "f:1:27: listen.admin.address: has a port outside 0 to 65535"},
		{"the same address twice", "listen: {admin: {address: '127.0.0.1:8080'}}\n", "listen.admin.address: is that of listen.address"},
		{"profiles without a listener", "listen: {admin: {pprof: true}}\n", "listen.admin.pprof: is served by the admin listener only; set listen.admin.address"},
		{"an unknown access log", "log: {access: some}\n", "f:1:15: log.access: must be off, on or sampled"},
		{"bad listen port", "listen: {address: 'localhost:http'}\n", "port outside 0 to 65535"},
		{"bad level", "log: {level: loud}\n", "log.level: must be debug, info, warn or error"},
		{"bad format", "log: {format: xml}\n", "log.format: must be text or json"},
		{"empty client name", "client_info: {name: ''}\n", "client_info.name: must not be empty"},
		{"bad website", "client_info: {website_url: acme}\n", "client_info.website_url: must be an absolute"},
		{"unset variable", ofURL("headers:\n  X-A: ${NOPE}"), "f:5:12: targets.t.headers.X-A: the environment variable NOPE is not set"},
		{"unset variable in a number", ofURL("lazy: ${NOPE}"), "targets.t.lazy: the environment variable NOPE is not set"},
	})
}

func TestAllProblemsAreReportedInTheOrderOfTheFile(t *testing.T) {
	_, err := Parse("bridge.yaml", []byte(`listen:
  adddress: 127.0.0.1:80
log: {level: loud}
targets:
  a:
    url: ftp://x
    timeouts: {tool: 5}
  b: {}
`), testEnv())
	want := `5 problems in bridge.yaml:
bridge.yaml:2:3: listen: unknown key "adddress"; did you mean "address"?
bridge.yaml:3:14: log.level: must be debug, info, warn or error
bridge.yaml:6:10: targets.a.url: must be an http:// or https:// URL, such as https://host/mcp, or unix:///path or tcp://host:port for a socket
bridge.yaml:7:22: targets.a.timeouts.tool: "5" is not a duration; write a number with its unit, such as 500ms, 5s, 10m or 1h30m
bridge.yaml:8:6: targets.b: needs a command (a child process) or a url (an HTTP server)`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if e, ok := errors.AsType[Error](err); !ok || e.Line != 2 {
		t.Errorf("the first Error is %+v, %v", e, ok)
	}
}

func TestNoProblemTextShowsASecret(t *testing.T) {
	for _, text := range []string{
		"targets: {t: {url: 'http://h', headers: {A: \"${TOKEN}\\n\"}}}",
		"targets: {t: {url: '${TOKEN}'}}",
		"targets: {t: {url: 'http://h', lazy: '${TOKEN}'}}",
		"targets: {t: {url: 'http://h', timeouts: {tool: '${TOKEN}'}}}",
		"targets: {t: {url: 'http://h', protocol_version: '${TOKEN}'}}",
		"targets: {t: {url: 'http://h', transport: '${TOKEN}'}}",
		"targets: {t: {command: [a], env: {A: \"${TOKEN}\\0\"}}}",
		"targets: {t: {url: 'http://${TOKEN}:x@h:1:2'}}",
		"targets: {t: {url: 'unix://${TOKEN}/x'}}",
		"targets: {t: {url: 'tcp://${TOKEN}'}}",
		"targets: {t: {command: ['npx ${TOKEN}']}}",
		"targets: {t: {url: 'http://h', minimum_protocol_version: '${TOKEN}'}}",
		"targets: {t: {url: 'http://h', server_log_level: '${TOKEN}'}}",
		"targets: {t: {url: 'http://h', reconnect: {multiplier: '${TOKEN}'}}}",
	} {
		_, err := Parse("f", []byte(text), testEnv())
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAliasesCannotFillTheMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 8 {
		b.WriteString(strings.NewReplacer("N", string(rune('1'+i)), "P", string(rune('0'+i))).Replace(
			"aN: &aN [*aP, *aP, *aP, *aP, *aP, *aP, *aP, *aP, *aP, *aP]\n"))
	}
	_, err := Parse("f", []byte(b.String()), testEnv())
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v", err)
	}
}

func TestLoadReadsAFileAndNamesItInErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := os.WriteFile(path, []byte("log: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path)
	if err != nil || cfg.Log.Level != LevelWarn {
		t.Errorf("got %+v, %v", cfg, err)
	}
	if _, err := Load(path + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	if err := os.WriteFile(path, []byte("log: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":1:6: log: ") {
		t.Errorf("got %v", err)
	}
}

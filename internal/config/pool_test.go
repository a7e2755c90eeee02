package config

import (
	"strings"
	"testing"
	"time"
)

func TestAnUnsetPoolHasItsDefaults(t *testing.T) {
	cfg, err := Parse("f", []byte("targets: {a: {command: [a]}, b: {url: 'http://b'}, c: {urls: ['http://c'], pool: }}\n"), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	want := Pool{
		Isolation: "shared", MaxConnections: 1, MaxInFlight: 1024, MaxInFlightPerConnection: 0, MaxQueue: 1024,
		MaxInteractive: 16, IdleTimeout: 5 * time.Minute, MaxLifetime: 0,
	}
	for name, target := range cfg.Targets {
		if target.Pool != want {
			t.Errorf("%s: %+v", name, target.Pool)
		}
	}
	if got := cfg.Targets["a"].Restart; got != (Restart{Max: 5, Window: time.Minute, StopTimeout: 10 * time.Second}) {
		t.Errorf("restart of a child process: %+v", got)
	}
	if got := cfg.Targets["b"].Restart; got != (Restart{}) {
		t.Errorf("restart of a URL: %+v", got)
	}
}

func TestTheDefaultOfMaxConnectionsFollowsTheIsolation(t *testing.T) {
	for pool, want := range map[string]int{
		"{}":                   1,
		"{isolation: shared}":  1,
		"{isolation: per_key}": 256, "{isolation: per_call}": 256,
		"{isolation: per_key, max_queue: 7}":                        256,
		"{isolation: per_key, max_connections: }":                   256,
		"{isolation: per_key, max_connections: 1}":                  1,
		"{isolation: per_call, max_connections: 9}":                 9,
		"{isolation: shared, max_connections: 8}":                   8,
		"{max_connections: '${COUNT}'}":                             7,
		"{max_connections: '${COUNT}', isolation: '${X:-per_key}'}": 7,
		"{isolation: '${X:-per_key}'}":                              256,
	} {
		cfg, err := Parse("f", []byte("targets: {t: {url: 'http://h', pool: "+pool+"}}"), testEnv())
		if err != nil {
			t.Errorf("%s: %v", pool, err)
		} else if got := cfg.Targets["t"].Pool.MaxConnections; got != want {
			t.Errorf("%s: %d, want %d", pool, got, want)
		}
	}
}

func TestASharedAnchorGivesEachTargetTheDefaultOfItsOwnIsolation(t *testing.T) {
	cfg, err := Parse("f", []byte(`
targets:
  a: &a {url: http://h, pool: {isolation: per_key}}
  b: {<<: *a, pool: {max_queue: 1}}
  c: {<<: *a}
`), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"a": 256, "b": 1, "c": 256} {
		if got := cfg.Targets[name].Pool.MaxConnections; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// The paths of settings have dots, and so may the names of targets.
func TestATargetIsNotTakenForASettingOfAnother(t *testing.T) {
	cfg, err := Parse("f", []byte(`
targets:
  t: {url: http://h, pool: {isolation: per_key}}
  t.env: {url: http://h}
  t.pool.max_connections: {url: http://h}
`), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Targets["t"].Pool.MaxConnections; got != 256 {
		t.Errorf("max_connections is %d", got)
	}
	_, err = Parse("f", []byte("targets:\n  a.b: {url: http://h, lazy: 7}\n"), testEnv())
	if want := `f:2:30: targets."a.b".lazy: "7" must be true or false`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = Parse("f", []byte("targets:\n  a.b: {url: http://h, max_list_bytes: 0}\n"), testEnv())
	if want := `f:2:40: targets."a.b".max_list_bytes: must be more than zero, such as 64MiB`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestProblemsOfThePoolAndOfRestartsAreReported(t *testing.T) {
	inPool := func(lines string) string { return ofURL("pool: {" + lines + "}") }
	checkProblems(t, []problem{
		{"unknown isolation", inPool("isolation: per_user"), "f:4:23: targets.t.pool.isolation: must be shared, per_key or per_call"},
		{"isolation of another case", inPool("isolation: Shared"), "must be shared, per_key or per_call"},
		{"isolation by caller", inPool("isolation: per_caller"), "f:4:23: targets.t.pool.isolation: per_caller needs callers that are authenticated, and no listener of this bridge authenticates them; use per_key"},
		{"no connection", inPool("max_connections: 0"), "f:4:29: targets.t.pool.max_connections: must be 1 or more; remove it for the default, which is 1 with isolation shared and 256 with the others"},
		{"no connection for a key", inPool("isolation: per_key, max_connections: 0"), "f:4:49: targets.t.pool.max_connections: must be 1 or more"},
		{"negative connections", inPool("max_connections: -1"), "targets.t.pool.max_connections: must be 1 or more"},
		{"connections as a word", inPool("max_connections: many"), `targets.t.pool.max_connections: "many" is not a whole number`},
		{"negative calls", inPool("max_in_flight: -1"), "f:4:27: targets.t.pool.max_in_flight: must not be negative; 0 means no limit"},
		{"negative calls of a connection", inPool("max_in_flight_per_connection: -1"), "f:4:42: targets.t.pool.max_in_flight_per_connection: must not be negative; 0 means no limit"},
		{"no interactive call", inPool("max_interactive: 0"), "f:4:29: targets.t.pool.max_interactive: must be more than zero, such as 16"},
		{"negative idle timeout", inPool("idle_timeout: -1s"), `f:4:26: targets.t.pool.idle_timeout: "-1s" must not be negative`},
		{"idle timeout without a unit", inPool("idle_timeout: 5"), `f:4:26: targets.t.pool.idle_timeout: "5" is not a duration`},
		{"negative lifetime", inPool("max_lifetime: -1s"), `f:4:26: targets.t.pool.max_lifetime: "-1s" must not be negative`},
		{"unknown setting", inPool("max_conections: 2"), `f:4:12: targets.t.pool: unknown key "max_conections"; did you mean "max_connections"?`},
		{"negative restarts", ofChild("restart: {max: -1}"), "f:4:20: targets.t.restart.max: must not be negative; 0 means no limit"},
		{"no window", ofChild("restart: {window: 0s}"), "f:4:23: targets.t.restart.window: must be more than zero, such as 60s; restart.max: 0 permits any number of restarts"},
		{"restarts of a url", ofURL("restart: {max: 0}"), "f:4:15: targets.t.restart: has no effect on a target with a url; remove it"},
		{"window of urls", ofTarget("urls: [http://a]\nrestart: {window: 1s}"), "f:4:15: targets.t.restart: has no effect on a target with urls; remove it"},
	})
}

func TestValidateChecksAPoolThatCodeSets(t *testing.T) {
	cfg := Default()
	target := NewTarget(TransportStdio)
	target.Command = []string{"a"}
	target.Pool = Pool{Isolation: IsolationPerCaller, IdleTimeout: -1, MaxLifetime: -1}
	target.Restart.Window = -1
	cfg.Targets["t"] = target
	err := cfg.Validate()
	for _, want := range []string{
		"6 problems",
		"targets.t.pool.isolation: per_caller needs callers",
		"targets.t.pool.max_connections: must be 1 or more",
		"targets.t.pool.max_interactive: must be more than zero",
		"targets.t.pool.idle_timeout: must not be negative; 0s means never",
		"targets.t.pool.max_lifetime: must not be negative; 0s means never",
		"targets.t.restart.window: must be more than zero",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in:\n%v", want, err)
		}
	}
}

package mcpclient

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

func TestTheZeroOptionsGetEveryDefault(t *testing.T) {
	var http, stdio Options
	if err := http.prepare("streamable_http"); err != nil {
		t.Fatal(err)
	}
	if err := stdio.prepare("stdio"); err != nil {
		t.Fatal(err)
	}
	if http.Version != (VersionOptions{DetectTimeout: 5 * time.Second, Timeout: 30 * time.Second}) {
		t.Errorf("over HTTP: %+v", http.Version)
	}
	if stdio.Version != (VersionOptions{DetectTimeout: 15 * time.Second, Timeout: time.Minute}) {
		t.Errorf("over stdio: %+v", stdio.Version)
	}
	if http.Timeouts.Tool != time.Minute || http.Timeouts.Completion != time.Minute || http.MaxPages != 1024 ||
		http.Reconnect != (ReconnectOptions{Interval: 5 * time.Second, MaxInterval: time.Minute, Multiplier: 2, StopTimeout: NoTimeout}) ||
		http.Health != (HealthOptions{Interval: 30 * time.Second, Timeout: 10 * time.Second, Failures: 2}) || http.Dispatch.MaxInFlight != 1024 ||
		http.Info.Name == "" || http.Info.Version == "" || http.Logger == nil {
		t.Errorf("defaults are missing: %+v", http)
	}
}

func TestBadOptionsAreAllNamed(t *testing.T) {
	o := Options{
		Version:   VersionOptions{Pin: "2077-01-01", DetectTimeout: -5},
		Timeouts:  Timeouts{Tool: -7, Tools: map[string]time.Duration{"slow": -9}},
		Reconnect: ReconnectOptions{Interval: NoTimeout},
		MaxPages:  -2,
		Roots:     []Root{{URI: "/srv"}},
	}
	err := o.prepare("stdio")
	for _, name := range []string{"Version.Pin", "2077-01-01", "Version.DetectTimeout", "Timeouts.Tool:", "Timeouts.Tools[slow]", "Reconnect.Interval", "MaxPages", "option Roots: root 0"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not named in: %v", name, err)
		}
	}
}

func TestNoTimeoutSwitchesOneOff(t *testing.T) {
	o := Options{Timeouts: Timeouts{Tool: NoTimeout, Tools: map[string]time.Duration{"t": 5, "free": NoTimeout}}, Version: VersionOptions{Timeout: NoTimeout}}
	if err := o.prepare("stdio"); err != nil {
		t.Fatal(err)
	}
	c := &Client{opts: o}
	for name, want := range map[string]time.Duration{"t": 5, "free": 0, "other": 0} {
		if got, setting := c.timeout(&Call{Method: methodCallTool, Name: name}); got != want {
			t.Errorf("tool %s has %v (%s), want %v", name, got, setting, want)
		}
	}
	if got, _ := c.timeout(&Call{Method: methodReadResource}); got != time.Minute {
		t.Errorf("resources have %v", got)
	}
}

func TestVersionsHaveTheirEra(t *testing.T) {
	for version, want := range map[string]Era{"2026-07-28": EraModern, "2025-11-25": EraLegacy, "2024-11-05": EraLegacy, "2027-01-01": EraUnknown, "": EraUnknown, "foo": EraUnknown} {
		if got := EraOf(version); got != want {
			t.Errorf("%q is %v, want %v", version, got, want)
		}
	}
	if got := bestMutual(legacyVersions, []string{"2024-11-05", "2025-06-18", "x"}); got != "2025-06-18" {
		t.Errorf("the best mutual version is %q", got)
	}
}

func TestTimesToLiveAreClamped(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "-5": 0, "1500": 1500 * time.Millisecond, "1.5": time.Millisecond, "1e400": math.MaxInt64, "9223372036854775807": math.MaxInt64,
	} {
		if got := milliseconds(jsontext.Value(text)); got != want {
			t.Errorf("ttlMs %s is %v, want %v", text, got, want)
		}
	}
}

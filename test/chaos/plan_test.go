package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTwentyTargetsOfWhichSixAreNeverTouched(t *testing.T) {
	all := newTargets()
	untouched := map[kind]int{}
	for _, target := range all {
		if !target.touched {
			untouched[target.kind]++
		}
	}
	if len(all) != 20 || untouched[kindStdio] < 2 || untouched[kindLegacy] < 2 || untouched[kindModern] < 2 {
		t.Errorf("%d targets, untouched %v", len(all), untouched)
	}
}

func TestTheSameSeedGivesTheSamePlans(t *testing.T) {
	one := newPlans(7, 3*time.Minute, newTargets()).String()
	if again := newPlans(7, 3*time.Minute, newTargets()).String(); again != one {
		t.Errorf("one: %s\nagain: %s", one, again)
	}
	if other := newPlans(8, 3*time.Minute, newTargets()).String(); other == one {
		t.Error("another seed gives the same")
	}
}

func TestThreeMinutesHaveEveryFaultOfEveryKind(t *testing.T) {
	for seed := range uint64(20) {
		planned := map[kind][]fault{}
		for _, p := range newPlans(seed, 3*time.Minute, newTargets()) {
			if !p.target.touched {
				t.Errorf("%s is disturbed", p.target.name)
			}
			for _, s := range p.steps[:7] { // those that a run surely has the time for
				if !slices.Contains(faultsOf(p.target), s.fault) {
					t.Errorf("%s cannot be disturbed by %s", p.target.name, s.fault)
				}
				planned[p.target.kind] = append(planned[p.target.kind], s.fault)
			}
		}
		for _, target := range newTargets() {
			for _, f := range faultsOf(target) {
				if target.touched && !slices.Contains(planned[target.kind], f) {
					t.Errorf("seed %d: %s has no %s", seed, target.kind, f)
				}
			}
		}
	}
}

func TestTheConfigurationNamesEveryTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := writeConfig(path, "/chaos", newTargets()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Targets map[string]struct {
			URL     string
			Command []string
		}
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	if stdio := config.Targets["stdio-1"]; len(config.Targets) != 20 || !slices.Contains(stdio.Command, "stdio-1") || stdio.URL != "" {
		t.Errorf("%d targets, stdio-1 %+v", len(config.Targets), stdio)
	}
	if modern := config.Targets["modern-1"]; !strings.HasSuffix(modern.URL, "/mcp") || modern.Command != nil {
		t.Errorf("modern-1 %+v", modern)
	}
}

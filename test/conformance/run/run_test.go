package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCommittedTableExpectsNoFailure(t *testing.T) {
	table, err := readTable("../expected.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range revisions {
		if len(table[revision]) == 0 {
			t.Errorf("%s has no scenarios", revision)
		}
		for scenario, want := range table[revision] {
			if !ours(scenario) || want["SUCCESS"] == 0 {
				t.Errorf("%s %s expects %v", revision, scenario, want)
			}
			for status := range want {
				if status != "SUCCESS" && (status != "SKIPPED" || scenario != "http-standard-headers") {
					t.Errorf("%s %s expects %v", revision, scenario, want)
				}
			}
		}
	}
	if len(table) != len(revisions) {
		t.Errorf("the table has %d revisions, %d are run", len(table), len(revisions))
	}
}

func TestChecksAreCountedAndFailuresAreNamed(t *testing.T) {
	got, wrong, err := readChecks([]byte(`[
		{"id":"a","status":"SUCCESS"}, {"id":"a","status":"SUCCESS"}, {"id":"log","status":"INFO"},
		{"id":"b","status":"WARNING","description":"late"}, {"id":"c","status":"FAILURE","errorMessage":"missing"},
		{"id":"d","status":"SKIPPED"}, {"id":"e","status":"NEW"}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := counts{"SUCCESS": 2, "WARNING": 1, "FAILURE": 1, "SKIPPED": 1, "NEW": 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if all := strings.Join(wrong, "\n"); len(wrong) != 3 || !strings.Contains(all, "WARNING b: late") || !strings.Contains(all, "FAILURE c:  missing") {
		t.Errorf("wrong checks: %q", wrong)
	}
}

func TestAScenarioWithoutASuccessIsNoSuccess(t *testing.T) {
	for _, raw := range []string{`[]`, `[{"id":"a","status":"SKIPPED"}]`} {
		if _, wrong, err := readChecks([]byte(raw)); err != nil || len(wrong) == 0 {
			t.Errorf("%s: got %v, %v", raw, wrong, err)
		}
	}
	if _, _, err := readChecks([]byte(`{}`)); err == nil {
		t.Error("checks that are no array passed")
	}
}

func TestAMissingResultIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := readResult(dir); err == nil {
		t.Error("no result passed")
	}
	folder := filepath.Join(dir, "tools_call-2026-01-01")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"checks.json": `[{"id":"a","status":"SUCCESS"}]`, "stderr.txt": "log"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, wrong, err := readResult(dir)
	if err != nil || len(wrong) > 0 || got.counts["SUCCESS"] != 1 || got.log != "log" {
		t.Errorf("got %+v, %v, %v", got, wrong, err)
	}
}

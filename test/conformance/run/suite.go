package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// patience bounds one scenario. The suite itself ends a client after 30 s.
const patience = 60 * time.Second

// ours says whether a scenario is one for this client: authorization is not its part, and skills are an extension
// that it does not speak.
func ours(scenario string) bool {
	return !strings.HasPrefix(scenario, "auth/") && !strings.HasPrefix(scenario, "sep-2640-")
}

var listLine = regexp.MustCompile(`^\s+- (\S+) \[(.*)\]$`)

// list returns the scenarios of the client role by the revisions that they apply to.
func (s *suite) list(ctx context.Context) (map[string]map[string]bool, error) {
	out, err := exec.CommandContext(ctx, s.node, s.script, "list", "--client").Output()
	if err != nil {
		return nil, fmt.Errorf("list the scenarios: %w", err)
	}
	listed, total := map[string]map[string]bool{}, 0
	for line := range strings.Lines(string(out)) {
		match := listLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			continue
		}
		total++
		if !ours(match[1]) {
			continue
		}
		for revision := range strings.SplitSeq(match[2], ",") {
			if listed[revision] == nil {
				listed[revision] = map[string]bool{}
			}
			listed[revision][match[1]] = true
		}
	}
	if total == 0 {
		return nil, fmt.Errorf("the suite listed no scenario:\n%s", out)
	}
	return listed, nil
}

// outcome is what a scenario's result files say.
type outcome struct {
	counts counts
	log    string // what the client wrote
}

// scenario runs one scenario and returns its outcome and what is wrong whatever was expected.
func (s *suite) scenario(ctx context.Context, revision, name string) (outcome, []string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir := filepath.Join(s.dir, "results", revision, name)
	if err := os.RemoveAll(dir); err != nil {
		return outcome{}, []string{err.Error()}
	}
	// The suite splits the command at spaces, hence a path without any.
	cmd := exec.CommandContext(ctx, s.node, s.script, "client", "--command", "./driver",
		"--scenario", name, "--spec-version", revision, "--force", "-o", dir)
	cmd.Dir = s.dir
	cmd.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	var problems []string
	if err := cmd.Run(); err != nil {
		problems = append(problems, fmt.Sprintf("the suite ended with %v", err))
	}
	// Scenarios that allow a client's failure do not count it; ours never fails.
	for _, trouble := range []string{"Client exited with code", "Client timed out"} {
		if strings.Contains(output.String(), trouble) {
			problems = append(problems, "the suite says: "+trouble)
		}
	}
	result, wrong, err := readResult(dir)
	if err != nil {
		return outcome{log: output.String()}, append(problems, err.Error())
	}
	return result, append(problems, wrong...)
}

// readResult reads the files of one scenario, which are in a folder whose name has the time in it.
func readResult(dir string) (outcome, []string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		return outcome{}, nil, err
	}
	if len(found) != 1 {
		return outcome{}, nil, fmt.Errorf("the suite wrote %d results, not one", len(found))
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		return outcome{}, nil, err
	}
	log, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), "stderr.txt"))
	if err != nil {
		return outcome{}, nil, err
	}
	counts, wrong, err := readChecks(raw)
	return outcome{counts: counts, log: string(log)}, wrong, err
}

// readChecks counts the checks of one scenario and tells which are wrong.
func readChecks(raw []byte) (counts, []string, error) {
	var checks []struct {
		ID           string          `json:"id"`
		Description  string          `json:"description"`
		Status       string          `json:"status"`
		ErrorMessage string          `json:"errorMessage"`
		Details      json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(raw, &checks); err != nil {
		return nil, nil, fmt.Errorf("checks.json: %w", err)
	}
	out, wrong := counts{}, []string(nil)
	for _, check := range checks {
		switch check.Status {
		case "INFO":
			continue
		case "SUCCESS", "SKIPPED":
		default: // FAILURE, WARNING, and what a newer suite may add
			wrong = append(wrong, strings.TrimSpace(fmt.Sprintf("%s %s: %s %s %s", check.Status, check.ID, check.Description, check.ErrorMessage, check.Details)))
		}
		out[check.Status]++
	}
	if out["SUCCESS"] == 0 {
		wrong = append(wrong, "no check succeeded")
	}
	return out, wrong, nil
}

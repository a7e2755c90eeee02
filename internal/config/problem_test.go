package config

import (
	"errors"
	"strings"
	"testing"
)

// problem is a file with one problem, and a part of the report about it.
type problem struct{ name, text, want string }

// ofTarget is a file whose target t, from line 3 on, has the lines.
func ofTarget(lines string) string {
	return "targets:\n  t:\n    " + strings.ReplaceAll(lines, "\n", "\n    ")
}

// ofURL and ofChild are files whose lines begin with line 4.
func ofURL(lines string) string   { return ofTarget("url: http://h/mcp\n" + lines) }
func ofChild(lines string) string { return ofTarget("command: [prog]\n" + lines) }

func checkProblems(t *testing.T, problems []problem) {
	t.Helper()
	for _, c := range problems {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f", []byte(c.text), testEnv())
			errs, ok := errors.AsType[Errors](err)
			if !ok {
				t.Fatalf("got %v, want Errors with %q", err, c.want)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if len(errs) != 1 {
				t.Errorf("want one problem, got %d:\n%v", len(errs), err)
			}
			if errs[0].Line == 0 {
				t.Errorf("no line: %v", err)
			}
		})
	}
}

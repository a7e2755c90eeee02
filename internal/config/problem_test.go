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

func TestMistakesOfFormatSayWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		ofTarget("command: [x, --r=${A:-b}]"):                                       `f:3:`,
		ofTarget("command: [x, --r=${A:-b}] "):                                      `; inside of [...] and {...} put quotes around a value that holds ${...}`,
		ofTarget("url: http://h/\nheaders: {Authorization: Bearer ${TOKEN:-none}}"): `put quotes around a value`,
		"targets:\n\tt:\n\t\turl: http://h/\n":                                      `; indent with spaces, not with tabs`,
		"targets:\n  t:\n  \turl: http://h/\n":                                      `; indent with spaces, not with tabs`,
		"mcpServers: {a: {command: x}}":                                             `unknown key "mcpServers"; a file in that format is read by --mcp-json FILE`,
		ofTarget("command: [x]\nargs: [a]"):                                         `unknown key "args"; arguments belong into command: [PROGRAM, ARGUMENT, ...]`,
	} {
		_, err := Parse("f", []byte(text), testEnv())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReferencesAreReplaced(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"plain":                            "plain",
		"${TOKEN}":                         "s3cr3t",
		"${env:TOKEN}":                     "s3cr3t",
		"a${TOKEN}b${COUNT}c":              "as3cr3tb7c",
		"${EMPTY}":                         "",
		"${EMPTY:-x}":                      "x",
		"${MISSING:-}":                     "",
		"${MISSING:-a:-b}":                 "a:-b",
		"${TOKEN:-x}":                      "s3cr3t",
		"${file:/run/secrets/key}":         "from-file",
		"$TOKEN $ $$ 5$":                   "$TOKEN $ $$ 5$",
		"$${TOKEN} ${COUNT}":               "${TOKEN} 7",
		"$$${TOKEN}":                       "$${TOKEN}",
		"${MISSING:-${file:/run}":          "${file:/run",
		"Bearer ${file:/run/secrets/key}!": "Bearer from-file!",
	} {
		if got, err := testEnv().expand(text); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestWhatABrokenReferenceSays(t *testing.T) {
	for text, want := range map[string]string{
		"${MISSING}":     "the environment variable MISSING is not set",
		"${TOKEN":        "is not closed",
		"${}":            "is not a reference",
		"${A-B}":         "is not a reference",
		"${1A}":          "is not a reference",
		"${input:token}": "is not a reference",
		"${file:key}":    "needs an absolute path",
		"${file:/none}":  "cannot be read: file does not exist",
	} {
		if _, err := testEnv().expand(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestAReplacementIsNotExpandedAgain(t *testing.T) {
	env := Env{Lookup: func(string) (string, bool) { return "${TOKEN}", true }}
	if got, err := env.expand("${A}"); err != nil || got != "${TOKEN}" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestTheZeroEnvReadsTheProcess(t *testing.T) {
	t.Setenv("CONFIG_TEST_VARIABLE", "set")
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("line\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Env{}.expand("${CONFIG_TEST_VARIABLE} ${file:" + path + "}")
	if err != nil || got != "set line" {
		t.Errorf("got %q, %v", got, err)
	}
}

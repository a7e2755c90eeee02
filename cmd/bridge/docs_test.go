package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// blocks returns the fenced blocks of a language.
func blocks(t *testing.T, path, language string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			out = append(out, m[2])
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no %s block", path, language)
	}
	return out
}

func TestTheReadmesGoCodeStandsInTheExamples(t *testing.T) {
	var unindented strings.Builder
	for _, name := range []string{"goclient", "interactive"} {
		example, err := os.ReadFile("../../examples/" + name + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		unindented.WriteString(strings.ReplaceAll("\n"+string(example), "\n\t", "\n"))
	}
	for _, block := range blocks(t, "../../README.md", "go") {
		if !strings.Contains(unindented.String(), block) {
			t.Errorf("this code of README.md is not in an example that is tested:\n%s", block)
		}
	}
}

func TestTheReadmesConfigurationIsValid(t *testing.T) {
	env := config.Env{Lookup: func(name string) (string, bool) { return "secret", name == "SEARCH_TOKEN" }}
	for _, block := range blocks(t, "../../README.md", "yaml") {
		cfg, err := config.Parse("bridge.yaml", []byte(block), env)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
}

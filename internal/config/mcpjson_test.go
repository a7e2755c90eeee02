package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheMcpServersFormatIsReadUnchanged(t *testing.T) {
	got, err := ParseMCPJSON(".mcp.json", []byte(`{
	"mcpServers": {
		"filesystem": {
			"command": "npx",
			"args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"],
			"env": {"KEY": "${TOKEN}", "N": "1"},
			"cwd": "/tmp",
			"autoApprove": [], "timeout": 60, "type": "stdio"
		},
		"My Server/1": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
		"old": {"type": "sse", "url": "https://h/sse"},
		"gemini": {"httpUrl": "https://g/mcp", "trust": true},
		"socket": {"url": "unix:///run/s.sock"},
		"windsurf": {"serverUrl": "https://w/mcp", "transport": "streamable-http"},
		"off": {"command": "x", "env": {"K": "${MISSING}"}, "disabled": true},
		"off2": {"command": "x", "enabled": false},
		"on": {"command": "x", "disabled": false, "enabled": true}
	},
	"other": {"anything": [1, 2.5, null, true, {"a": {}}]}
}`), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	child := func(command ...string) *Target {
		t := NewTarget(TransportStdio)
		t.Command = command
		return t
	}
	remote := func(transport Transport, url string) *Target {
		t := NewTarget(transport)
		t.URL = url
		return t
	}
	files := child("npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv")
	files.Env, files.Cwd = map[string]Secret{"KEY": "s3cr3t", "N": "1"}, "/tmp"
	mine := remote(TransportStreamableHTTP, "https://h/mcp")
	mine.Headers = map[string]Secret{"Authorization": "Bearer s3cr3t"}
	want := map[string]*Target{
		"filesystem":  files,
		"My-Server-1": mine,
		"old":         remote(TransportSSE, "https://h/sse"),
		"gemini":      remote(TransportAuto, "https://g/mcp"),
		"socket":      remote(TransportAuto, "unix:///run/s.sock"),
		"windsurf":    remote(TransportStreamableHTTP, "https://w/mcp"),
		"on":          child("x"),
	}
	if diff := cmp.Diff(want, got, asFields(), cmp.Comparer(func(a, b Secret) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	cfg := Default()
	if err := errors.Join(cfg.Merge(got), cfg.Validate()); err != nil {
		t.Errorf("the targets are not valid: %v", err)
	}
}

func TestTheServersKeyOfEditorsIsReadToo(t *testing.T) {
	got, err := ParseMCPJSON("mcp.json", []byte("\ufeff"+`{"inputs": [], "servers": {"a": {"command": "x"}}}`), testEnv())
	if err != nil || len(got) != 1 || got["a"] == nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestProblemsOfAnMcpServersFileHaveTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "f:1:1: not valid JSON: the document ends too early",
		`{`:                                    "not valid JSON: the document ends too early",
		"{\n  \"a\": 1,\n}":                    "f:2:9: not valid JSON: ",
		"{\n  // comment\n}":                   "f:2:3: not valid JSON: ",
		`{} {}`:                                "more text after the end",
		`{"mcpServers": {}, "mcpServers": {}}`: "the same key is given twice",
		`[]`:                                   "f:1:1: must be a mapping, not a list",
		`{"context_servers": {}}`:              "f: mcpServers: is missing",
		"{\"mcpServers\":\n {\"a\": []}}":      "f:2:8: mcpServers.a: must be a mapping",
		"{\"mcpServers\":\n {\"a\": {}}}":      "f:2:8: mcpServers.a: needs a command or a url",
		`{"mcpServers": {"a": null}}`:          "mcpServers.a: needs a command or a url",
		`{"mcpServers": {"a": {"command": "x", "url": "http://h"}}}`:          "mcpServers.a: has more than one of",
		`{"mcpServers": {"a": {"url": "http://h", "httpUrl": "http://h"}}}`:   "has more than one of",
		`{"mcpServers": {"a": {"command": "x", "type": "http"}}}`:             `has a command but the type "http"`,
		`{"mcpServers": {"a": {"url": "http://h", "type": "ws"}}}`:            `has a url but the type "ws"`,
		`{"mcpServers": {"a": {"url": "h"}}}`:                                 "f:1:30: mcpServers.a.url: must be an http:// or https:// URL",
		`{"mcpServers": {"a": {"url": "tcp://h:1", "type": "http"}}}`:         `has the url of a socket but the type "http"; remove the type`,
		`{"mcpServers": {"a": {"command": "npx -y ${TOKEN}"}}}`:               `mcpServers.a.command: holds a program and its arguments; move the arguments to args, such as "command": "npx", "args": ["-y", "package"]`,
		`{"mcpServers": {"a": {"command": "x", "args": "-y"}}}`:               "mcpServers.a.args: must be a list",
		`{"mcpServers": {"a": {"command": "x", "env": {"K": "${MISSING}"}}}}`: "f:1:52: mcpServers.a.env.K: the environment variable MISSING is not set",
		`{"mcpServers": {"a b": {"command": "x"}, "a/b": {"command": "x"}}}`:  "becomes the target a-b, and so does another server",
		`{"mcpServers": {"": {"command": "x"}}}`:                              "1 to 64 characters",
		`{"mcpServers": {"a": {"url": "http://h", "headers": {"X": "ü"}}}}`:   "mcpServers.a.headers.X: contains a character outside ASCII",
	} {
		_, err := ParseMCPJSON("f", []byte(text), testEnv())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
		if errs, ok := errors.AsType[Errors](err); !ok || len(errs) != 1 {
			t.Errorf("%s: want one problem:\n%v", text, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: shows the secret: %v", text, err)
		}
	}
}

func TestLoadMCPJSONReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadMCPJSON(path); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := LoadMCPJSON(path + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}

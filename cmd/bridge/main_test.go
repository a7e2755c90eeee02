package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

// bridge runs the program as a user would.
func bridge(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestVersionNamesTheProtocolVersions(t *testing.T) {
	code, out, _ := bridge(t, "version")
	if code != 0 || !strings.Contains(out, "2026-07-28") || !strings.Contains(out, "2024-11-05") {
		t.Errorf("code %d, %q", code, out)
	}
}

func TestAUsersMistakesAreNamed(t *testing.T) {
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	valid := file("valid.yaml", "targets: {a: {url: \"http://127.0.0.1:1/mcp\"}}\n")
	busy := taken(t)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"nothing to serve":       {[]string{"serve"}, []string{"--config", "--mcp-json", "--demo"}},
		"no such file":           {[]string{"serve", "--config", "/nonexistent/b.yaml"}, []string{"/nonexistent/b.yaml"}},
		"a typo":                 {[]string{"serve", "--config", file("typo.yaml", "targets:\n  a:\n    ulr: http://x/\n")}, []string{"3:5", "ulr", "url"}},
		"an unset variable":      {[]string{"serve", "--config", file("env.yaml", "targets:\n  a:\n    url: http://x/${BRIDGE_TEST_UNSET}\n")}, []string{"BRIDGE_TEST_UNSET", "3:"}},
		"an address in use":      {[]string{"serve", "--config", valid, "--listen", busy}, []string{"cannot listen at " + busy + " (listen.address): bind: address already in use; another program", "--listen"}},
		"an open address":        {[]string{"serve", "--config", valid, "--listen", "0.0.0.0:0"}, []string{"0.0.0.0:0", "insecure"}},
		"a bad address":          {[]string{"serve", "--config", valid, "--listen", "127.0.0.1:99999"}, []string{"listen.address"}},
		"an open gRPC address":   {[]string{"serve", "--config", file("open.yaml", "listen: {grpc: {address: '0.0.0.0:0'}}\ntargets: {a: {url: \"http://127.0.0.1:1/mcp\"}}\n")}, []string{"listen.grpc", "0.0.0.0:0", "insecure"}},
		"a gRPC address in use":  {[]string{"serve", "--config", file("twice.yaml", "listen: {address: '127.0.0.1:0', grpc: {address: '"+taken(t)+"'}}\ntargets: {a: {url: \"http://127.0.0.1:1/mcp\"}}\n")}, []string{"listen.grpc", "in use"}},
		"a bad admin address":    {[]string{"serve", "--config", valid, "--admin", "127.0.0.1:99999"}, []string{"listen.admin.address"}},
		"an open admin address":  {[]string{"serve", "--config", valid, "--admin", ":0"}, []string{"listen.admin.insecure"}},
		"the same name twice":    {[]string{"serve", "--demo", "--config", file("demo.yaml", "targets: {demo: {url: \"http://127.0.0.1:1/\"}}\n")}, []string{"--demo", "rename"}},
		"an empty file":          {[]string{"serve", "--config", file("empty.yaml", "log: {level: debug}\n")}, []string{"empty.yaml", "names no target"}},
		"nothing to check":       {[]string{"check"}, []string{"--config", "--mcp-json"}},
		"a checked typo":         {[]string{"check", "--config", file("typo.yaml", "targets:\n  a:\n    ulr: http://x/\n")}, []string{"3:5", "ulr", "url"}},
		"a checked open address": {[]string{"check", "--config", file("open.yaml", "listen: {address: \"0.0.0.0:1\"}\ntargets: {a: {url: \"http://x/\"}}\n")}, []string{"insecure"}},
		"an unknown flag":        {[]string{"serve", "--dmeo"}, []string{"--dmeo"}},
		"an unknown command":     {[]string{"sevre"}, []string{"sevre"}},
		"a wrong mcp-json":       {[]string{"serve", "--mcp-json", file("mcp.json", `{"mcpServers": {"a": {}}}`)}, []string{"a", "command", "url"}},
	} {
		code, out, stderr := bridge(t, tc.args...)
		if code != 1 || out != "" {
			t.Errorf("%s: code %d, stdout %q", name, code, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: %q is not named in: %s", name, want, stderr)
			}
		}
	}
}

// taken is an address that something listens at.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestServeEndsCleanlyWhenAskedTo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	out := &firstLine{line: make(chan string, 1)}
	ended := make(chan int, 1)
	config := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := os.WriteFile(config, []byte("listen: {grpc: {address: '127.0.0.1:0'}}\ntargets: {dead: {url: \"http://127.0.0.1:1/mcp\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- run(ctx, []string{"serve", "--config", config, "--listen", "127.0.0.1:0"}, out, &stderr)
	}()
	line := <-out.line
	if !strings.Contains(line, "http://127.0.0.1:") || !strings.Contains(line, "gRPC alone on 127.0.0.1:") || !strings.Contains(line, "buf curl") {
		t.Errorf("the first line is %q", line)
	}
	stop()
	if code := <-ended; code != 0 || !strings.HasSuffix(stderr.String(), "msg=stopped\n") {
		t.Errorf("code %d: %s", code, stderr.String())
	}
}

// firstLine hands over the first line that is written to it.
type firstLine struct {
	line chan string
	sent bool
}

func (w *firstLine) Write(p []byte) (int, error) {
	if !w.sent {
		w.sent = true
		w.line <- string(p)
	}
	return len(p), nil
}

func TestDurationsInTheLogHaveAUnit(t *testing.T) {
	for format, want := range map[config.LogFormat]string{config.FormatText: "limit=4.78s", config.FormatJSON: `"limit":"4.78s"`} {
		var out bytes.Buffer
		newLogger(format, slog.LevelInfo, &out).Info("x", "limit", 4780*time.Millisecond)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %s", out.String(), want)
		}
	}
}

func TestCheckPrintsTheTargetsOfAValidConfigurationWithoutSecrets(t *testing.T) {
	dir := t.TempDir()
	yaml, mcp := filepath.Join(dir, "b.yaml"), filepath.Join(dir, "mcp.json")
	for path, text := range map[string]string{
		yaml: "targets:\n  web: {url: \"https://h.example:8443/mcp?key=s3cret\", headers: {A: s3cret}}\n  two: {urls: [\"http://a/mcp\", \"http://b/mcp\"]}\n  socket: {url: \"unix:///run/mcp.sock\"}\n",
		mcp:  `{"mcpServers": {"child": {"command": "npx", "args": ["-y", "--key=s3cret"], "env": {"K": "s3cret"}}}}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, stderr := bridge(t, "check", "--config", yaml, "--mcp-json", mcp)
	const want = `child: child process npx (arguments: 2)
socket: unix:///run/mcp.sock
two: http://a/mcp, http://b/mcp
web: https://h.example:8443/mcp
`
	if code != 0 || out != want || stderr != "" {
		t.Errorf("code %d, stderr %q\n%s", code, stderr, out)
	}
}

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/server"
)

var adminLine = regexp.MustCompile(`the admin listener is open" address=(\S+)`)

// matching hands over the first match of what is written to it.
type matching struct {
	re    *regexp.Regexp
	text  strings.Builder
	found chan string
	sent  bool
}

func (w *matching) Write(p []byte) (int, error) {
	w.text.Write(p)
	if match := w.re.FindStringSubmatch(w.text.String()); match != nil && !w.sent {
		w.sent = true
		w.found <- match[1]
	}
	return len(p), nil
}

func TestTheAdminListenerTellsOfTheBridge(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	text := "listen: {address: \"127.0.0.1:0\", admin: {address: \"127.0.0.1:0\", pprof: true}}\ntargets: {dead: {url: \"http://127.0.0.1:1/mcp\"}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &firstLine{line: make(chan string, 1)}
	stderr := &matching{re: adminLine, found: make(chan string, 1)}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"serve", "--config", file}, out, stderr) }()
	base := "http://" + <-stderr.found
	<-out.line // it serves
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) (int, string) {
		res, err := client.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	code, body := get("/readyz")
	var ready struct {
		Status  string
		Targets map[string]string
	}
	if err := json.Unmarshal([]byte(body), &ready); err != nil {
		t.Fatal(err)
	}
	if _, listed := ready.Targets["dead"]; code != 200 || ready.Status != "serving" || !listed {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, `mcpbridge_pool_connections{mcpbridge_target="dead"} 0`) || !strings.Contains(body, "mcpbridge_spans_total") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	if code, _ := get("/debug/pprof/"); code != 200 {
		t.Errorf("/debug/pprof/: %d", code)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("code %d: %s", code, &stderr.text)
	}
	if _, err := client.Get(base + "/healthz"); err == nil {
		t.Error("the admin listener outlives the bridge")
	}
}

func TestEveryModeOfTheAccessLogIsTheServersOne(t *testing.T) {
	for mode, want := range map[config.LogAccess]server.AccessLog{
		config.AccessOff: server.AccessOff, config.AccessOn: server.AccessOn, config.AccessSampled: server.AccessSampled,
	} {
		if got := accessOf(config.Log{Access: mode}); got != want {
			t.Errorf("%s became %v", mode, got)
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is the log of a running bridge.
type lines struct {
	mu   sync.Mutex
	all  []string
	news chan struct{} // closed and replaced at every line
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	close(l.news)
	l.news = make(chan struct{})
	return len(p), nil
}

// wait returns the first line from a position on that has all of the texts, and
// the position behind it.
func (l *lines) wait(t *testing.T, from int, texts ...string) (line string, next int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		l.mu.Lock()
		all, news := l.all, l.news
		l.mu.Unlock()
		for ; from < len(all); from++ {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all[from], text) }) {
				return all[from], from + 1
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("no line with %q in:\n%s", texts, strings.Join(all, ""))
		}
	}
}

// running is a bridge that serves until the test ends.
type running struct {
	t    *testing.T
	url  string
	logs *lines
}

func startBridge(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{t: t, logs: &lines{news: make(chan struct{})}}
	out := &firstLine{line: make(chan string, 1)}
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), out, r.logs)
		ended <- code
		close(out.line)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("code %d: %s", code, strings.Join(r.logs.all, ""))
		}
	})
	line, ok := <-out.line
	if !ok {
		t.Fatalf("the bridge did not start: %s", strings.Join(r.logs.all, ""))
	}
	_, rest, _ := strings.Cut(line, "http://")
	address, _, _ := strings.Cut(rest, ";")
	r.url = "http://" + address
	return r
}

// targets asks the bridge for its targets' names.
func (r *running) targets() []string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/mcpbridge.v1.HealthService/ListTargets", strings.NewReader("{}"))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ Targets []struct{ Name string } }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, target := range answer.Targets {
		names = append(names, target.Name)
	}
	return names
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// targetsYAML is a configuration of targets where nobody listens.
func targetsYAML(names ...string) string {
	var text strings.Builder
	text.WriteString("targets:\n")
	for _, name := range names {
		text.WriteString(fmt.Sprintf("  %s: {url: \"http://127.0.0.1:1/mcp\", lazy: true}\n", name))
	}
	return text.String()
}

const (
	reloaded    = "the configuration was reloaded"
	notReloaded = "the configuration was not reloaded"
)

func TestAHangupReloadsTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "secret")
	write(t, secret, "one")
	write(t, file, targetsYAML("a", "b")+"  keyed: {url: \"http://127.0.0.1:1/mcp\", lazy: true, headers: {X-Key: \"${file:"+secret+"}\"}}\n")
	b := startBridge(t, "--config", file)
	write(t, secret, "two") // not a file that is watched
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	line, _ := b.logs.wait(t, 0, reloaded, "cause=SIGHUP")
	if !strings.Contains(line, "changed=[keyed]") || !strings.Contains(line, "added=[]") || !strings.Contains(line, "removed=[]") || strings.Contains(line, "two") {
		t.Error(line)
	}
}

func TestAChangedFileReloadsTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	mcp := filepath.Join(t.TempDir(), "mcp.json")
	write(t, file, targetsYAML("a", "b")+"log: {access: off}\n")
	write(t, mcp, `{"mcpServers": {"m": {"url": "http://127.0.0.1:1/mcp"}}}`)
	b := startBridge(t, "--config", file, "--mcp-json", mcp)

	write(t, file, targetsYAML("a", "c")) // in place
	_, at := b.logs.wait(t, 0, reloaded, "added=[c]", "changed=[]", "removed=[b]", "a file changed")
	if got := b.targets(); !slices.Equal(got, []string{"a", "c", "m"}) {
		t.Errorf("targets %q", got)
	}

	write(t, file, "targets:\n  a: {ulr: x}\n")
	line, at := b.logs.wait(t, at, notReloaded, "level=ERROR")
	if !strings.Contains(line, "ulr") || !strings.Contains(line, "2:7") {
		t.Errorf("the error does not name the fault: %s", line)
	}
	if got := b.targets(); !slices.Equal(got, []string{"a", "c", "m"}) {
		t.Errorf("a faulty file changed the targets to %q", got)
	}

	write(t, file+".new", targetsYAML("a")+"log: {level: debug, format: json}\nshutdown: {timeout: 3s}\n")
	if err := os.Rename(file+".new", file); err != nil { // as editors do
		t.Fatal(err)
	}
	_, at = b.logs.wait(t, at, reloaded, "removed=[c]")
	_, at = b.logs.wait(t, at, "level=WARN", "started again", "log.format", "shutdown.timeout")
	b.targets()
	b.logs.wait(t, at, "level=DEBUG", "ListTargets") // log.level holds at once

	write(t, mcp, `{"mcpServers": {"n": {"url": "http://127.0.0.1:1/mcp"}}}`)
	b.logs.wait(t, at, reloaded, "added=[n]", "removed=[m]")
}

func TestALinkThatLeadsElsewhereReloadsTheConfiguration(t *testing.T) {
	dir := t.TempDir() // as Kubernetes mounts a ConfigMap
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	revision := func(n, name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, n), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, n, "bridge.yaml"), targetsYAML(name))
	}
	revision("..1", "one")
	link("..1", "..data")
	link("..data/bridge.yaml", "bridge.yaml")
	b := startBridge(t, "--config", filepath.Join(dir, "bridge.yaml"))
	at := 0
	for _, name := range []string{"two", "three"} {
		revision(".."+name, name)
		link(".."+name, "..tmp")
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		_, at = b.logs.wait(t, at, reloaded, "added=["+name+"]")
	}
	// a link to a file that is edited where it is
	write(t, filepath.Join(dir, "..three", "bridge.yaml"), targetsYAML("four"))
	b.logs.wait(t, at, reloaded, "added=[four]", "removed=[three]")
}

func TestALinkFurtherUpThatLeadsElsewhereReloadsTheConfiguration(t *testing.T) {
	dir := t.TempDir() // as deployments switch releases
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "bridge.yaml"), targetsYAML(name))
	}
	if err := os.Symlink("one", filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	b := startBridge(t, "--config", filepath.Join(dir, "current", "bridge.yaml"))
	if err := os.Symlink("two", filepath.Join(dir, "next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	_, at := b.logs.wait(t, 0, reloaded, "added=[two]", "removed=[one]")
	write(t, filepath.Join(dir, "two", "bridge.yaml"), targetsYAML("three"))
	_, at = b.logs.wait(t, at, reloaded, "added=[three]")
	if err := os.RemoveAll(filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	_, at = b.logs.wait(t, at, notReloaded)
	if err := os.Mkdir(filepath.Join(dir, "two"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "two", "bridge.yaml"), targetsYAML("four"))
	b.logs.wait(t, at, reloaded, "added=[four]")
}

func TestAPipeIsReadOnceAndHoldsUpNothing(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { // ends when the bridge has read it
		if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(targetsYAML("a"))
			_ = f.Close()
		}
	}()
	b := startBridge(t, "--config", fifo) // and its end does not wait for a writer
	if got := b.targets(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("targets %q", got)
	}
}

func TestOnlyChangedContentsAreNews(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, file, targetsYAML("a"))
	f := newFileWatch("", file)
	if f.changed() {
		t.Error("nothing happened")
	}
	write(t, file, targetsYAML("a"))
	if f.changed() {
		t.Error("the contents are the same")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if !f.changed() || f.changed() {
		t.Error("a file that is gone is news, once")
	}
	if err := newFileWatch("/nonexistent/dir/bridge.yaml").open(); err == nil || !strings.Contains(err.Error(), "/nonexistent/dir") {
		t.Errorf("open = %v", err)
	}
	if f := newFileWatch(); f.open() != nil || f.events() != nil || f.follow() != nil || f.close() != nil {
		t.Error("without files there is nothing to watch")
	}
}

func TestSettingsThatNeedARestartAreNamed(t *testing.T) {
	running, wanted := config.Default(), config.Default()
	if got := needRestart(running, wanted); got != nil {
		t.Errorf("the same: %q", got)
	}
	wanted.Targets["a"], wanted.ClientInfo.Title, wanted.Log.Level = config.NewTarget(config.TransportStdio), "x", config.LevelDebug
	if got := needRestart(running, wanted); got != nil {
		t.Errorf("what is taken over: %q", got)
	}
	wanted.Listen = config.Listen{Address: "x", GRPC: config.GRPC{Address: "y"}, Insecure: true}
	wanted.Log.Format, wanted.Shutdown.Timeout = config.FormatJSON, time.Hour
	got := needRestart(running, wanted)
	slices.Sort(got)
	if want := []string{"listen.address", "listen.grpc.address", "listen.insecure", "listen.max_request_bytes", "log.format", "shutdown.timeout"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

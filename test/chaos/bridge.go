package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// bridgeLog is the name of the bridge's log in the folder of the run.
const bridgeLog = "bridge.log"

// debugSource is added to the bridge's command at build time, so that the driver can read its goroutines and heap.
//
//go:embed testdata/debug.go.txt
var debugSource []byte

// bridgeProcess is the running bridge.
type bridgeProcess struct {
	dir     string
	address string // where it serves gRPC
	cmd     *exec.Cmd
	ended   context.Context // done when the process has been waited for
	err     error           // of Wait; read after ended
	debug   *http.Client
	kept    map[string][]byte // profiles of the bridge at rest, before the load
}

// buildBridge builds the bridge of the module in root as it is, plus debugSource.
func buildBridge(ctx context.Context, root, dir string) (string, error) {
	added := filepath.Join(dir, "debug.go")
	if err := os.WriteFile(added, debugSource, 0o600); err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "bridge", "chaos_debug.go"): added}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "bridge")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./cmd/bridge")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the bridge in %s: %w\n%s", root, err, out)
	}
	return binary, nil
}

// listening finds where the bridge serves in what it prints.
var listening = regexp.MustCompile(`listens on http://(127\.0\.0\.1:[0-9]+)`)

// startBridge builds, configures and starts the bridge and returns once it listens.
func startBridge(ctx context.Context, f flags, dir string, all []*target) (*bridgeProcess, error) {
	binary, err := buildBridge(ctx, f.root, dir)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "bridge.yaml")
	if err := writeConfig(config, self, all); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, bridgeLog))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	socket := filepath.Join(dir, "debug.sock")
	b := &bridgeProcess{dir: dir, debug: &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, // a connection that is kept would count
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
	first := &firstMatch{re: listening, found: make(chan string, 1)}
	b.cmd = exec.Command(binary, "serve", "--config", config, "--listen", "127.0.0.1:0")
	b.cmd.Env = append(cleanEnv(), "MCPBRIDGE_CHAOS_SOCKET="+socket)
	b.cmd.Stdout, b.cmd.Stderr = io.MultiWriter(log, first), log
	b.cmd.WaitDelay = time.Second
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	ended, done := context.WithCancel(context.Background())
	b.ended = ended
	go func() {
		b.err = b.cmd.Wait()
		done()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case b.address = <-first.found:
		return b, nil
	case <-ended.Done():
		return nil, b.earlyEnd()
	case <-timer.C:
		b.kill()
		return nil, errors.New("the bridge does not say where it listens")
	}
}

// cleanEnv is the environment without the OTEL settings of the machine.
func cleanEnv() []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "OTEL_") {
			env = append(env, variable)
		}
	}
	return env
}

// firstMatch is a writer that tells the first submatch in what is written.
type firstMatch struct {
	re    *regexp.Regexp
	found chan string
	seen  bytes.Buffer
	told  bool
}

func (m *firstMatch) Write(b []byte) (int, error) {
	if m.told {
		return len(b), nil
	}
	m.seen.Write(b)
	if match := m.re.FindSubmatch(m.seen.Bytes()); match != nil {
		m.told = true
		m.found <- string(match[1])
	}
	return len(b), nil
}

// earlyEnd describes an end that nobody asked for; to be called after ended.
func (b *bridgeProcess) earlyEnd() error {
	how := b.cmd.ProcessState.String()
	raw, err := os.ReadFile(filepath.Join(b.dir, bridgeLog))
	if err != nil {
		return fmt.Errorf("the bridge ended by itself: %s", how)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return fmt.Errorf("the bridge ended by itself: %s; its last lines:\n%s", how, strings.Join(lines[max(0, len(lines)-5):], "\n"))
}

// kill ends the bridge in any case.
func (b *bridgeProcess) kill() {
	_ = b.cmd.Process.Kill() // fails when it has ended
	<-b.ended.Done()
}

// ending is how the bridge went when it was asked to.
type ending struct {
	took  time.Duration
	err   error // of the process; also when it had to be killed
	left  []string
	panic bool // its log has a panic or a crash of the runtime
}

// stop asks the bridge to end and looks for what it leaves behind.
func (b *bridgeProcess) stop(ctx context.Context) ending {
	family := descendants(b.cmd.Process.Pid)
	began := time.Now()
	_ = b.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended, which the error says
	timer := time.NewTimer(2 * patience)
	defer timer.Stop()
	select {
	case <-b.ended.Done():
	case <-ctx.Done():
		b.kill()
	case <-timer.C:
		b.kill()
	}
	end := ending{took: time.Since(began), err: b.err}
	for _, p := range family {
		if p.alive() {
			end.left = append(end.left, p.String())
		}
	}
	raw, err := os.ReadFile(filepath.Join(b.dir, bridgeLog))
	end.panic = err != nil || bytes.Contains(raw, []byte("panic: ")) || bytes.Contains(raw, []byte("fatal error: ")) || bytes.Contains(raw, []byte("goroutine panicked"))
	return end
}

// profile reads one profile of the bridge as text.
func (b *bridgeProcess) profile(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bridge/"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := b.debug.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the bridge's counts: %w", err)
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

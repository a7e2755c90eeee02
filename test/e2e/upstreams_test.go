package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// target is the configuration of one target, as it stands in the file.
type target map[string]any

// with adds variables to the environment of a child.
func (c target) with(variables ...string) target {
	env := map[string]string{}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	c["env"] = env
	return c
}

// pin adds a protocol version to a target.
func (c target) pin(version string) target {
	c["protocol_version"] = version
	return c
}

// events reads what a fixture recorded.
type events struct{ file string }

// event is one line of the record that fixtures/gosdk and fixtures/python write.
type event struct {
	Kind    string          `json:"kind"`
	PID     int             `json:"pid"`
	Method  string          `json:"method"`
	ID      json.RawMessage `json:"id"`
	Meta    map[string]any  `json:"meta"`
	Params  json.RawMessage `json:"params"`
	Header  http.Header     `json:"header"`
	Session string          `json:"session"`
	Label   string          `json:"label"`
}

func newEvents(t *testing.T) events {
	return events{filepath.Join(t.TempDir(), "events.jsonl")}
}

// all returns the complete lines so far.
func (e events) all(t *testing.T) []event {
	t.Helper()
	raw, err := os.ReadFile(e.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	var list []event
	for line := range bytes.Lines(raw) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("bad event %s: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

// matching returns the events that keep accepts.
func (e events) matching(t *testing.T, keep func(event) bool) []event {
	t.Helper()
	var list []event
	for _, e := range e.all(t) {
		if keep(e) {
			list = append(list, e)
		}
	}
	return list
}

// labelled returns the events of one kind with one label.
func (e events) labelled(t *testing.T, kind, label string) []event {
	t.Helper()
	return e.matching(t, func(e event) bool { return e.Kind == kind && e.Label == label })
}

var listening = regexp.MustCompile(`(?m)^listening (\S+)$`)

// gosdkHTTP starts the Go fixture over HTTP. Stateless it serves both eras, otherwise legacy clients only.
func gosdkHTTP(t *testing.T, flags ...string) (target, events) {
	t.Helper()
	return gosdkHTTPWith(t, nil, flags...)
}

// gosdkHTTPWith is gosdkHTTP with more variables in the environment.
func gosdkHTTPWith(t *testing.T, variables []string, flags ...string) (target, events) {
	t.Helper()
	log := newEvents(t)
	cmd := exec.Command(gosdkBinary, append([]string{"-http", "127.0.0.1:0", "-log", log.file}, flags...)...)
	cmd.Env = append(os.Environ(), variables...)
	p := start(t, "gosdk", cmd)
	return target{"url": p.waitOutput(t, listening)[1]}, log
}

// gosdkStdio configures the Go fixture as a child of the bridge.
func gosdkStdio(t *testing.T) (target, events) {
	t.Helper()
	log := newEvents(t)
	return target{"command": []string{gosdkBinary, "-log", log.file}}, log
}

// pythonBinary is the interpreter that setup.sh prepared.
func pythonBinary() (string, error) {
	interpreter := cacheDir("venv", "bin", "python")
	_, err := os.Stat(interpreter)
	return interpreter, err
}

func python(t *testing.T) string {
	t.Helper()
	interpreter, err := pythonBinary()
	if err != nil {
		needReal(t, "the Python packages are not installed; run test/setup.sh")
	}
	return interpreter
}

// hasPython is for tests that have more servers than Python's.
func hasPython(t *testing.T) bool {
	t.Helper()
	_, err := pythonBinary()
	if err != nil && os.Getenv("REQUIRE_REAL") == "1" {
		t.Fatal("the Python packages are not installed; run test/setup.sh")
	}
	return err == nil
}

const pythonServer = "../fixtures/python/server.py"

func pythonHTTP(t *testing.T) (target, events) {
	t.Helper()
	log := newEvents(t)
	p := start(t, "python", exec.Command(python(t), pythonServer, "--http", "--log", log.file))
	return target{"url": p.waitOutput(t, listening)[1]}, log
}

func pythonStdio(t *testing.T) (target, events) {
	t.Helper()
	log := newEvents(t)
	script, err := filepath.Abs(pythonServer)
	if err != nil {
		t.Fatal(err)
	}
	return target{"command": []string{python(t), script, "--log", log.file}}, log
}

// nodeServer returns node and the script of an installed npm package.
func nodeServer(t *testing.T, name string) (node, script string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		needReal(t, "node is not on PATH")
	}
	script = cacheDir("npm", "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	if _, err := os.Stat(script); err != nil {
		needReal(t, "npm package "+name+" is not installed; run test/setup.sh")
	}
	return node, script
}

func everythingStdio(t *testing.T) target {
	t.Helper()
	node, script := nodeServer(t, "server-everything")
	return target{"command": []string{node, script, "stdio"}}
}

func everythingHTTP(t *testing.T) target {
	t.Helper()
	node, script := nodeServer(t, "server-everything")
	port := freePort(t)
	cmd := exec.Command(node, script, "streamableHttp")
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", port))
	start(t, "server-everything", cmd).waitOutput(t, regexp.MustCompile(`listening on port`))
	return target{"url": fmt.Sprintf("http://127.0.0.1:%d/mcp", port)}
}

// filesystemStdio serves a folder with one file, note.txt.
func filesystemStdio(t *testing.T) (target, string) {
	t.Helper()
	node, script := nodeServer(t, "server-filesystem")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("a note\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return target{"command": []string{node, script, dir}}, dir
}

// needReal skips a test that needs something from outside, or fails it where everything must be there.
func needReal(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("REQUIRE_REAL") == "1" {
		t.Fatal(reason)
	}
	t.Skip("SKIP: " + reason)
}

// freePort returns a port that was free a moment ago, for servers that cannot choose one themselves. It is below those
// that systems give to connections and to whoever does not care, so that it stays free.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.N(10000)
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		listener.Close()
		return port
	}
	t.Fatal("found no free port between 20000 and 30000")
	return 0
}

package mcptest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	MainStdio(map[string]func() *Server{
		"legacy": func() *Server {
			return &Server{Era: Legacy, Tools: []Tool{{Name: "echo", Call: Echo()}}, Stdio: StdioOptions{Stderr: []string{"ready"}}}
		},
		"exit on discover": func() *Server { return &Server{Era: Legacy, Discover: Exit(1)} },
		"one answer":       func() *Server { return &Server{Stdio: StdioOptions{ExitAfter: 1}} },
	})
	goleak.VerifyTestMain(m)
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// client is a bare HTTP client for one server.
type client struct {
	t      *testing.T
	url    string
	http   *http.Client
	header map[string]string
}

func newClient(t *testing.T, url string) *client {
	c := &client{t: t, url: url, http: &http.Client{Transport: &http.Transport{}}, header: map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	}}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func (c *client) do(method, body string, header ...string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post returns status and whole body.
func (c *client) post(body string, header ...string) (int, string) {
	c.t.Helper()
	resp := c.do(http.MethodPost, body, header...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// modern sends a modern request with correct headers; further ones replace them.
func (c *client) modern(id, method, params string, header ...string) (int, string) {
	c.t.Helper()
	body := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + modernMeta + `}}`
	return c.post(body, append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}, header...)...)
}

func code(t *testing.T, body string) int {
	t.Helper()
	var m struct{ Error struct{ Code int } }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return m.Error.Code
}

func wantViolation(t *testing.T, l *Log, part string) {
	t.Helper()
	v := l.ForgiveViolations()
	if len(v) != 1 || !strings.Contains(v[0], part) {
		t.Errorf("violations = %q, want one with %q", v, part)
	}
}

// lines reads stdio framing.
func lines(r io.Reader) func(t *testing.T) string {
	in := bufio.NewReader(r)
	return func(t *testing.T) string {
		t.Helper()
		b, err := in.ReadBytes('\n')
		if err != nil && len(b) == 0 {
			t.Fatal(err)
		}
		return string(bytes.TrimSuffix(b, []byte("\n")))
	}
}

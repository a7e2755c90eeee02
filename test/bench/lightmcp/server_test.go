package lightmcp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

func TestPayloadsHaveTheirSize(t *testing.T) {
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20, 5 << 20} {
		if got := len(lightmcp.Text(size)); got != size {
			t.Errorf("a text of %d bytes has %d", size, got)
		}
		rows := lightmcp.Rows(size)
		if got := len(rows); got != size || !jsontext.Value(rows).IsValid() {
			t.Errorf("rows of %d bytes have %d, JSON: %t", size, got, jsontext.Value(rows).IsValid())
		}
	}
}

func TestEveryAnswerIsJSON(t *testing.T) {
	for _, mode := range []lightmcp.Mode{lightmcp.JSON, lightmcp.SSE, lightmcp.Legacy} {
		server := httptest.NewServer(lightmcp.New(mode, 3))
		defer server.Close()
		requests := []string{`"method":"server/discover"`, `"method":"initialize"`, `"method":"tools/list"`, `"method":"nope"`}
		for _, name := range lightmcp.Names() {
			requests = append(requests, `"method":"tools/call","params":{"name":"`+name+`","arguments":{"text":"hello"},"_meta":{"progressToken":"p"}}`)
		}
		for _, request := range requests {
			for _, path := range []string{"/", lightmcp.Fresh, lightmcp.Changes} {
				answer := post(t, server.URL+path, `{"jsonrpc":"2.0","id":7,`+request+`}`)
				for line := range strings.Lines(answer) {
					line = strings.TrimPrefix(line, "data: ")
					if strings.HasPrefix(line, "event: ") || line == "\n" {
						continue
					}
					if !jsontext.Value(line).IsValid() {
						t.Errorf("%s, %s: not JSON: %.200s", mode, request, line)
					}
				}
				if !strings.Contains(answer, `"id":7`) {
					t.Errorf("%s, %s: %.200s", mode, request, answer)
				}
			}
		}
	}
}

func TestOneAnswerALineOnStdio(t *testing.T) {
	in := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a\nb"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"progress_2","_meta":{"progressToken":5}}}
`
	var out bytes.Buffer
	if err := lightmcp.New(lightmcp.Stdio, 0).ServeStdio(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], `"a\nb"`) || !strings.Contains(lines[1], `"progressToken":5`) || !strings.Contains(lines[3], `"id":"two"`) {
		t.Fatalf("got %q", lines)
	}
	for _, line := range lines {
		var message map[string]any
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

func TestALineOfTheAccessLogNamesTheTraceAndNoSecret(t *testing.T) {
	t.Parallel()
	_, url := demoServer(t)
	b := serve(t, map[string]target{
		"remote": {"url": url, "headers": map[string]string{"Authorization": "Bearer s3cret-of-the-header"}},
		"child":  {"command": []string{bridgeBinary, "demo-server"}, "env": map[string]string{"KEY": "s3cret-of-the-child"}},
	}, func(config map[string]any, _ *exec.Cmd) {
		config["log"] = map[string]any{"level": "debug", "format": "json", "access": "on"}
	})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.addr+"/mcpbridge.v1.ToolsService/CallTool",
		strings.NewReader(`{"target": "remote", "name": "nope", "arguments": {"password": "s3cret-of-the-caller"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Traceparent": {"00-" + trace + "-b7ad6b7169203331-01"}, "Authorization": {"Bearer s3cret-of-the-call"},
	}
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	b.stop(t)
	found := 0
	for line := range strings.Lines(b.out.String()) {
		var got struct {
			Level, Msg, Target, Code, Reason, Procedure, Tool string

			Took  float64 `json:"took_ms"`
			Trace string  `json:"trace_id"`
			Span  string  `json:"span_id"`
		}
		if json.Unmarshal([]byte(line), &got) != nil || got.Msg != "call" {
			continue
		}
		found++
		if got.Level != "INFO" || got.Target != "remote" || got.Code != "not_found" || got.Reason != "TOOL_NOT_FOUND" || got.Tool != "nope" || got.Took <= 0 ||
			got.Procedure != "/mcpbridge.v1.ToolsService/CallTool" || got.Trace != trace || len(got.Span) != 16 {
			t.Errorf("the line is %s", line)
		}
	}
	if found != 1 {
		t.Errorf("%d lines, want 1", found)
	}
	if out := b.out.String(); strings.Contains(out, "s3cret") {
		t.Error("a secret is in the log; see the output of the bridge")
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/promql"
	"google.golang.org/grpc/metadata"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// adminAddress finds the admin listener in the log.
var adminAddress = regexp.MustCompile(`the admin listener is open" address=(127\.0\.0\.1:[0-9]+)`)

// withAdmin opens the admin listener.
func withAdmin(config map[string]any, cmd *exec.Cmd) {
	cmd.Args = append(cmd.Args, "--admin", "127.0.0.1:0")
}

// admin is the URL of the admin listener.
func (b *bridge) admin(t *testing.T) string {
	t.Helper()
	return "http://" + b.waitOutput(t, adminAddress)[1]
}

// demoServer starts the demo over HTTP, with sessions, and returns its URL.
func demoServer(t *testing.T) (*process, string) {
	t.Helper()
	p := start(t, "demo", exec.Command(bridgeBinary, "demo-server", "--http", "127.0.0.1:0", "--stateful"))
	return p, p.waitOutput(t, regexp.MustCompile(`demo MCP server at (http://\S+)`))[1]
}

// measured starts a bridge with targets of all kinds and its metrics, and returns what makes every metric move.
func measured(t *testing.T) (*bridge, func()) {
	t.Helper()
	_, sessions := demoServer(t)
	mortal, lost := demoServer(t)
	b := serve(t, map[string]target{
		"child":    {"command": []string{bridgeBinary, "demo-server"}, "cache": map[string]any{"ignore_ttl": true}, "pool": map[string]any{"max_in_flight": 2, "max_queue": 2}},
		"sessions": target{"url": sessions, "pool": map[string]any{"isolation": "per_call"}}.pin("2025-11-25"),
		"lost":     target{"url": lost}.pin("2025-11-25"),
		"dead":     {"url": "http://127.0.0.1:1/mcp"},
	}, withAdmin)
	c := b.clients(t)
	c.result(t, &pb.CallToolRequest{Target: "lost", Name: "fail", Arguments: pbStruct(t, nil)})
	mortal.stop(t)
	return b, func() {
		for _, target := range []string{"child", "sessions"} {
			for range 3 {
				c.result(t, &pb.CallToolRequest{Target: target, Name: "echo", Arguments: pbStruct(t, map[string]any{"text": "x"})})
			}
			c.result(t, &pb.CallToolRequest{Target: target, Name: "fail", Arguments: pbStruct(t, nil)})
			if _, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: target, Name: "nope"}); err == nil {
				t.Error("a tool that does not exist was called")
			}
			if _, err := c.prompts.GetPrompt(t.Context(), &pb.GetPromptRequest{Target: target, Name: "poem", Arguments: map[string]string{"topic": "rain"}}); err != nil {
				t.Error(describe(err))
			}
			for range 2 {
				if _, err := c.tools.ListTools(t.Context(), &pb.ListToolsRequest{Target: target}); err != nil {
					t.Error(describe(err))
				}
			}
		}
		for _, target := range []string{"dead", "lost", "unknown"} {
			if _, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: target, Name: "echo"}); err == nil {
				t.Errorf("a tool of %s was called", target)
			}
		}
		var crowd sync.WaitGroup
		for range 10 { // more than run and wait at once
			crowd.Go(func() {
				_, _ = c.tools.CallTool(t.Context(), &pb.CallToolRequest{Target: "child", Name: "slow", Arguments: pbStruct(t, map[string]any{"ms": 50})})
			})
		}
		crowd.Wait()
	}
}

func TestTheMetricsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	b, load := measured(t)
	load()
	load() // names of tools are known by now
	p := newPrometheus(t)
	p.scrape(t, b.admin(t)+"/metrics")

	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	code := regexp.MustCompile("`([a-z_]+)`")
	documented := map[string]map[string]bool{}
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		labels := map[string]bool{}
		for _, m := range code.FindAllStringSubmatch(cells[2], -1) {
			labels[m[1]] = true
		}
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			documented[m[1]] = labels
		}
	}
	if len(documented) < 20 {
		t.Fatalf("the documentation has %d metrics", len(documented))
	}
	always := []string{"__name__", "job", "instance", "le"}
	seen := map[string]bool{}
	for _, metric := range p.metrics() {
		name := base(metric)
		seen[name] = true
		labels, ok := documented[name]
		if !ok && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is not in the documentation", name)
		}
		for label := range p.labelsOf(metric) {
			if ok && !labels[label] && !slices.Contains(always, label) {
				t.Errorf("the label %s of %s is not in the documentation", label, metric)
			}
		}
		if !strings.HasSuffix(metric, "_bucket") && metric == name || strings.HasSuffix(metric, "_count") {
			for label := range labels {
				if !p.labelsOf(metric)[label] {
					t.Errorf("%s has no label %s, which the documentation says it has", metric, label)
				}
			}
		}
	}
	for name := range documented {
		if !seen[name] {
			t.Errorf("%s of the documentation does not exist; there are %v", name, p.metrics())
		}
	}
}

// dashboard is what is tested of a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		Title   string
		Type    string
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func TestEveryPanelOfTheDashboardShowsSomething(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../deploy/grafana/dashboards/mcpbridge.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	b, load := measured(t)
	p := newPrometheus(t)
	load()
	for range 2 {
		load()
		p.scrape(t, b.admin(t)+"/metrics")
	}
	variables := map[string]string{"$__rate_interval": "1m"}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		variables["$"+v.Name] = ".*"
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil || !p.labelsOf(m[1])[m[2]] {
			t.Errorf("the variable %s is %q, which no metric has", v.Name, v.Definition)
		}
	}
	count := 0
	for _, panel := range board.Panels {
		if panel.Type == "row" {
			continue
		}
		for _, target := range panel.Targets {
			count++
			expr := target.Expr
			for name, value := range variables {
				expr = strings.ReplaceAll(expr, name, value)
			}
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable is unknown in %s", panel.Title, expr)
			}
			metrics, grouped, err := p.selectors(expr)
			if err != nil {
				t.Errorf("%s: %v in %s", panel.Title, err, expr)
				continue
			}
			for metric, labels := range metrics {
				has := p.labelsOf(metric)
				for _, label := range append(labels, grouped...) {
					if !has[label] {
						t.Errorf("%s: %s has no label %s", panel.Title, metric, label)
					}
				}
			}
			result, err := p.query(t.Context(), expr)
			if err != nil || !slices.ContainsFunc(result, func(s promql.Sample) bool { return !math.IsNaN(s.F) }) {
				t.Errorf("%s: nothing to show, %v, %v of %s", panel.Title, result, err, expr)
			}
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.ContainsFunc(result, sampleHas(m[1])) {
					t.Errorf("%s: the legend shows %s, which no result has: %v", panel.Title, m[1], result)
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("the dashboard has only %d queries", count)
	}
}

// sampleHas looks for a label that is not empty.
func sampleHas(label string) func(promql.Sample) bool {
	return func(s promql.Sample) bool { return s.Metric.Get(label) != "" }
}

func TestExemplarsLeadFromAMetricToATrace(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"child": {"command": []string{bridgeBinary, "demo-server"}}}, withAdmin, environment(collect(t).environment()...))
	const trace = "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	if _, err := mcpbridgegrpc.NewToolsServiceClient(b.grpc(t)).CallTool(ctx, &pb.CallToolRequest{Name: "echo", Arguments: pbStruct(t, map[string]any{"text": "x"})}); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.admin(t)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"rpc_server_call_duration_seconds_bucket", "mcp_client_operation_duration_seconds_bucket"} {
		if !regexp.MustCompile(metric + `\{.*# \{.*trace_id="` + trace + `"`).Match(text) {
			t.Errorf("%s has no exemplar of the trace:\n%s", metric, tail(string(text), 4000))
		}
	}
}

func TestReadinessEndsBeforeTheCalls(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"child": {"command": []string{bridgeBinary, "demo-server"}}}, withAdmin)
	url := b.admin(t)
	if code, body := get(t, url+"/readyz"); code != http.StatusOK || !strings.Contains(body, `"serving"`) {
		t.Errorf("ready: %d %s", code, body)
	}
	c := b.clients(t)
	c.result(t, &pb.CallToolRequest{Name: "echo", Arguments: pbStruct(t, map[string]any{"text": "x"})})
	done := make(chan error, 1)
	go func() {
		response, err := c.tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "slow", Arguments: pbStruct(t, map[string]any{"ms": 3000})})
		if err == nil && response.GetResult() == nil {
			err = fmt.Errorf("no result: %v", response)
		}
		done <- err
	}()
	eventually(t, "the call is under way", func() string {
		if _, body := get(t, url+"/metrics"); !strings.Contains(body, `mcpbridge_pool_in_flight{mcpbridge_target="child"} 1`) {
			return "it holds no place"
		}
		return ""
	})
	if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bridge drains", func() string {
		if code, body := get(t, url+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"draining"`) {
			return fmt.Sprintf("ready: %d %s", code, body)
		}
		return ""
	})
	if code, _ := get(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("health: %d", code)
	}
	if _, body := get(t, url+"/metrics"); !strings.Contains(body, `mcpbridge_target="child"`) {
		t.Error("while it drains there are no metrics")
	}
	if err := <-done; err != nil {
		t.Errorf("the call under way ended with %v", err)
	}
	if code, out := b.exited(t); code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
	if _, err := http.Get(url + "/healthz"); err == nil {
		t.Error("the admin listener outlives the bridge")
	}
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// jaegerConfig has Jaeger keep spans in memory and show them at once, on this machine alone.
const jaegerConfig = `
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {metrics: {level: none}, logs: {level: warn}}
extensions:
  jaeger_storage: {backends: {mem: {memory: {max_traces: 10000}}}}
  jaeger_query:
    enable_tracing: false
    storage: {traces: mem}
    http: {endpoint: "%[1]s"}
    grpc: {endpoint: "%[2]s"}
receivers: {otlp: {protocols: {http: {endpoint: "%[3]s"}}}}
exporters: {jaeger_storage_exporter: {trace_storage: mem}}
`

// jaeger is a running Jaeger.
type jaeger struct{ query, otlp string } // URLs

// startJaeger starts the Jaeger that JAEGER_BIN names; test/jaeger/setup.sh builds one.
func startJaeger(t *testing.T) *jaeger {
	t.Helper()
	binary := os.Getenv("JAEGER_BIN")
	if binary == "" {
		t.Skip("JAEGER_BIN names no Jaeger; make test-jaeger builds one")
	}
	query, grpc, otlp := freeAddress(t), freeAddress(t), freeAddress(t)
	file := filepath.Join(t.TempDir(), "jaeger.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, jaegerConfig, query, grpc, otlp), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "jaeger", exec.Command(binary, "--config", "file:"+file))
	j := &jaeger{query: "http://" + query, otlp: "http://" + otlp}
	eventually(t, "Jaeger", func() string {
		select {
		case <-p.done:
			t.Fatalf("Jaeger has ended: %v\n%s", p.err, p.out.String())
		default:
		}
		if status, _ := j.ask(t, "/api/services", nil); status != http.StatusOK {
			return fmt.Sprint("status ", status)
		}
		return ""
	})
	return j
}

// freeAddress is one where nobody listens at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", freePort(t))
}

// ask reads one answer of Jaeger's API into v; the status is 0 while nobody answers.
func (j *jaeger) ask(t *testing.T, path string, v any) (status int, body string) {
	t.Helper()
	reply, err := http.Get(j.query + path)
	if err != nil {
		return 0, err.Error()
	}
	defer reply.Body.Close()
	raw, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	if v != nil && reply.StatusCode == http.StatusOK {
		if err := json.Unmarshal(raw, v); err != nil {
			t.Fatalf("%s: %v\n%.300s", path, err, raw)
		}
	}
	return reply.StatusCode, string(raw)
}

func (j *jaeger) endpoint() string { return j.otlp }

func (j *jaeger) environment() []string {
	return (&collector{url: j.otlp}).environment()
}

// jaegerTraces is the answer of /api/traces.
type jaegerTraces struct {
	Data []struct {
		TraceID string `json:"traceID"`
		Spans   []struct {
			SpanID        string `json:"spanID"`
			OperationName string `json:"operationName"`
			ProcessID     string `json:"processID"`
			StartTime     uint64 `json:"startTime"` // microseconds
			Duration      uint64 `json:"duration"`  // microseconds
			References    []struct {
				RefType string `json:"refType"`
				TraceID string `json:"traceID"`
				SpanID  string `json:"spanID"`
			} `json:"references"`
			Tags []struct {
				Key   string `json:"key"`
				Value any    `json:"value"`
			} `json:"tags"`
		} `json:"spans"`
		Processes map[string]struct {
			ServiceName string `json:"serviceName"`
		} `json:"processes"`
	} `json:"data"`
}

func (j *jaeger) trace(t *testing.T, traceID string) []span {
	t.Helper()
	var found jaegerTraces
	if status, body := j.ask(t, "/api/traces/"+traceID, &found); status != http.StatusOK && status != http.StatusNotFound {
		t.Fatalf("trace %s: status %d, %s", traceID, status, body)
	}
	var spans []span
	for _, trace := range found.Data {
		for _, s := range trace.Spans {
			out := span{
				service: trace.Processes[s.ProcessID].ServiceName, trace: trace.TraceID,
				id: s.SpanID, name: s.OperationName, kind: "internal",
				tags: map[string]string{}, start: s.StartTime, took: time.Duration(s.Duration) * time.Microsecond,
			}
			for _, ref := range s.References {
				if ref.RefType == "CHILD_OF" && ref.TraceID == trace.TraceID {
					out.parent = ref.SpanID
				} else {
					out.links = append(out.links, ref.SpanID)
				}
			}
			for _, tag := range s.Tags {
				out.tags[tag.Key] = fmt.Sprint(tag.Value)
			}
			out.kind = cmp.Or(out.tags["span.kind"], out.kind)
			out.failed, out.description = out.tags["error"] == "true", out.tags["otel.status_description"]
			spans = append(spans, out)
		}
	}
	return spans
}

func (j *jaeger) traces(t *testing.T, name string) []string {
	t.Helper()
	var found jaegerTraces
	query := url.Values{"service": {"mcpbridge"}, "operation": {name}, "limit": {"100"}}
	if status, body := j.ask(t, "/api/traces?"+query.Encode(), &found); status != http.StatusOK {
		t.Fatalf("traces of %s: status %d, %s", name, status, body)
	}
	var ids []string
	for _, trace := range found.Data {
		ids = append(ids, trace.TraceID)
	}
	slices.Sort(ids)
	return ids
}

func TestJaegerShowsEveryKindOfCall(t *testing.T) {
	everyKindOfCallIsOneTrace(t, startJaeger(t))
}

func TestJaegerShowsConnectingQueueingAndUnknownProcedures(t *testing.T) {
	j := startJaeger(t)
	connectingQueueingAndUnknownProceduresAreTraced(t, j)

	var operations struct {
		Data []string `json:"data"`
	}
	if status, body := j.ask(t, "/api/services/mcpbridge/operations", &operations); status != http.StatusOK {
		t.Fatalf("status %d, %s", status, body)
	}
	for _, want := range []string{"connect", "reconnect", "mcpbridge.v1.ToolsService/CallTool", "tools/call echo", "wait for lease", "_OTHER"} {
		if !slices.Contains(operations.Data, want) {
			t.Errorf("Jaeger lists the operations %s, and not %q", strings.Join(operations.Data, ", "), want)
		}
	}
}

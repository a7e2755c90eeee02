package main

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// What tracing may cost, as a factor of the CPU time without it.
const (
	maxUnsampled = 1.10
	maxSampled   = 1.30
)

// setting is what the measurement is made with.
type setting struct {
	self, bridge, config string
	request              *pb.CallToolRequest
	text                 string // in the answer
	rounds, callers      int
	duration             time.Duration
}

// benchTracing measures the bridge without tracing, and with it for both kinds of callers.
func benchTracing(s setting) error {
	collector, err := launch(exec.Command(s.self, "collector", "-"))
	if err != nil {
		return err
	}
	defer collector.stop()
	export := []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + collector.address,
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	var contenders []*contender
	for _, c := range []struct {
		name, parent string
		environment  []string
	}{
		{"off", parent + "01", nil}, {"unsampled", parent + "00", export}, {"sampled", parent + "01", export},
	} {
		cmd := exec.Command(s.bridge, "serve", "--config", s.config, "--listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), c.environment...)
		p, err := launch(cmd)
		if err != nil {
			return err
		}
		defer p.stop()
		contenders = append(contenders, &contender{name: c.name, process: p, request: s.request, parent: c.parent})
	}
	if err := measure(contenders, s.text, s.rounds, s.callers, s.duration); err != nil {
		return err
	}
	spans, err := get("http://" + collector.address + "/count")
	if err != nil {
		return err
	}
	return reportTracing(contenders, s, spans)
}

func reportTracing(contenders []*contender, s setting, spans string) error {
	fmt.Printf("CallTool, %d callers over one gRPC connection, medians of %d rounds; the ratio is that of the pairs of a round\n\n", s.callers, s.rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tCPU µs/call\tratio\tspread\tallowed\tcalls/s\tp99 ms")
	var failures []error
	for i, c := range contenders {
		allowed := []float64{1, maxUnsampled, maxSampled}[i]
		var ratios []float64
		for round, one := range c.rounds {
			ratios = append(ratios, one.cpu/contenders[0].rounds[round].cpu)
		}
		slices.Sort(ratios)
		ratio := ratios[len(ratios)/2]
		fmt.Fprintf(w, "%s\t%.0f\t%.3f\t%.2f-%.2f\t%.2f\t%.0f\t%.2f\n", c.name, median(c.rounds, cpu), ratio, ratios[0], ratios[len(ratios)-1], allowed,
			median(c.rounds, func(s sample) float64 { return s.rate }), median(c.rounds, func(s sample) float64 { return s.p99 }))
		if ratio > allowed {
			failures = append(failures, fmt.Errorf("%s costs %.3f times what calls without tracing cost, %.2f is allowed", c.name, ratio, allowed))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("\n%s spans arrived at the collector\n", cmp.Or(spans, "0"))
	return errors.Join(failures...)
}

func get(url string) (string, error) {
	reply, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return string(body), err
}

// newCollector is an OTLP receiver that counts spans.
func newCollector() http.Handler {
	var spans atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, spans.Load()) })
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = unzipped
		}
		raw, err := io.ReadAll(body)
		var request coltrace.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(raw, &request) != nil {
			http.Error(w, "not an export request", http.StatusBadRequest)
			return
		}
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				spans.Add(int64(len(scope.GetSpans())))
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	return mux
}

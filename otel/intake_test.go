package bridgeotel

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
)

// held keeps every export waiting until it is let go or given up.
type held struct {
	free chan struct{}

	mu  sync.Mutex // guards got
	got int
}

func (h *held) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	select {
	case <-h.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got += len(spans)
	return nil
}

func (h *held) Shutdown(context.Context) error { return nil }

// burst makes n spans.
func burst(t *testing.T, provider *sdktrace.TracerProvider, n int) {
	t.Helper()
	tracer := provider.Tracer("test")
	for range n {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
	}
}

// plainLog returns a logger without times and what it wrote.
func plainLog() (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: dropTime})), &out
}

func TestABurstBeyondTheQueueIsCountedAndHoldsNobodyUp(t *testing.T) {
	for name, letGo := range map[string]bool{"a slow collector": true, "a collector that never answers": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const spans = 50_000
				logger, out := plainLog()
				real, counts := &held{free: make(chan struct{})}, new(spanCounts)
				abort, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				in := newProcessor(abort, real, defaultQueueSize, counts, logger)
				provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(in))
				tel := newTelemetry(logger, settings{}, provider)
				tel.intake, tel.counts, tel.abort = in, counts, giveUp

				start := time.Now()
				burst(t, provider, spans)
				if took := time.Since(start); took != 0 {
					t.Errorf("the calls were held up for %v", took)
				}
				stat := tel.Spans()
				if sum := stat.Dropped + stat.Waiting + stat.Exported + stat.Failed; sum != spans || stat.Dropped == 0 {
					t.Errorf("%+v are %d spans, want %d", stat, sum, spans)
				}
				time.Sleep(2 * time.Second) // of the bubble's time
				synctest.Wait()
				if n := strings.Count(out.String(), "spans were dropped because the export queue was full"); n != 1 {
					t.Errorf("%d lines of log, want one:\n%s", n, out)
				}

				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if letGo {
					close(real.free)
				}
				if err := tel.Shutdown(ctx); (err == nil) != letGo {
					t.Errorf("Shutdown returned %v", err)
				}
				if took := time.Since(start); took > 8*time.Second {
					t.Errorf("the shutdown took until %v after the start", took)
				}
				stat = tel.Spans()
				if sum := stat.Dropped + stat.Exported + stat.Failed; sum != spans || stat.Waiting != 0 {
					t.Errorf("in the end %+v are %d spans, want %d", stat, sum, spans)
				}
				if int(stat.Exported) != real.got || letGo != (real.got > 0) {
					t.Errorf("the collector got %d spans, counted were %d", real.got, stat.Exported)
				}
			})
		})
	}
}

func TestDroppedSpansAreLoggedOnceAMinuteAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := plainLog()
		in := newProcessor(t.Context(), &held{free: make(chan struct{})}, 1, new(spanCounts), logger)
		in.drop(3)
		time.Sleep(10 * time.Second)
		in.drop(2)
		in.drop(2)
		time.Sleep(time.Minute)
		in.drop(9)
		if err := in.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		in.drop(1) // nobody is there to log it
		time.Sleep(time.Hour)
		const line = `level=WARN msg="spans were dropped because the export queue was full; raise OTEL_BSP_MAX_QUEUE_SIZE, sample fewer calls (OTEL_TRACES_SAMPLER), or look at what slows the collector down"`
		want := line + " dropped_spans=3 queue_size=1\n" + line + " dropped_spans=4 queue_size=1\n" + line + " dropped_spans=9 queue_size=1\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// total adds up an attribute of the lines of a log.
func total(t *testing.T, log, attribute string) int64 {
	t.Helper()
	var sum int64
	for _, match := range regexp.MustCompile(attribute+`=(\d+)`).FindAllStringSubmatch(log, -1) {
		n, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func TestTheLogTellsEveryLostSpanByTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := plainLog()
		counts := new(spanCounts)
		in := newProcessor(t.Context(), &flaky{err: errors.New("refused")}, defaultQueueSize, counts, logger)
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(in))
		for range 3 { // exports, of which only the first has a line of its own
			burst(t, provider, 10)
			if err := provider.ForceFlush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		burst(t, provider, 5)
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if told, lost := total(t, out.String(), "lost_spans"), counts.failed.Load(); told != 35 || lost != 35 {
			t.Errorf("%d spans are counted as lost and %d told, want 35:\n%s", lost, told, out)
		}
	})
}

func TestSpansLeftAtTheEndAreNotSaidToHaveFoundTheQueueFull(t *testing.T) {
	logger, out := plainLog()
	counts := new(spanCounts)
	in := newProcessor(t.Context(), &held{free: make(chan struct{})}, 8, counts, logger)
	counts.waiting.Add(3) // in an export that does not end
	if err := in.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	want := `level=WARN msg="spans were lost because the time for the last export was over" lost_spans=3` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || counts.dropped.Load() != 3 {
		t.Errorf("%d are counted; log (-want +got):\n%s", counts.dropped.Load(), diff)
	}
}

func TestSpansThatAreNotSampledTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := new(spanCounts)
		in := newProcessor(t.Context(), &held{free: make(chan struct{})}, 1, counts, slog.New(slog.DiscardHandler))
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(in), sdktrace.WithSampler(sdktrace.NeverSample()))
		burst(t, provider, 10)
		if n := counts.waiting.Load() + counts.dropped.Load(); n != 0 {
			t.Errorf("%d spans were taken or dropped, want none", n)
		}
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// choosy is a collector that refuses some spans of each batch.
type choosy struct {
	*sink
	refuse int64
	text   string
}

func (c *choosy) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if _, err := c.sink.Export(ctx, req); err != nil {
		return nil, err
	}
	return &collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: c.refuse, ErrorMessage: c.text}}, nil
}

func TestWhatTheCollectorRefusesIsCounted(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		for name, tt := range map[string]struct {
			refuse int64
			text   string
			want   SpanStat
		}{
			"some":          {refuse: 2, text: "too old\n(9 spans rejected)", want: SpanStat{Exported: 3, Failed: 2}},
			"all":           {refuse: 5, want: SpanStat{Failed: 5}},
			"none, a hint":  {text: "use gzip", want: SpanStat{Exported: 5}},
			"none, no hint": {want: SpanStat{Exported: 5}},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				logger, out := plainLog()
				c := &choosy{newSink(), tt.refuse, tt.text}
				endpoint := startGRPC
				if protocol != "grpc" {
					endpoint = startHTTP
				}
				tel := setup(t, logger, "OTEL_EXPORTER_OTLP_ENDPOINT", endpoint(t, c), "OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
				burst(t, tel.sdk, 5)
				if err := tel.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, tel.Spans()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if warned := strings.Contains(out.String(), "trace export failed"); warned != (tt.refuse > 0 || tt.text != "") {
					t.Errorf("the log says:\n%s", out)
				}
			})
		}
	}
}

func TestACollectorThatRefusesEverythingCostsItsSpansOnly(t *testing.T) {
	counts := new(spanCounts)
	e := newExporter(t.Context(), &flaky{err: errors.New("refused")}, counts, slog.New(slog.DiscardHandler))
	if err := e.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 7)); err != nil {
		t.Errorf("the processor is told %v", err)
	}
	if got := counts.failed.Load(); got != 7 {
		t.Errorf("%d spans are counted as lost, want 7", got)
	}
}

func TestTheStartSaysWhetherSpansAreExported(t *testing.T) {
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"nothing configured": {want: `level=INFO msg="traces are not exported" reason="no exporter is configured; set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://localhost:4317"` + "\n"},
		"disabled":           {env: []string{"OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"}, want: `level=INFO msg="traces are not exported" reason="OTEL_SDK_DISABLED is true"` + "\n"},
		"no exporter":        {env: []string{"OTEL_TRACES_EXPORTER", "none"}, want: `level=INFO msg="traces are not exported" reason="OTEL_TRACES_EXPORTER is none"` + "\n"},
		"an endpoint":        {env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter2@127.0.0.1:1/x?key=hunter3"}, want: `level=INFO msg="traces are exported" collector=127.0.0.1:1 protocol=http/protobuf` + "\n"},
		"a Unix socket":      {env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "unix:///run/otel.sock", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, want: `level=INFO msg="traces are exported" collector=/run/otel.sock protocol=grpc` + "\n"},
		"the default":        {env: []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, want: `level=INFO msg="traces are exported" collector=localhost:4317 protocol=grpc` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			logger, out := plainLog()
			for i := 0; i < len(tt.env); i += 2 {
				t.Setenv(tt.env[i], tt.env[i+1])
			}
			tel, err := Setup(t.Context(), Options{Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			if err := tel.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

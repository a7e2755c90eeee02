package bridgeotel

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	goruntime "go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// runtimeInterval is how old figures of the Go runtime may be. Reading them
// costs little, and each scrape is to see new ones.
const runtimeInterval = time.Millisecond

// runtimeProducer adds go.schedule.duration, a histogram that the runtime keeps
// itself.
func runtimeProducer() sdkmetric.Producer {
	// The option is one of producers too, but its type does not say so.
	if fresh, ok := goruntime.WithMinimumReadMemStatsInterval(runtimeInterval).(goruntime.ProducerOption); ok {
		return goruntime.NewProducer(fresh)
	}
	return goruntime.NewProducer()
}

// observeProcess measures the process as such: which build it is, the Go
// runtime and, for Prometheus, what the operating system says of it.
func (m *Metrics) observeProcess(version string) error {
	if err := goruntime.Start(goruntime.WithMeterProvider(m.provider), goruntime.WithMinimumReadMemStatsInterval(runtimeInterval)); err != nil {
		return fmt.Errorf("go runtime: %w", err)
	}
	if m.registry != nil {
		if err := m.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
			return fmt.Errorf("process: %w", err)
		}
	}
	build := metric.WithAttributeSet(attribute.NewSet(
		attribute.String("version", version),
		attribute.String("revision", revision()),
		attribute.String("go.version", runtime.Version()),
	))
	_, err := m.meter.Int64ObservableGauge("mcpbridge.build.info",
		metric.WithDescription("Always 1; the attributes say which build this is."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, build)
			return nil
		}))
	return err
}

// revision is the commit that the program was built from, "" if the build does
// not know.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

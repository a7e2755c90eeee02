package bridgeotel

import (
	"context"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// maxSeries bounds the attribute sets of one instrument that measures calls.
// What is beyond it is added up under the attribute otel.metric.overflow.
const maxSeries = 10_000

// seriesLimit bounds instruments that measure calls. Those that are read at each
// collection have as many series as there are targets, which is no choice of
// callers or servers, and a sum over targets would say nothing.
func seriesLimit() sdkmetric.ReaderOption {
	return sdkmetric.WithCardinalityLimitSelector(func(kind sdkmetric.InstrumentKind) (limit int, fallback bool) {
		if kind == sdkmetric.InstrumentKindObservableCounter || kind == sdkmetric.InstrumentKindObservableUpDownCounter || kind == sdkmetric.InstrumentKindObservableGauge {
			return 0, false // none
		}
		return maxSeries, false
	})
}

// readThrough hands on what another reader collects. The Prometheus exporter
// makes its reader itself and has no option for the limit of series.
type readThrough struct{ reader *sdkmetric.ManualReader }

func (r readThrough) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	var all metricdata.ResourceMetrics
	err := r.reader.Collect(ctx, &all)
	return all.ScopeMetrics, err
}

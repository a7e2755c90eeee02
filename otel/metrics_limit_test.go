package bridgeotel

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestEveryTargetHasItsFiguresHoweverManyThereAre(t *testing.T) {
	const targets = maxSeries/7 + 10 // 7 states each
	m := measuring(t)
	figures := make([]TargetFigures, targets)
	for i := range figures {
		figures[i] = TargetFigures{Name: fmt.Sprintf("target-%04d", i), State: pool.StateReady}
	}
	if err := m.ObserveTargets(func() []TargetFigures { return figures }); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m, "")
	if got := len(series(text, "mcpbridge_target_state")); got != 7*targets {
		t.Errorf("%d series of states, want %d", got, 7*targets)
	}
	if strings.Contains(text, "otel_metric_overflow") {
		t.Error("some are added up")
	}
}

func TestWhatCallsMeasureHasALimitOfSeries(t *testing.T) {
	m := measuring(t)
	for i := range maxSeries + 100 {
		m.failures.Add(t.Context(), 1, metric.WithAttributeSet(attribute.NewSet(keyTool.Int(i))))
	}
	text := scrape(t, m, "")
	if got := series(text, "mcpbridge_rpc_errors_total"); len(got) != maxSeries {
		t.Errorf("%d series", len(got))
	}
	if !strings.Contains(text, `mcpbridge_rpc_errors_total{otel_metric_overflow="true"} 101`) {
		t.Error("what is beyond the limit is not added up")
	}
}

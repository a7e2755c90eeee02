package main

import (
	"context"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel"

	"github.com/mcpbridge/mcpbridge/internal/config"
	bridgeotel "github.com/mcpbridge/mcpbridge/otel"
)

// startTelemetry sets up traces and metrics; end ends both, at once, because
// each may wait its whole budget for the same collector.
func startTelemetry(ctx, closing context.Context, cfg *config.Config, log *slog.Logger) (telemetry *bridgeotel.Telemetry, metrics *bridgeotel.Metrics, end func(), err error) {
	libraries := bridgeotel.NewLibraryLog(log)
	otel.SetLogger(libraries.Logger()) // before anything reads variables, whose values the default one would print
	otel.SetErrorHandler(libraries)
	telemetry, err = bridgeotel.Setup(ctx, bridgeotel.Options{Logger: log, Version: version, OwnTraces: !cfg.Telemetry.TrustRemote})
	if err != nil {
		return nil, nil, nil, err
	}
	endTraces := func() { ending(closing, log, "telemetry", telemetryBudget, telemetry.Shutdown) }
	metrics, err = bridgeotel.SetupMetrics(ctx, bridgeotel.MetricsOptions{Logger: log, Version: version, Prometheus: cfg.Listen.Admin.Address != ""})
	if err != nil {
		endTraces()
		return nil, nil, nil, err
	}
	return telemetry, metrics, func() {
		var both sync.WaitGroup
		both.Go(endTraces)
		both.Go(func() { ending(closing, log, "metrics", telemetryBudget, metrics.Shutdown) })
		both.Wait()
	}, nil
}

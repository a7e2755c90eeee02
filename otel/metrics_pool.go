package bridgeotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// Attributes of ours.
const (
	keyState       = attribute.Key("mcpbridge.state")
	keyCacheResult = attribute.Key("mcpbridge.cache.result")
	keySpanOutcome = attribute.Key("mcpbridge.span.outcome")
)

// TargetFigures is what is read of one target at each collection.
type TargetFigures struct {
	Name  string // in the configuration
	State pool.State
	Stat  pool.Stat
}

// poolInstruments are read all at once, so that they fit each other.
type poolInstruments struct {
	state, breaker                           metric.Int64ObservableGauge
	connections, interactive, closing, keys  metric.Int64ObservableGauge
	inFlight, queued                         metric.Int64ObservableGauge
	maxConnections, maxInFlight, maxQueue    metric.Int64ObservableGauge
	waits, rejections, evictions             metric.Int64ObservableCounter
	connects, reconnects, cacheLookups, shed metric.Int64ObservableCounter
}

// ObserveTargets reads the figures of all targets at each collection. figures
// must be cheap, and is called from any goroutine. It is called once at most.
func (m *Metrics) ObserveTargets(figures func() []TargetFigures) error {
	if !m.Enabled() {
		return nil
	}
	var errs []error
	var all []metric.Observable
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs, all = append(errs, err), append(all, g)
		return g
	}
	counter := func(name, unit, text string) metric.Int64ObservableCounter {
		c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs, all = append(errs, err), append(all, c)
		return c
	}
	in := &poolInstruments{
		state:          gauge("mcpbridge.target.state", "", "1 for the state that the target is in, 0 for the others."),
		breaker:        gauge("mcpbridge.pool.breaker.state", "", "1 for the state that the breaker is in, 0 for the others. Open: connecting failed, and who needs a connection is refused."),
		connections:    gauge("mcpbridge.pool.connections", "{connection}", "Connections that can carry calls."),
		interactive:    gauge("mcpbridge.pool.connections.interactive", "{connection}", "Of the connections, those leased to one interactive call each."),
		closing:        gauge("mcpbridge.pool.connections.closing", "{connection}", "Connections that are being closed, beside those that can carry calls."),
		keys:           gauge("mcpbridge.pool.keys", "{key}", "Keys that have a connection of their own."),
		inFlight:       gauge("mcpbridge.pool.in_flight", "{call}", "Calls that hold a place."),
		queued:         gauge("mcpbridge.pool.queued", "{call}", "Calls that wait for a place."),
		maxConnections: gauge("mcpbridge.pool.connections.max", "{connection}", "The setting pool.max_connections."),
		maxInFlight:    gauge("mcpbridge.pool.in_flight.max", "{call}", "The setting pool.max_in_flight; absent without a limit."),
		maxQueue:       gauge("mcpbridge.pool.queued.max", "{call}", "The setting pool.max_queue; absent without a limit."),
		waits:          counter("mcpbridge.pool.waits", "{call}", "Calls that had to wait for a place."),
		rejections:     counter("mcpbridge.pool.rejections", "{call}", "Calls that were refused a place."),
		evictions:      counter("mcpbridge.pool.evictions", "{connection}", "Connections closed because nobody used them."),
		connects:       counter("mcpbridge.pool.connects", "{connection}", "Connections made."),
		reconnects:     counter("mcpbridge.pool.reconnects", "{connection}", "Connections made in place of one that was lost."),
		cacheLookups:   counter("mcpbridge.cache.lookups", "{list}", "Lists that were needed, by whether the cache had them."),
		shed:           counter("mcpbridge.dispatch.shed", "{message}", "Messages of servers dropped at dispatch.max_in_flight."),
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, f := range figures() {
			in.observe(o, f)
		}
		return nil
	}, all...)
	return err
}

func (in *poolInstruments) observe(o metric.Observer, f TargetFigures) {
	target := keyTarget.String(f.Name)
	only := metric.WithAttributeSet(attribute.NewSet(target))
	with := func(kv attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(target, kv))
	}
	for state := pool.StateIdle; state <= pool.StateClosed; state++ {
		o.ObserveInt64(in.state, one(state == f.State), with(keyState.String(state.String())))
	}
	for state := pool.BreakerClosed; state <= pool.BreakerOpen; state++ {
		o.ObserveInt64(in.breaker, one(state == f.Stat.Breaker), with(keyState.String(state.String())))
	}
	s, c := f.Stat, f.Stat.Clients
	o.ObserveInt64(in.connections, int64(s.Connections), only)
	o.ObserveInt64(in.interactive, int64(s.Interactive), only)
	o.ObserveInt64(in.closing, int64(s.Closing), only)
	o.ObserveInt64(in.keys, int64(s.Keys), only)
	o.ObserveInt64(in.inFlight, int64(s.InFlight), only)
	o.ObserveInt64(in.queued, int64(s.Queued), only)
	o.ObserveInt64(in.maxConnections, int64(s.MaxConnections), only)
	if s.MaxInFlight != mcpclient.Unlimited {
		o.ObserveInt64(in.maxInFlight, int64(s.MaxInFlight), only)
	}
	if s.MaxQueue != mcpclient.Unlimited {
		o.ObserveInt64(in.maxQueue, int64(s.MaxQueue), only)
	}
	o.ObserveInt64(in.waits, count(s.Waits), only)
	o.ObserveInt64(in.rejections, count(s.Rejected), only)
	o.ObserveInt64(in.evictions, count(s.Evicted), only)
	o.ObserveInt64(in.connects, count(c.Connects), only)
	o.ObserveInt64(in.reconnects, count(c.Reconnects), only)
	o.ObserveInt64(in.cacheLookups, count(c.CacheHits), with(keyCacheResult.String("hit")))
	o.ObserveInt64(in.cacheLookups, count(c.CacheMisses), with(keyCacheResult.String("miss")))
	o.ObserveInt64(in.shed, count(c.Shed), only)
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// count is a counter's value; none gets near the largest.
func count(n uint64) int64 { return int64(min(n, 1<<62)) }

// ObserveSpans reads at each collection what became of the spans that were
// recorded; it is called once at most.
func (m *Metrics) ObserveSpans(stat func() SpanStat) error {
	if !m.Enabled() {
		return nil
	}
	ended, err := m.meter.Int64ObservableCounter("mcpbridge.spans",
		metric.WithUnit("{span}"), metric.WithDescription("Spans that were exported, or lost: failed, because their export did, or dropped, because too many waited for it."))
	waiting, err2 := m.meter.Int64ObservableGauge("mcpbridge.spans.waiting",
		metric.WithUnit("{span}"), metric.WithDescription("Spans that wait for their export."))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	_, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := stat()
		for outcome, n := range map[string]int64{"exported": s.Exported, "failed": s.Failed, "dropped": s.Dropped} {
			o.ObserveInt64(ended, n, metric.WithAttributes(keySpanOutcome.String(outcome)))
		}
		o.ObserveInt64(waiting, s.Waiting)
		return nil
	}, ended, waiting)
	return err
}

package main

import "math"

// goal is what must hold between measurements of one run.
type goal struct {
	what     string
	unit     string  // "×" for ratios
	limit    float64 // 0 = it is only shown
	least    float64 // 0 = only the limit counts
	measured float64 // NaN = not measured in this run
}

func (g *goal) verdict() string {
	switch {
	case g.limit == 0:
		return ""
	case g.measured <= g.limit && g.measured >= g.least:
		return "met"
	}
	return "not met"
}

// figures are the medians of a run.
type figures map[string]map[string]map[metric]float64 // cell, row, metric

// get is NaN for what was not measured.
func (f figures) get(cell, row string, m metric) float64 {
	if v, ok := f[cell][row][m]; ok {
		return v
	}
	return math.NaN()
}

// ratio of a metric between two rows of a cell.
func (f figures) ratio(cell string, m metric, row, to string) float64 {
	return f.get(cell, row, m) / f.get(cell, to, m)
}

// slope is the CPU per byte between two sizes of results, in µs per MB.
func (f figures) slope(row, small, large string, bytes float64) float64 {
	return (f.get(large, row, cpu) - f.get(small, row, cpu)) / bytes * (1 << 20)
}

// goals are the goals of the project, with what f has of them.
func (f figures) goals() []goal {
	growth := func(row string) float64 {
		return f.slope(row, "1MB", "5MB", 4<<20) / f.slope(row, "100KB", "1MB", 1<<20-100<<10)
	}
	return []goal{
		{what: "CPU per call, 16 callers, text arguments, beside the floor", unit: "×", limit: 1.25, measured: f.ratio("http-16", cpu, bridgeText, floor)},
		{what: "CPU per call, 16 callers, Struct arguments, beside the floor", unit: "×", limit: 1.5, measured: f.ratio("http-16", cpu, bridgeStruct, floor)},
		{what: "CPU per call, 16 callers, text arguments, beside the SDK", unit: "×", limit: 0.55, measured: f.ratio("http-16", cpu, bridgeText, sdk)},
		{what: "CPU per call on listen.grpc, 16 callers, beside the floor on the same transport", unit: "×", limit: 1.25, measured: f.ratio("http-16", cpu, bridgeFast, floorFast)},
		{what: "CPU per call on listen.grpc, 16 callers, beside the main listener", unit: "×", measured: f.ratio("http-16", cpu, bridgeFast, bridgeText)},
		{what: "p50 with 1 caller, beside the floor", unit: "×", limit: 1.15, measured: f.ratio("http-1", p50, bridgeText, floor)},
		{what: "p99 with 64 callers, beside the floor", unit: "×", limit: 1.5, measured: f.ratio("http-64", p99, bridgeText, floor)},
		{what: "CPU per call over stdio, beside the SDK", unit: "×", limit: 0.6, measured: f.ratio("stdio-16", cpu, bridgeText, sdk)},
		{what: "CPU per call with an exporter, callers not sampled, beside none", unit: "×", limit: 1.1, measured: f.ratio("tracing", cpu, unsampled, untraced)},
		{what: "CPU per call with an exporter, callers sampled, beside none", unit: "×", limit: 1.3, measured: f.ratio("tracing", cpu, sampled, untraced)},
		{what: "CPU per 5 MB text, beside the floor", unit: "×", limit: 1.3, measured: f.ratio("5MB", cpu, bridgeText, floor)},
		{what: "CPU per 5 MB of structured content as text, beside the floor", unit: "×", limit: 1.3, measured: f.ratio("5MB", cpu, rowsText, floor)},
		{what: "memory growth of 4 concurrent 5 MB texts, by their size", unit: "×", limit: 4, measured: f.get("5MB", bridgeText, multiple)},
		{what: "memory growth of 4 concurrent 5 MB structured contents as text, by their size", unit: "×", limit: 4, measured: f.get("5MB", rowsText, multiple)},
		{what: "CPU per byte of texts, 1 to 5 MB beside 100 KB to 1 MB", unit: "×", limit: 1.2, least: 0.8, measured: growth(bridgeText)},
		{what: "CPU per byte of structured content as text, 1 to 5 MB beside 100 KB to 1 MB", unit: "×", limit: 1.2, least: 0.8, measured: growth(rowsText)},
		{what: "memory of an idle bridge with 1,000 modern HTTP targets", unit: "MB", limit: 60, measured: f.get("targets", manyTargets, resident)},
		{what: "CPU of an idle bridge with 1,000 targets, more than with one", unit: "ms/s", measured: f.get("targets", manyTargets, idleCPU) - f.get("targets", oneTarget, idleCPU)},
		{what: "memory of an idle watch, 10,000 over 100 connections", unit: "KB", limit: 25, measured: f.get("watches", watchesRow, settled)},
		{what: "start to the first answer of the demo, beside a Connect server's", unit: "×", measured: f.ratio("start", starting, demoStart, bareStart)},
	}
}

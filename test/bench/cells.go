package main

import (
	"context"

	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// cell is one thing to measure, with everything in it that is compared.
type cell struct {
	name    string // for -only
	title   string
	core    bool   // is measured without -full
	base    string // row that the others are compared with; "" = none
	columns []metric
	measure func(ctx context.Context, r *runner) ([]row, error)
}

// metric is a column, and the key of its values.
type metric string

const (
	cpu      metric = "CPU µs/call"
	rate     metric = "calls/s"
	p50      metric = "p50 ms"
	p95      metric = "p95 ms"
	p99      metric = "p99 ms"
	resident metric = "RSS MB"
	peak     metric = "peak MB"
	multiple metric = "growth / payload" // of the peak over the memory after the start, by the bytes of the concurrent results
	told     metric = "messages/call"
	idleCPU  metric = "CPU ms/s"
	fresh    metric = "KB each, opened"
	settled  metric = "KB each, settled"
	opening  metric = "opened in s"
	upstream metric = "subscriptions at the server"
	reaching metric = "a change reached all in ms"
	starting metric = "ms to the first answer"
)

// row is one line of a cell: the values of all rounds.
type row struct {
	name   string
	values map[metric][]float64
}

// What is compared, by the name of its row.
const (
	floor        = "floor: one bare POST"
	floorFast    = "floor on grpc-go's transport"
	sdk          = "official Go SDK client"
	bridgeText   = "bridge, text"
	bridgeStruct = "bridge, Struct"
	bridgeFast   = "bridge, text, listen.grpc"
	directPost   = "direct, bare POST"
	directSDK    = "direct, official SDK client"

	rowsText   = "bridge, structured content, text"
	rowsStruct = "bridge, structured content, Struct"
	listText   = "bridge, cached, text"
	listStruct = "bridge, cached, Struct"
	listFresh  = "bridge, not cached, text"
	untraced   = "bridge, no exporter"
	unsampled  = "bridge, exporter, caller not sampled"
	sampled    = "bridge, exporter, caller sampled"
)

// contender is a way to do the work of a load.
type contender struct {
	process string // what is measured: its kind (bridge, traced, floor or sdk), and more words to have one of one's own; "" = the load generator itself
	via     string // of a process: "" = its main listener, fast = that on grpc-go's transport; else post or sdk
	change  func(*work)
	parent  string // traceparent of the calls; "" = none
}

// What callers with a trace send; the last digit says whether they are sampled.
const (
	parentNot     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	parentSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// contenders have bridges of their own, so that the memory that one work took is not found at the other.
var contenders = map[string]contender{
	floor:        {process: "floor"},
	floorFast:    {process: "floor fast", via: "fast"},
	sdk:          {process: "sdk"},
	bridgeText:   {process: "bridge"},
	bridgeStruct: {process: "bridge struct", change: asStruct},
	bridgeFast:   {process: "bridge fast", via: "fast"},
	directPost:   {via: "post"},
	directSDK:    {via: "sdk"},
	rowsText:     {process: "bridge rows", change: asRows},
	rowsStruct:   {process: "bridge rows struct", change: func(w *work) { asRows(w); asStruct(w) }},
	listText:     {process: "bridge"},
	listStruct:   {process: "bridge struct", change: asStruct},
	listFresh:    {process: "bridge fresh", change: func(w *work) { w.Fresh = true }},
	untraced:     {process: "bridge", parent: parentSampled},
	unsampled:    {process: "traced", parent: parentNot},
	sampled:      {process: "traced more", parent: parentSampled},
}

func asStruct(w *work) { w.Struct = true }
func asRows(w *work)   { w.Kind = "rows" }

var (
	callColumns = []metric{cpu, rate, p50, p95, p99, resident}
	bigColumns  = []metric{cpu, rate, p50, p95, p99, resident, peak, multiple}
	big         = []string{floor, sdk, bridgeText, rowsText, rowsStruct}
	all         = []string{floor, floorFast, sdk, bridgeText, bridgeStruct, bridgeFast, directPost, directSDK}
	some        = []string{floor, sdk, bridgeText, bridgeStruct, directPost, directSDK}
)

// cells are what is measured, in the order of the report.
func cells() []cell {
	echo := work{Kind: "echo", Size: 1 << 10}
	short := work{Kind: "echo", Size: 64}
	return []cell{
		{name: "http-1", core: true, title: "1 KB echo, modern HTTP with JSON, 1 caller", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: echo, callers: 1, rows: all}.measure},
		{name: "http-16", core: true, title: "1 KB echo, modern HTTP with JSON, 16 callers", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: echo, callers: 16, rows: all}.measure},
		{name: "http-64", core: true, title: "1 KB echo, modern HTTP with JSON, 64 callers", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: echo, callers: 64, rows: all}.measure},
		{name: "http-256", title: "1 KB echo, modern HTTP with JSON, 256 callers", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: echo, callers: 256, rows: all}.measure},
		{name: "sse-16", core: true, title: "1 KB echo, modern HTTP with an event stream, 16 callers", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.SSE, work: echo, callers: 16, rows: some}.measure},
		{name: "legacy-16", core: true, title: "1 KB echo, legacy HTTP with a session, 16 callers", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.Legacy, work: echo, callers: 16, rows: some}.measure},
		{name: "stdio-16", core: true, title: "1 KB echo, stdio, 16 callers", base: sdk, columns: callColumns,
			measure: comparison{mode: lightmcp.Stdio, work: echo, callers: 16, rows: []string{sdk, bridgeText, bridgeStruct, directSDK}}.measure},
		{name: "100KB", title: "100 KB results, modern HTTP with JSON, 4 callers", base: floor, columns: bigColumns,
			measure: comparison{mode: lightmcp.JSON, work: work{Kind: "text", Size: 100 << 10}, callers: 4, rows: big}.measure},
		{name: "1MB", title: "1 MB results, modern HTTP with JSON, 4 callers", base: floor, columns: bigColumns,
			measure: comparison{mode: lightmcp.JSON, work: work{Kind: "text", Size: 1 << 20}, callers: 4, rows: big}.measure},
		{name: "5MB", core: true, title: "5 MB results, modern HTTP with JSON, 4 callers", base: floor, columns: bigColumns,
			measure: comparison{mode: lightmcp.JSON, work: work{Kind: "text", Size: 5 << 20}, callers: 4, rows: big}.measure},
		{name: "list", title: "List of 500 tools with big schemas (2 MB), modern HTTP with JSON, 4 callers", base: floor, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: work{Kind: "list", Size: 500}, callers: 4, rows: []string{floor, sdk, listText, listStruct, listFresh}}.measure},
		{name: "progress", title: "Streamed call with 100 progress messages, one a millisecond, modern HTTP, 4 callers", base: floor, columns: []metric{cpu, told, rate, p50, p95, p99, resident},
			measure: comparison{mode: lightmcp.JSON, work: work{Kind: "progress", Size: 100}, callers: 4, rows: []string{floor, sdk, bridgeText}}.measure},
		{name: "tracing", title: "1 KB echo, modern HTTP with JSON, 16 callers that have a trace", base: untraced, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: echo, callers: 16, rows: []string{untraced, unsampled, sampled}}.measure},
		{name: "sequential", title: "As others measure: short echo, one sequential client", base: directPost, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: short, callers: 1, rows: []string{bridgeText, directPost, directSDK}}.measure},
		{name: "clients-10", title: "As others measure: 10 clients, ten tools (one round, 15 times as long)", base: directPost, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: work{Kind: "echo", Size: 64, Spread: true}, callers: 10, connections: 10, once: 15, rows: []string{bridgeText, directPost, directSDK}}.measure},
		{name: "connections-32", title: "As others measure: 1 KB echo over 32 connections", base: directPost, columns: callColumns,
			measure: comparison{mode: lightmcp.JSON, work: echo, callers: 32, connections: 32, rows: []string{bridgeText, directPost, directSDK}}.measure},
		{name: "targets", core: true, title: "Idle bridge with many modern HTTP targets", base: oneTarget, columns: []metric{resident, idleCPU}, measure: measureTargets},
		{name: "watches", title: "Idle watch streams", columns: []metric{fresh, settled, opening, upstream, reaching}, measure: measureWatches},
		{name: "start", title: "From the start of the process to the first answer", base: bareStart, columns: []metric{starting, resident}, measure: measureStart},
	}
}

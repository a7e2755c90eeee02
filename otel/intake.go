package bridgeotel

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// SpanStat counts the spans that were to be exported, since the start.
type SpanStat struct {
	Exported int64 // the collector took them
	Failed   int64 // the collector was down, too slow, or refused them
	Dropped  int64 // the queue was full, or they came after its end
	Waiting  int64 // in the queue, or in an export under way
}

// spanCounts is what SpanStat is a snapshot of.
type spanCounts struct {
	exported, failed, dropped, waiting atomic.Int64
}

// Times of the log line that says how many spans were dropped.
const (
	dropLogDelay    = time.Second // a burst becomes one line
	dropLogInterval = time.Minute
)

// intake stands before the SDK's batch processor. It drops what would not fit
// into the queue and counts it, because the SDK does the same without a word.
type intake struct {
	sdktrace.SpanProcessor

	limit    int64 // at most the size of the SDK's queue, so that it never drops
	counts   *spanCounts
	failures *failureLog // of the exporter behind
	logger   *slog.Logger

	mu       sync.Mutex // guards the following; taken only when a span is dropped
	unlogged int64      // spans dropped since the last line
	logged   time.Time
	timer    *time.Timer // writes the next line; nil = there is nothing to say
	ended    bool        // no further line is begun
	lines    sync.WaitGroup
}

// OnEnd takes a span that has ended. It never blocks.
func (i *intake) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if i.counts.waiting.Add(1) > i.limit {
		i.counts.waiting.Add(-1)
		i.drop(1)
		return
	}
	i.SpanProcessor.OnEnd(span)
}

func (i *intake) drop(n int64) {
	i.counts.dropped.Add(n)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unlogged += n
	if i.timer != nil || i.ended {
		return
	}
	i.lines.Add(1)
	i.timer = time.AfterFunc(max(dropLogDelay, time.Until(i.logged.Add(dropLogInterval))), func() {
		defer i.lines.Done()
		i.log()
	})
}

// log says how many spans were dropped since it last did. It is not called
// where a call waits.
func (i *intake) log() {
	i.mu.Lock()
	n := i.unlogged
	i.unlogged, i.logged, i.timer = 0, time.Now(), nil
	i.mu.Unlock()
	if n > 0 {
		i.logger.Warn("spans were dropped because the export queue was full; "+
			"raise OTEL_BSP_MAX_QUEUE_SIZE, sample fewer calls (OTEL_TRACES_SAMPLER), or look at what slows the collector down",
			"dropped_spans", n, "queue_size", i.limit)
	}
}

// Shutdown exports what is waiting; what then still waits is lost. It returns
// after the last log line.
func (i *intake) Shutdown(ctx context.Context) error {
	err := i.SpanProcessor.Shutdown(ctx)
	i.end()
	return err
}

// end counts what the SDK leaves in the queue, and writes what is to be said.
func (i *intake) end() {
	left := max(i.counts.waiting.Swap(0), 0)
	i.counts.dropped.Add(left)
	i.mu.Lock()
	i.ended = true
	if i.timer != nil && i.timer.Stop() {
		i.lines.Done()
	}
	i.mu.Unlock()
	i.lines.Wait()
	i.log()
	i.failures.end()
	if left > 0 {
		i.logger.Warn("spans were lost because the time for the last export was over", "lost_spans", left)
	}
}

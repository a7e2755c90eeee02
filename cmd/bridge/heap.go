package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// spareBytes is memory that a busy bridge counts as in use. Its live heap is a
	// few MB, of which a share would be collected again and again under load: that
	// was a seventh of the CPU of small calls.
	spareBytes = 48 << 20
	// busyPercent is how much of the live heap, spareBytes included, a busy bridge
	// may allocate between two collections. A quarter of the usual share: what
	// lives while large results pass is made of few large pieces, which are cheap
	// to mark, and the peak follows.
	busyPercent = 25
	// lookEvery is how often it is looked at what the bridge allocates, and
	// busyBytes what a busy one allocates between two looks.
	lookEvery = 250 * time.Millisecond
	busyBytes = 8 << 20
	// busyAfter is how much looks in a row have to find together before a bridge is
	// busy, so that the start of many targets is no work, while a load is one after
	// a moment. calmAfter is how many find less than busyBytes before it is calm.
	busyAfter = 4 * busyBytes
	calmAfter = 40
	// calmBytes is what a calm one may allocate between two collections, or half
	// of its live heap if that is more: what it holds matters more than how often
	// it collects.
	calmBytes = 4 << 20
)

// heap gives a busy bridge room for its garbage, and takes a calm one's room.
type heap struct {
	spare     []byte // counted as in use and never touched, so that the system gives no memory for it
	usual     int    // GOGC as it was
	percent   int    // GOGC now
	fixed     bool   // the operator has set GOGC
	allocated uint64 // bytes in total, at the last look
	busy      bool
	much      uint64 // bytes that looks in a row have found, each at least busyBytes
	little    int    // looks in a row that found less
}

// tendHeap looks after the heap until release, which leaves it as it was. It
// comes before all that allocates much: the spare room must be of memory that
// was never used, since other memory is cleared, which touches it.
func tendHeap(ctx context.Context) (release func()) {
	allocated, _ := heapBytes()
	h := newHeap(allocated)
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer h.setPercent(h.usual)
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
				allocated, live := heapBytes()
				h.look(time.Since(last), allocated, live)
				last = time.Now()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		end()
		wg.Wait()
	}
}

// heapBytes is what was ever allocated, and what the last collection found in
// use.
func heapBytes() (allocated, live uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// newHeap is a calm one.
func newHeap(allocated uint64) *heap {
	h := &heap{spare: make([]byte, spareBytes), fixed: os.Getenv("GOGC") != "", allocated: allocated}
	h.usual = debug.SetGCPercent(100)
	debug.SetGCPercent(h.usual)
	h.percent = h.usual
	h.rest(spareBytes)
	return h
}

// look decides by what was allocated since the last look, which is longer ago
// than planned where processors are scarce.
func (h *heap) look(since time.Duration, allocated, live uint64) {
	found := allocated - h.allocated
	h.allocated = allocated
	if float64(found) < busyBytes*max(1, since.Seconds()/lookEvery.Seconds()) {
		h.much, h.little = 0, h.little+1
	} else {
		h.much, h.little = h.much+found, 0
	}
	switch {
	case h.much >= busyAfter:
		h.busy = true
		h.setPercent(busyPercent)
	case h.little == calmAfter: // also after the start
		h.busy = false
		debug.FreeOSMemory()
	case !h.busy:
		h.rest(live)
	}
}

// rest takes the room of a heap of which live bytes are in use, the spare part
// included.
func (h *heap) rest(live uint64) {
	live = max(live, spareBytes)
	room := max(calmBytes, (live-spareBytes)/2)
	h.setPercent(int(room * 100 / live))
}

// setPercent sets GOGC unless the operator did.
func (h *heap) setPercent(percent int) {
	if h.percent == percent || h.fixed {
		return
	}
	h.percent = percent
	debug.SetGCPercent(percent)
}

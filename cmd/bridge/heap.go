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
	// spareBytes is how much a busy bridge may allocate between two collections
	// at least. Its live heap is a few MB, after which Go collects again and
	// again under load: that was a seventh of the CPU of small calls.
	spareBytes = 32 << 20
	// busyBytes is what a bridge allocates in a second when it is busy. Below,
	// even the smallest heap is collected no more than a few times a second.
	busyBytes = 16 << 20
	// calmPercent is GOGC of a bridge that is not busy: what it holds then
	// matters more than how often it collects.
	calmPercent = 50
	// calmAfter is how many seconds in a row a bridge is not busy before it is
	// calm.
	calmAfter = 10
)

// heap gives a busy bridge room for its garbage, and a calm one's room back to
// the system. The zero value is that of a bridge that begins to work.
type heap struct {
	spare     []byte // counted as in use and never touched, so that the system gives no memory for it
	percent   int    // GOGC while busy
	allocated uint64 // bytes in total, at the last look
	quiet     int    // looks in a row that found little
	calm      bool
}

// tendHeap looks once a second at what the bridge allocates. release ends that
// and waits for it.
func tendHeap(ctx context.Context) (release func()) {
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		h := heap{allocated: allocatedBytes()}
		defer h.end()
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				h.look(allocatedBytes())
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

// allocatedBytes is what was ever allocated.
func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// look decides by what was allocated since the last look, a second ago.
func (h *heap) look(allocated uint64) {
	little := allocated-h.allocated < busyBytes
	h.allocated = allocated
	switch {
	case !little:
		h.quiet = 0
		h.busy()
	case h.quiet < calmAfter:
		h.quiet++
	case !h.calm:
		h.rest()
	}
}

// busy gives room.
func (h *heap) busy() {
	if h.spare == nil {
		h.spare = make([]byte, spareBytes)
	}
	h.end()
}

// end leaves GOGC as it was found.
func (h *heap) end() {
	if h.calm {
		h.calm = false
		h.setPercent(h.percent)
	}
}

// rest takes the room away, and gives the system what was garbage.
func (h *heap) rest() {
	h.calm, h.spare = true, nil
	h.percent = h.setPercent(calmPercent)
	debug.FreeOSMemory()
}

// setPercent sets GOGC unless the operator did, and returns what it was.
func (h *heap) setPercent(percent int) int {
	if os.Getenv("GOGC") != "" {
		return percent
	}
	return debug.SetGCPercent(percent)
}

package main

import (
	"runtime/debug"
	"testing"
)

// gogc is what is set now.
func gogc() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestABusyHeapHasRoomAndACalmOneHasLess(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	total, live := uint64(1000), uint64(spareBytes+1<<20)
	h := newHeap(total)
	looks := func(n int, allocated uint64) {
		for range n {
			total += allocated
			h.look(lookEvery, total, live)
		}
	}
	want := func(when string, percent int) {
		t.Helper()
		if now := gogc(); now != percent || len(h.spare) != spareBytes {
			t.Errorf("%s: GOGC is %d, want %d, and there are %d bytes to spare", when, now, percent, len(h.spare))
		}
	}

	want("at the start", 8) // 4 MB of 49
	looks(3, busyBytes)
	looks(1, 0)
	want("after a moment with much to do", 8)
	looks(4, busyBytes)
	want("under load", busyPercent)
	looks(calmAfter, busyBytes-1)
	want("after a moment with little to do", busyPercent)
	live = 3 * spareBytes
	looks(1, busyBytes-1)
	want("after that", 33)
	total += 4 * busyBytes
	h.look(8*lookEvery, total, live)
	want("with a little work in a longer time", 33)
	looks(1, busyAfter)
	want("after one look that found all of it", busyPercent)
	looks(calmAfter-1, 0)
	looks(1, busyBytes)
	looks(calmAfter-1, 0)
	want("under a load that comes and goes", busyPercent)
}

func TestTheGOGCOfTheOperatorStays(t *testing.T) {
	t.Setenv("GOGC", "77")
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	h := newHeap(0)
	for range calmAfter + 1 {
		h.look(lookEvery, 0, 2*spareBytes)
	}
	if now := gogc(); now != 77 {
		t.Errorf("GOGC became %d", now)
	}
}

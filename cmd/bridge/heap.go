package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// spareBytes makes the heap look larger than it is, so that collections of a
	// small one are rare: the live heap is a few MB, after which Go collects again
	// and again under load, which was a seventh of the CPU of small calls.
	spareBytes = 32 << 20

	// growPercent is how much of the live heap, spareBytes included, may be
	// allocated between two collections. Half as much as usual: what lives while
	// large results pass is made of few large pieces, which are cheap to mark.
	growPercent = 50
)

// spareHeap holds memory that is counted as in use and never touched, so that
// the system gives none for it. It comes before all that allocates much: memory
// that was used before is cleared, which touches it. release lets it go. A GOGC
// of the environment is left as it is.
func spareHeap() (release func()) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growPercent)
	}
	spare := make([]byte, spareBytes)
	return func() { runtime.KeepAlive(spare) }
}

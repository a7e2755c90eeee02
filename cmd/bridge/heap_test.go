package main

import (
	"runtime/debug"
	"testing"
)

func TestABusyHeapHasRoomAndACalmOneHasNone(t *testing.T) {
	t.Setenv("GOGC", "")
	usual := debug.SetGCPercent(100)
	defer debug.SetGCPercent(usual)
	percent := func() int {
		now := debug.SetGCPercent(1)
		debug.SetGCPercent(now)
		return now
	}
	var h heap
	total := uint64(0)
	second := func(allocated uint64) {
		total += allocated
		h.look(total)
	}
	want := func(when string, spare bool, gogc int) {
		t.Helper()
		if (h.spare != nil) != spare || percent() != gogc {
			t.Errorf("%s: spare %v, GOGC %d; want %v, %d", when, h.spare != nil, percent(), spare, gogc)
		}
	}

	second(busyBytes)
	want("under load", true, 100)
	for range calmAfter {
		second(0)
		want("after a moment of silence", true, 100)
	}
	second(0)
	want("after a longer silence", false, calmPercent)
	second(busyBytes - 1)
	want("with a little work", false, calmPercent)
	second(busyBytes)
	want("under load again", true, 100)

	for range calmAfter / 2 {
		second(0)
	}
	second(busyBytes)
	for range calmAfter {
		second(0)
	}
	want("under a load that comes and goes", true, 100)
}

func TestTheGOGCOfTheOperatorStays(t *testing.T) {
	t.Setenv("GOGC", "77")
	usual := debug.SetGCPercent(77)
	defer debug.SetGCPercent(usual)
	var h heap
	h.rest()
	if now := debug.SetGCPercent(77); now != 77 {
		t.Errorf("GOGC became %d", now)
	}
	h.busy()
	if now := debug.SetGCPercent(77); now != 77 {
		t.Errorf("GOGC became %d", now)
	}
}

package server

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// patience notes when its waits ended.
type patience struct {
	clock clock
	start time.Time
	ended []string
}

func (p *patience) readExpired() { p.ended = append(p.ended, "read at "+time.Since(p.start).String()) }
func (p *patience) writeExpired() {
	p.ended = append(p.ended, "write at "+time.Since(p.start).String())
}

// do calls a method of the clock with its lock held.
func (p *patience) do(method func(time.Time), after time.Duration) {
	p.clock.mu.Lock()
	defer p.clock.mu.Unlock()
	if after == 0 {
		method(time.Time{})
		return
	}
	method(time.Now().Add(after))
}

func TestAClockEndsEachWaitAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patience{start: time.Now()}
		p.clock.owner = p
		p.do(p.clock.limitRead, 4*time.Second)
		for range 10 { // writes that are in time, while the body is still awaited
			p.do(p.clock.limitWrite, time.Second)
			time.Sleep(500 * time.Millisecond)
			p.do(p.clock.limitWrite, 0)
		}
		p.do(p.clock.limitWrite, time.Minute)
		p.do(p.clock.limitWrite, time.Second) // less than before
		time.Sleep(time.Hour)
		p.do(p.clock.limitRead, -time.Second) // passed already
		synctest.Wait()
		p.do(p.clock.limitWrite, time.Second)
		p.do(func(time.Time) { p.clock.end() }, 0)
		p.do(p.clock.limitRead, time.Second) // after the end
		time.Sleep(time.Hour)
		want := []string{"read at 4s", "write at 6s", "read at 1h0m5s"}
		if !slices.Equal(p.ended, want) {
			t.Errorf("waits ended: %q, want %q", p.ended, want)
		}
	})
}

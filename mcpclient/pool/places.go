package pool

import (
	"container/list"
	"fmt"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// places bounds the connections of one kind: the usual ones, or those of
// exclusive requests. A connection has its place until it is closed: a process
// or a session that takes its time to end is still there. Pool.mu guards them.
type places struct {
	most    int
	open    int       // connections, those included that are on their way out
	live    int       // of these, those that are not
	closing int       // of these, those that are being closed
	crowd   list.List // of *waiter: connections must end before others may begin
}

// leaving is how many connections are on their way out.
func (s *places) leaving() int { return s.open - s.live }

// countsApart reports whether a group's connections are bounded by
// MaxExclusive.
func (p *Pool) countsApart(g *group) bool { return g.request.Exclusive && p.opts.Mode != ModePerCall }

func (p *Pool) placesLocked(g *group) *places {
	if p.countsApart(g) {
		return &p.apart
	}
	return &p.usual
}

// crowdLocked returns where a caller waits for a connection of another group to
// end, nil if none is about to.
func (p *Pool) crowdLocked(g *group) *list.List {
	s := p.placesLocked(g)
	if s == &p.apart && s.leaving() <= s.crowd.Len() { // as many as wait already
		p.evictLocked()
	}
	if s.live < s.most {
		return &s.crowd
	}
	return nil
}

// admitLocked lets those in who waited for a connection to end.
func (p *Pool) admitLocked() {
	s := &p.usual
	for w := front(&s.crowd); w != nil && p.admitsLocked() && s.open < s.most; w = front(&s.crowd) {
		s.crowd.Remove(w.place)
		if p.serveLocked(w) {
			break
		}
	}
	p.admitExclusiveLocked()
}

// admitExclusiveLocked does so for exclusive requests, which may also have an
// idle connection of their group, or the place of another group's.
func (p *Pool) admitExclusiveLocked() {
	s := &p.apart
	coming := s.leaving()
	for e := s.crowd.Front(); e != nil && p.admitsLocked(); {
		w, _ := e.Value.(*waiter)
		e = e.Next()
		g := p.groups[w.request]
		switch {
		case s.open < s.most, g != nil && p.pickLocked(g) != nil:
			s.crowd.Remove(w.place)
			p.serveLocked(w)
		case coming > 0:
			coming-- // its place is on the way
		case !p.evictLocked():
			return
		}
	}
}

// admitsLocked reports whether a further lease may exist.
func (p *Pool) admitsLocked() bool { return !p.draining && !p.fullLocked() }

// evictLocked has the exclusive connection end that was idle longest, to make
// room for another group's; false if all are busy.
func (p *Pool) evictLocked() bool {
	var oldest *member
	for _, g := range p.groups {
		if !p.countsApart(g) {
			continue
		}
		for _, m := range g.members {
			if m.inFlight == 0 && (oldest == nil || m.idleSince.Before(oldest.idleSince)) {
				oldest = m
			}
		}
	}
	if oldest == nil {
		return false
	}
	p.counters.evicted++
	p.removeLocked(oldest)
	return true
}

func (p *Pool) noConnectionErrorLocked(g *group) error {
	e := &mcpclient.Error{Kind: mcpclient.KindOverloaded, SafeToRetry: true, RetryAfter: retryAfter}
	if p.countsApart(g) {
		e.Message = fmt.Sprintf("the target already has %d connections that each serve one interactive call; retry later or raise pool.max_interactive", p.apart.most)
	} else {
		e.Message = fmt.Sprintf("the target already has %d connections, each for callers of another key, and none was idle for pool.idle_timeout; retry later or raise pool.max_connections", p.usual.open)
	}
	return e
}

// settingOf names what bounds those who wait in a queue.
func (p *Pool) settingOf(queue *list.List) string {
	switch {
	case queue == &p.apart.crowd:
		return "pool.max_interactive"
	case queue == &p.usual.crowd, queue != &p.queue && p.opts.Mode == ModePerCall:
		return "pool.max_connections"
	case queue == &p.queue:
		return "pool.max_in_flight"
	}
	return "pool.max_in_flight_per_connection"
}

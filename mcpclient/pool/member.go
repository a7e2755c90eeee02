package pool

import (
	"container/list"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// group is the connections for one kind of request. It exists while it has
// any, or callers that wait for one.
type group struct {
	request Request
	members []*member
	queue   list.List // of *waiter: every connection of the group is taken
}

// member is one connection. All fields but client are guarded by Pool.mu.
type member struct {
	role

	client    *mcpclient.Client
	group     *group
	status    mcpclient.Status
	inFlight  int
	born      time.Time
	idleSince time.Time
	maxIdle   time.Duration // 0 = no limit
	maxAge    time.Duration // 0 = no limit
	gone      bool          // no longer in the group; ends with its last lease
}

// role is why a member exists.
type role struct {
	primary  bool    // the first of a shared pool: it stays, whatever happens to it
	beside   bool    // made while others serve: of use once it is connected
	replaces *member // with beside: the one that ends then
}

// groupLocked returns the group of a request, a new one if need be.
func (p *Pool) groupLocked(r Request) *group {
	if p.shared != nil && r == (Request{}) {
		return p.shared
	}
	g := p.groups[r]
	if g == nil {
		g = &group{request: r}
		p.groups[r] = g
	}
	return g
}

// tidyLocked forgets a group that nobody needs; somebody is about to wait in
// queue.
func (p *Pool) tidyLocked(r Request, queue *list.List) {
	if g := p.groups[r]; g != nil && g != p.shared && len(g.members) == 0 && g.queue.Len() == 0 && queue != &g.queue {
		delete(p.groups, r)
	}
}

// pickLocked returns the best connection of a group that has room, or nil: one
// that is connected before one that is not, then the least in flight.
func (p *Pool) pickLocked(g *group) *member {
	limit := p.opts.MaxInFlightPerConnection
	if g.request.Exclusive {
		limit = 1
	}
	var best *member
	for _, m := range g.members {
		if limit > 0 && m.inFlight >= limit || m.beside && !m.connected() {
			continue
		}
		if best == nil || m.rank() > best.rank() || m.rank() == best.rank() && m.inFlight < best.inFlight {
			best = m
		}
	}
	return best
}

func (m *member) connected() bool {
	return m.status.State == mcpclient.StateReady || m.status.State == mcpclient.StateSuspect
}

// rank orders members by how well they can take a call.
func (m *member) rank() int {
	switch m.status.State {
	case mcpclient.StateReady:
		return 3
	case mcpclient.StateSuspect:
		return 2
	case mcpclient.StateIdle, mcpclient.StateConnecting:
		return 1
	case mcpclient.StateReconnecting, mcpclient.StateClosed:
	}
	return 0
}

// wantsMoreLocked reports whether a further connection would help although m
// has room: all of them are busy.
func (p *Pool) wantsMoreLocked(g *group, m *member) bool {
	return p.opts.MaxConnections > 1 && p.opts.Mode == ModeShared && m.inFlight > 0 && m.connected() && p.mayGrowLocked(g)
}

// roomLocked reports whether placeLocked would find or make a place in g.
func (p *Pool) roomLocked(g *group) bool {
	if p.opts.Mode == ModePerCall {
		return p.mayGrowLocked(g)
	}
	return p.pickLocked(g) != nil || len(g.members) == 0
}

// mayGrowLocked reports whether g may have another connection. Shared ones are
// made one at a time.
func (p *Pool) mayGrowLocked(g *group) bool {
	switch {
	case p.opts.Mode == ModePerCall:
		return p.usual.open < p.usual.most
	case g.request.Exclusive:
		return p.apart.open < p.apart.most
	case p.opts.Mode == ModePerKey:
		return len(g.members) == 0 && p.usual.open < p.usual.most
	case g == p.shared:
		return len(g.members)+p.usual.closing < p.usual.most && !slices.ContainsFunc(g.members, func(m *member) bool { return m.beside && !m.connected() })
	}
	return len(g.members) == 0 && p.usual.open < p.usual.most+defaultMaxConnections
}

// growLocked makes a further connection and returns it if a call may wait for
// it; serving says that another one has room. A queue is where the call has to
// wait when there is neither a connection nor an error.
func (p *Pool) growLocked(g *group, serving bool) (*member, *list.List, error) {
	if !p.mayGrowLocked(g) {
		if serving || p.opts.Mode == ModePerCall || len(g.members) > 0 && !g.request.Exclusive {
			return nil, &g.queue, nil
		}
		if crowd := p.crowdLocked(g); crowd != nil {
			return nil, crowd, nil
		}
		p.counters.rejected++
		return nil, nil, p.noConnectionErrorLocked(g)
	}
	beside := len(g.members) > 0 && !g.request.Exclusive
	m, err := p.addLocked(g, role{beside: beside})
	if err != nil || !beside {
		return m, nil, err
	}
	p.connectLocked(m)
	return nil, &g.queue, nil
}

// addLocked makes a member.
func (p *Pool) addLocked(g *group, why role) (*member, error) {
	m := &member{role: why, group: g, born: time.Now(), idleSince: time.Now(), maxAge: vary(p.opts.MaxLifetime)}
	if !m.primary {
		m.maxIdle = vary(p.opts.IdleTimeout)
		p.startSweeperLocked()
	}
	about := Member{
		Key: g.request.Key, Exclusive: g.request.Exclusive,
		Lazy:    g != p.shared || p.opts.Lazy,
		OnState: func(s mcpclient.Status) { p.observe(m, s) },
	}
	if !m.primary { // which paces itself, and is not to suffer for others
		about.Gate = p.breaker.enter
	}
	var err error
	if m.client, err = p.opts.New(about); err != nil {
		return nil, err
	}
	g.members = append(g.members, m)
	s := p.placesLocked(g)
	s.open++
	s.live++
	return m, nil
}

// connectLocked has a member connect behind the callers' backs.
func (p *Pool) connectLocked(m *member) {
	if !p.opts.Lazy {
		m.client.Start()
		return
	}
	p.work.Go(func() { _ = m.client.Connect(p.lifetime) }) // a failure is told to observe
}

// observe is told of each change of a member's state, in order.
func (p *Pool) observe(m *member, s mcpclient.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !m.connected() {
		m.idleSince = time.Now() // making it was not idling
	}
	m.status = s
	switch {
	case m.gone || p.closed:
		return
	case m.beside && s.State == mcpclient.StateReconnecting:
		if old := m.replaces; old != nil {
			old.maxAge += max(p.opts.MaxLifetime/10, time.Second) // it has to serve a little longer
		}
		p.removeLocked(m) // it cannot connect, or is no longer needed: the primary one tries on
	case m.connected():
		if old := m.replaces; old != nil {
			m.replaces = nil
			m.primary, m.beside = old.primary, old.beside
			if m.primary {
				m.maxIdle = 0
			}
			p.removeLocked(old)
		}
		p.advanceLocked(m.group.request)
	}
	p.refreshLocked()
}

// removeLocked takes a member out of its group; it ends with its last lease.
func (p *Pool) removeLocked(m *member) {
	if m.gone || p.closed {
		return
	}
	m.gone = true
	g := m.group
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	p.placesLocked(g).live--
	if m.inFlight == 0 {
		p.endLocked(m)
	} else {
		p.leaving[m] = struct{}{}
	}
	p.tidyLocked(g.request, nil)
	p.refreshLocked()
}

// endLocked closes a member that nobody uses any more, whose place is free once
// that is done.
func (p *Pool) endLocked(m *member) {
	s := p.placesLocked(m.group)
	s.closing++
	p.counters.ended = p.counters.ended.Add(m.client.Stat())
	p.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.lifetime, closeBudget)
		defer cancel()
		if err := m.client.Close(ctx); err != nil {
			p.opts.Logger.WarnContext(ctx, "a connection did not end cleanly", "error", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		s.closing--
		s.open--
		p.advanceLocked(m.group.request)
		p.admitLocked()
	})
}

// vary changes a limit by up to a tenth, so that connections made together do
// not end together.
func vary(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d)) //nolint:gosec // no secret depends on it
}

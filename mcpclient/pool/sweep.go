package pool

import (
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// expired reports whether a member is over its lifetime.
func (m *member) expired(now time.Time) bool { return m.maxAge > 0 && now.Sub(m.born) >= m.maxAge }

// startSweeperLocked starts looking for connections that are idle or old, once
// there can be any.
func (p *Pool) startSweeperLocked() {
	limit := p.opts.IdleTimeout
	if l := p.opts.MaxLifetime; l > 0 && (limit == 0 || l < limit) {
		limit = l
	}
	if limit == 0 || p.sweeper != nil || p.draining {
		return
	}
	period := max(limit/10, time.Millisecond)
	p.sweeper = time.AfterFunc(period, func() { p.sweep(period) })
}

// sweep looks at all connections, each period until the pool drains.
func (p *Pool) sweep(period time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return
	}
	p.sweepLocked(time.Now())
	p.sweeper.Reset(period)
}

func (p *Pool) sweepLocked(now time.Time) {
	var due []*member
	for _, g := range p.groups {
		for _, m := range g.members {
			connecting := m.status.State == mcpclient.StateConnecting // which has a limit of its own
			if m.inFlight == 0 && !connecting && m.maxIdle > 0 && now.Sub(m.idleSince) >= m.maxIdle || m.expired(now) {
				due = append(due, m)
			}
		}
	}
	for _, m := range due {
		switch {
		case m.group == p.shared && (m.primary || m.inFlight > 0):
			p.replaceLocked(m)
		case m.inFlight == 0:
			if !m.expired(now) {
				p.counters.evicted++
			}
			p.removeLocked(m)
		} // a busy one of a key ends with its last lease
	}
}

// replaceLocked makes the successor of an old connection, which serves until
// that is connected. One that is not connected is about to be replaced anyway,
// and while earlier ones still take their time to close the next one has to wait.
func (p *Pool) replaceLocked(old *member) {
	if !old.connected() || p.usual.closing >= p.usual.most {
		return
	}
	for _, m := range p.shared.members {
		if m.replaces == old {
			return
		}
	}
	successor, err := p.addLocked(p.shared, role{beside: true, replaces: old})
	if err != nil {
		p.opts.Logger.Warn("the successor of a connection could not be made", "error", err)
		return
	}
	p.connectLocked(successor)
}

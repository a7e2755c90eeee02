package pool

import (
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// State is where a target is in its life, seen over all of its connections.
type State int

const (
	// StateIdle: there is no connection, and the next call makes one.
	StateIdle State = iota
	// StateConnecting: the first connection is being made.
	StateConnecting
	// StateReady: at least one connection carries calls; or, where each key or
	// call has a connection of its own, the newest ones came about.
	StateReady
	// StateSuspect: connected, but the server leaves probes unanswered.
	StateSuspect
	// StateReconnecting: connections were lost or could not be made; the next
	// attempt is under way or waits for its time.
	StateReconnecting
	// StateDraining: no new calls; those under way finish.
	StateDraining
	// StateClosed: ended for good.
	StateClosed
)

// String returns the state in lower case.
func (s State) String() string {
	names := [...]string{"idle", "connecting", "ready", "suspect", "reconnecting", "draining", "closed"}
	if s < 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Status is a snapshot of a target's state.
type Status struct {
	State State
	// Since is when it entered State.
	Since time.Time
	// Server is what the server told of itself last; nil before the first
	// connection.
	Server *mcpclient.Server
	// LastError is why a connection was last lost or could not be made; it stays
	// after recovery. nil = that never happened.
	LastError error
	// NextAttempt is when the next connection attempt starts; zero when none is
	// planned.
	NextAttempt time.Time
}

// Stat is a snapshot of a pool's figures.
type Stat struct {
	Connections    int    // those that can carry calls now
	Interactive    int    // of these, exclusive ones
	Closing        int    // those that are being closed, which takes a process or a session its time
	Keys           int    // keys that have a connection
	InFlight       int    // leases not released yet
	Queued         int    // callers waiting for a lease
	MaxConnections int    // as in Options, with its default
	MaxInFlight    int    // mcpclient.Unlimited = no limit
	MaxQueue       int    // mcpclient.Unlimited = no limit
	Waits          uint64 // callers so far that had to wait
	Rejected       uint64 // callers so far that were refused a place
	Evicted        uint64 // connections so far that ended because nobody used them
	Breaker        BreakerState
	Clients        mcpclient.Stat // of all connections so far, added up
}

// BreakerState says whether the target may be connected to.
type BreakerState int

const (
	// BreakerClosed: nothing speaks against it.
	BreakerClosed BreakerState = iota
	// BreakerHalfOpen: connecting failed, and the attempt that decides is under
	// way or due.
	BreakerHalfOpen
	// BreakerOpen: connecting failed, and who needs a connection is refused until
	// the next attempt is due.
	BreakerOpen
)

// String returns the state in lower case.
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerHalfOpen:
		return "half_open"
	case BreakerOpen:
		return "open"
	}
	return "unknown"
}

type counters struct {
	waits, rejected, evicted uint64
	ended                    mcpclient.Stat // of connections that are no more
}

// Stat returns a snapshot.
func (p *Pool) Stat() Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stat{
		InFlight: p.inFlight, Queued: p.queued,
		MaxConnections: p.opts.MaxConnections, MaxInFlight: p.opts.MaxInFlight, MaxQueue: p.opts.MaxQueue,
		Waits: p.counters.waits, Rejected: p.counters.rejected, Evicted: p.counters.evicted,
		Closing: p.usual.closing + p.apart.closing,
		Breaker: p.breakerLocked(), Clients: p.counters.ended,
	}
	keys := make(map[Key]struct{}, len(p.groups))
	for _, g := range p.groups {
		if len(g.members) > 0 && p.opts.Mode == ModePerKey {
			keys[g.request.Key] = struct{}{}
		}
		for _, m := range g.members {
			s.Clients = s.Clients.Add(m.client.Stat())
			if !m.connected() {
				continue
			}
			s.Connections++
			if p.countsApart(g) {
				s.Interactive++
			}
		}
	}
	for m := range p.leaving {
		s.Clients = s.Clients.Add(m.client.Stat())
	}
	s.Keys = len(keys)
	return s
}

// breakerLocked is the state of the breaker, or while that is closed that of the
// only connection for all callers, whose own pace does.
func (p *Pool) breakerLocked() BreakerState {
	until := p.breaker.openUntil()
	open := !until.IsZero()
	if !open && p.opts.Mode == ModeShared && p.opts.MaxConnections == 1 {
		until, open = p.status.NextAttempt, p.status.State == StateReconnecting
	}
	switch {
	case !open:
		return BreakerClosed
	case time.Now().Before(until):
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// Status returns a snapshot.
func (p *Pool) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// refreshLocked derives the target's state from its connections and tells of a
// change.
func (p *Pool) refreshLocked() {
	now := p.status
	now.NextAttempt = time.Time{}
	best := p.bestLocked()
	if best != nil && best.status.Server != nil {
		now.Server = best.status.Server
	}
	if best != nil && best.status.LastError != nil {
		now.LastError = best.status.LastError
	}
	switch {
	case p.closed:
		now.State = StateClosed
	case p.draining:
		now.State = StateDraining
	case p.opts.Mode != ModeShared:
		now.State, now.NextAttempt = p.keyedStateLocked(best, now.Server != nil)
	case best != nil:
		now.State, now.NextAttempt = stateOf(best.status.State), best.status.NextAttempt
	}
	same := now.State == p.status.State && now.NextAttempt.Equal(p.status.NextAttempt)
	if same && (now.Server == p.status.Server || p.opts.Mode != ModeShared) { // each key's connection has its own, which is no news
		p.status.Server, p.status.LastError = now.Server, now.LastError
		return
	}
	if now.State != p.status.State {
		now.Since = time.Now()
	}
	p.status = now
	if p.opts.OnChange != nil {
		p.opts.OnChange(now)
	}
}

// keyedStateLocked is the state of a target whose connections come and go with
// their callers: one key's connection says little of the target, until several
// in a row have failed.
func (p *Pool) keyedStateLocked(best *member, known bool) (State, time.Time) {
	if best != nil && best.connected() {
		return stateOf(best.status.State), time.Time{}
	}
	until := p.breaker.openUntil()
	switch wait := time.Until(until); {
	case wait > 0:
		p.reopenLocked(wait)
		return StateReconnecting, until
	case !until.IsZero() || !known:
		return StateIdle, time.Time{} // the next call finds out
	}
	return StateReady, time.Time{}
}

// reopenLocked looks again when the breaker lets an attempt through.
func (p *Pool) reopenLocked(wait time.Duration) {
	if p.reopen != nil {
		p.reopen.Stop()
	}
	p.reopen = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed {
			p.refreshLocked()
		}
	})
}

// bestLocked returns the connection that speaks for the target. Exclusive ones
// do so only where there are no others.
func (p *Pool) bestLocked() *member {
	var best *member
	for _, g := range p.groups {
		if p.countsApart(g) {
			continue
		}
		for _, m := range g.members {
			if m.beside && !m.connected() {
				continue
			}
			if best == nil || m.rank() > best.rank() || m.rank() == best.rank() && m.status.Since.After(best.status.Since) {
				best = m
			}
		}
	}
	return best
}

func stateOf(s mcpclient.State) State {
	switch s {
	case mcpclient.StateIdle:
		return StateIdle
	case mcpclient.StateConnecting:
		return StateConnecting
	case mcpclient.StateReady:
		return StateReady
	case mcpclient.StateSuspect:
		return StateSuspect
	case mcpclient.StateReconnecting:
		return StateReconnecting
	case mcpclient.StateClosed:
	}
	return StateClosed
}

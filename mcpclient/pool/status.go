package pool

import (
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// State is where a target is in its life, seen over all of its connections.
type State int

const (
	// StateIdle: there is no connection, and none is due before the next call.
	StateIdle State = iota
	// StateConnecting: the first connection is being made.
	StateConnecting
	// StateReady: at least one connection carries calls.
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
	Keys           int    // keys that have a connection
	InFlight       int    // leases not released yet
	Queued         int    // callers waiting for a lease
	MaxConnections int    // as in Options, with its default
	MaxInFlight    int    // mcpclient.Unlimited = no limit
	MaxQueue       int    // mcpclient.Unlimited = no limit
	Waits          uint64 // callers so far that had to wait
	Rejected       uint64 // callers so far that were refused a place
	Evicted        uint64 // connections so far that ended because nobody used them
}

type counters struct{ waits, rejected, evicted uint64 }

// Stat returns a snapshot.
func (p *Pool) Stat() Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stat{
		InFlight: p.inFlight, Queued: p.queued,
		MaxConnections: p.opts.MaxConnections, MaxInFlight: p.opts.MaxInFlight, MaxQueue: p.opts.MaxQueue,
		Waits: p.counters.waits, Rejected: p.counters.rejected, Evicted: p.counters.evicted,
	}
	keys := make(map[Key]struct{}, len(p.groups))
	for _, g := range p.groups {
		if len(g.members) > 0 && p.opts.Mode == ModePerKey {
			keys[g.request.Key] = struct{}{}
		}
		for _, m := range g.members {
			if !m.connected() {
				continue
			}
			s.Connections++
			if p.countsApart(g) {
				s.Interactive++
			}
		}
	}
	s.Keys = len(keys)
	return s
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
	best := p.bestLocked()
	switch {
	case p.closed:
		now.State, now.NextAttempt = StateClosed, time.Time{}
	case p.draining:
		now.State, now.NextAttempt = StateDraining, time.Time{}
	case best == nil:
		now.State, now.NextAttempt = StateIdle, time.Time{}
		if until := p.breaker.openUntil(); !until.IsZero() {
			now.State, now.NextAttempt = StateReconnecting, until
		}
	default:
		now.State, now.NextAttempt = stateOf(best.status.State), best.status.NextAttempt
		if best.status.Server != nil {
			now.Server = best.status.Server
		}
		if best.status.LastError != nil {
			now.LastError = best.status.LastError
		}
	}
	if now.State == p.status.State && now.Server == p.status.Server && now.NextAttempt.Equal(p.status.NextAttempt) {
		p.status.LastError = now.LastError
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

package targets

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// restarts bounds how often child processes are started again that do the same.
// A start is a restart if it makes up for a process that failed: one that ended
// by itself or could not be connected to. A process that is started beside
// others, or after one that was closed, is none. A nil one permits any number.
type restarts struct {
	max    int
	window time.Duration

	mu   sync.Mutex  // protects the fields below, and those of each process
	at   []time.Time // of the restarts within window
	owed []time.Time // when connections were closed whose process had failed: each makes another one's first start a restart
}

// newRestarts returns nil for no limit.
func newRestarts(most int, window time.Duration) *restarts {
	if most <= 0 {
		return nil
	}
	return &restarts{max: most, window: window}
}

// newLimits returns what says which limit a connection is under. What has one
// for all restarts is the connections that all callers share, each key's, and
// those of interactive calls: whatever these have a server do, the others go on.
// The process of a single call is never started again.
func newLimits(c *config.Target) func(pool.Member) *process {
	if len(c.Command) == 0 {
		return func(pool.Member) *process { return nil }
	}
	limit := func() *restarts { return newRestarts(c.Restart.Max, c.Restart.Window) }
	shared, interactive := limit(), limit()
	return func(m pool.Member) *process {
		switch {
		case m.Exclusive && c.Pool.Isolation != PerCall:
			return interactive.process()
		case c.Pool.Isolation == Shared:
			return shared.process()
		}
		return limit().process()
	}
}

// process is one connection under the limit, which starts its process as often
// as it connects. A nil one is under no limit. restarts.mu guards its fields but
// the first.
type process struct {
	limit   *restarts
	started bool // at least once
	up      bool
	failed  bool // and was not started again
}

// process returns a further connection; nil without a limit.
func (r *restarts) process() *process {
	if r == nil {
		return nil
	}
	return &process{limit: r}
}

// start counts a start of the process, or refuses one that would be one restart
// too many.
func (p *process) start(now time.Time) error {
	if p == nil {
		return nil
	}
	r := p.limit
	r.mu.Lock()
	defer r.mu.Unlock()
	old := func(t time.Time) bool { return now.Sub(t) >= r.window }
	r.at, r.owed = slices.DeleteFunc(r.at, old), slices.DeleteFunc(r.owed, old)
	again := p.started || len(r.owed) > 0
	if again && len(r.at) >= r.max {
		wait := r.at[0].Add(r.window).Sub(now)
		return &mcpclient.Error{
			Kind: mcpclient.KindUnavailable, SafeToRetry: true, RetryAfter: wait,
			Message: fmt.Sprintf("the server's process was started again %d times within %v, as often as restart.max allows; the next start is due in %v, and what the process wrote to stderr says why it ends", r.max, r.window, max(wait.Round(time.Second), time.Second)),
		}
	}
	if again {
		r.at = append(r.at, now)
	}
	if again && !p.started {
		r.owed = r.owed[1:]
	}
	p.started, p.failed = true, false
	return nil
}

// attempted is told how a start went.
func (p *process) attempted(outcome error) {
	if p == nil || outcome == nil {
		return
	}
	if e, ok := errors.AsType[*mcpclient.Error](outcome); ok && (e.Kind == mcpclient.KindCanceled || e.Kind == mcpclient.KindClosed) {
		return // it was given up
	}
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.failed = true
}

// watch returns what has to be told of each state of the connection; then,
// which may be nil, is told after it.
func (p *process) watch(then func(mcpclient.Status)) func(mcpclient.Status) {
	if p == nil || then == nil { // nobody cares for a connection that is never used
		return then
	}
	return func(s mcpclient.Status) {
		p.observe(s.State)
		then(s)
	}
}

// observe is told of each state of the connection, in order.
func (p *process) observe(s mcpclient.State) {
	r := p.limit
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s {
	case mcpclient.StateReady, mcpclient.StateSuspect:
		p.up, p.failed = true, false
	case mcpclient.StateIdle, mcpclient.StateReconnecting:
		if p.up {
			p.up, p.failed = false, true
		}
	case mcpclient.StateClosed:
		if p.failed {
			r.owed = append(r.owed, time.Now())
		}
		p.failed = false
	case mcpclient.StateConnecting:
	}
}

package targets

import (
	"context"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// touchWait bounds the wait for a place in a full pool.
const touchWait = time.Second

// Attend stays with the target for a watch of one of its callers: while ctx
// lasts, a connection that belongs to that caller's key is used now and then, so
// that it is not taken for idle. It returns the target that took over from this
// one, or else why this one ended: a *NotFoundError once it was removed, or
// ErrClosed. Both are nil when ctx ended first.
func (t *Target) Attend(ctx context.Context, who Caller) (next *Target, err error) {
	over := t.feeds.ended()
	t.keep(ctx, who, over)
	select {
	case <-over:
	default:
		return nil, nil
	}
	if next := t.next.Load(); next != nil {
		return next, nil
	}
	return nil, t.feeds.why()
}

// keep touches the connection of a caller until ctx or the target ends.
func (t *Target) keep(ctx context.Context, who Caller, over <-chan struct{}) {
	var due <-chan time.Time
	key, err := keyOf(t.Isolation(), who)
	if every := t.touchEvery(); every > 0 && err == nil {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-due:
			t.touch(ctx, key)
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// touchEvery is how often a watched connection has to be used so that it is not
// taken for idle; 0 = it need not be. A lease for good would take the place of a
// call.
func (t *Target) touchEvery() time.Duration {
	c := &t.config.Pool
	if c.Isolation != PerKey && c.Isolation != PerCaller {
		return 0 // a shared connection stays, and that of one call is leased
	}
	return c.IdleTimeout / 3
}

// touch uses the connection of a key.
func (t *Target) touch(ctx context.Context, key pool.Key) {
	ctx, cancel := context.WithTimeout(ctx, touchWait)
	defer cancel()
	if lease, err := t.pool.Acquire(ctx, pool.Request{Key: key}); err == nil {
		lease.Release()
	}
}

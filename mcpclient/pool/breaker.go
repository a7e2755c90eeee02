package pool

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// breakAfter is how many connection attempts in a row must fail before further
// ones are refused: one may be the fault of a single caller's connection.
const breakAfter = 3

// breaker keeps the connections of one target from each finding out for itself
// that the server is down. Open, it refuses attempts until a time, then lets one
// through; that one's success closes it.
type breaker struct {
	interval time.Duration

	mu       sync.Mutex // protects the fields below
	pace     *backoff.ExponentialBackOff
	failures int       // attempts in a row that failed
	until    time.Time // attempts are refused before this
	trying   bool      // the one attempt of a breaker that was open is under way
	last     mcpclient.Error
}

func newBreaker(o mcpclient.ReconnectOptions) *breaker {
	b := &breaker{interval: cmp.Or(o.Interval, 5*time.Second), pace: backoff.NewExponentialBackOff()}
	b.pace.InitialInterval = b.interval
	b.pace.MaxInterval = max(cmp.Or(o.MaxInterval, time.Minute), b.interval)
	b.pace.Multiplier = cmp.Or(o.Multiplier, 2)
	b.pace.RandomizationFactor = 0.1
	b.pace.Reset()
	return b
}

// enter admits a connection attempt, or says when to come back. done is told
// how it went.
func (b *breaker) enter(context.Context) (done func(error), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakAfter {
		return func(err error) { b.done(err, false) }, nil
	}
	wait := time.Until(b.until)
	if wait <= 0 && !b.trying {
		b.trying = true
		return func(err error) { b.done(err, true) }, nil
	}
	refusal := b.last
	refusal.Kind, refusal.SafeToRetry, refusal.Sent = mcpclient.KindUnavailable, true, false
	refusal.RetryAfter = max(wait, b.interval/10)
	return nil, &refusal
}

func (b *breaker) done(err error, trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial {
		b.trying = false
	}
	e, _ := errors.AsType[*mcpclient.Error](err)
	switch {
	case err == nil, e != nil && serves(e.Kind):
		b.failures, b.until = 0, time.Time{}
		b.pace.Reset()
	case e != nil && down(e.Kind):
		b.last = *e
		b.failures++
		// attempts that were under way when it opened are of the same outage
		if trial || b.failures == breakAfter {
			b.until = time.Now().Add(b.pace.NextBackOff())
		}
	}
}

// down reports whether a failed attempt means that others would fail too.
func down(k mcpclient.Kind) bool {
	switch k {
	case mcpclient.KindUnavailable, mcpclient.KindLost, mcpclient.KindTimeout, mcpclient.KindHTTP, mcpclient.KindProtocol, mcpclient.KindRPC, mcpclient.KindRateLimited:
		return true
	default:
		return false
	}
}

// serves reports whether a failed attempt means that the server is well: it
// refused a credential or a version. All other kinds, such as a connection that
// was given up, say nothing.
func serves(k mcpclient.Kind) bool {
	return k == mcpclient.KindUnauthorized || k == mcpclient.KindVersion
}

// openUntil is when an open breaker lets the next attempt through, which may
// have passed; zero when it is closed.
func (b *breaker) openUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

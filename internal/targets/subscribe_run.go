package targets

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

const (
	// linger is for how long what was replaced stays open: what the server sent
	// on it before the acknowledgement of the new one may still be on its way.
	linger = time.Second
	// growAtOnce is how often what is watched may grow within linger without a
	// pause. Beyond that growEvery is the pause, in which more comes together; so
	// what is open at once and the requests are bounded.
	growAtOnce = 4
	growEvery  = linger / 16
	// shortLived is for how long a subscription has to stay open for the pauses
	// between attempts to begin anew.
	shortLived = 10 * time.Second
)

// run keeps open what the watchers of a feed need, until there are none.
func (f *feed) run() {
	defer f.shut()
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval, pace.Multiplier = 250*time.Millisecond, 30*time.Second, 2
	pace.Reset()
	for f.ctx.Err() == nil {
		f.closeLingering()
		batch, filter := f.due(pace)
		if len(batch) == 0 || time.Now().Before(f.growsAt()) {
			f.rest()
			continue
		}
		f.open(batch, filter, pace)
	}
}

// shut closes what is open.
func (f *feed) shut() {
	f.of.mu.Lock()
	up := f.up
	f.up = nil
	f.of.mu.Unlock()
	if up != nil {
		up.sub.Close()
	}
	for _, u := range f.lingering {
		u.sub.Close()
	}
	if f.lease != nil {
		f.lease.Release()
	}
}

// due returns the subscriptions that the server has to be asked for now, if
// any, and all that is to be open then.
func (f *feed) due(pace *backoff.ExponentialBackOff) ([]*Subscription, mcpclient.Filter) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.up != nil && f.up.hasEnded() {
		if time.Since(f.up.began) >= shortLived {
			pace.Reset()
		}
		f.retryAt = time.Now().Add(pace.NextBackOff())
		f.up = nil
		f.waiting = f.waiting[:0]
		for s := range f.watchers {
			f.waiting = append(f.waiting, s)
		}
	}
	f.waiting = slices.DeleteFunc(f.waiting, f.isGoneLocked)
	if len(f.waiting) == 0 {
		f.apart = false
		return nil, mcpclient.Filter{}
	}
	// who was promised changes can wait for a server that is away; a new one is told
	isNew := func(s *Subscription) bool { return !s.told() }
	if time.Now().Before(f.retryAt) && !slices.ContainsFunc(f.waiting, isNew) {
		return nil, mcpclient.Filter{}
	}
	if !f.apart {
		return slices.Clone(f.waiting), f.unionLocked(nil)
	}
	first := f.waiting[max(0, slices.IndexFunc(f.waiting, isNew))].wanted
	batch, others := []*Subscription(nil), map[*Subscription]bool{}
	for _, s := range f.waiting {
		if s.wanted.same(first) {
			batch = append(batch, s)
		} else {
			others[s] = true
		}
	}
	return batch, f.unionLocked(others)
}

// unionLocked is what all watchers want, or all but some.
func (f *feed) unionLocked(without map[*Subscription]bool) mcpclient.Filter {
	var filter mcpclient.Filter
	for s := range f.watchers {
		if !without[s] {
			filter.ToolsList = filter.ToolsList || s.wanted.Tools
			filter.PromptsList = filter.PromptsList || s.wanted.Prompts
			filter.ResourcesList = filter.ResourcesList || s.wanted.Resources
		}
	}
	for uri, of := range f.byURI {
		if len(without) == 0 || wantedBy(of, without) {
			filter.Resources = append(filter.Resources, uri.Value())
		}
	}
	slices.Sort(filter.Resources)
	return filter
}

func wantedBy(of map[*Subscription]struct{}, without map[*Subscription]bool) bool {
	for s := range of {
		if !without[s] {
			return true
		}
	}
	return false
}

// rest waits until there may be something to do.
func (f *feed) rest() {
	f.of.mu.Lock()
	var ended <-chan struct{}
	if f.up != nil {
		ended = f.up.sub.Done()
	}
	pausing := len(f.waiting) > 0
	f.of.mu.Unlock()
	wake := f.wake
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if len(f.lingering) > 0 {
		sooner(f.lingering[0].until)
	}
	if pausing {
		now := time.Now()
		if grows := f.growsAt(); grows.After(now) {
			wake, ended = nil, nil // nothing is opened before
			sooner(grows)
		} else if f.retryAt.After(now) {
			sooner(f.retryAt)
		} else {
			sooner(now)
		}
	}
	touchEvery := f.target.touchEvery()
	if touchEvery > 0 {
		sooner(f.touched.Add(touchEvery))
	}
	var timeUp <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		timeUp = timer.C
	}
	select {
	case <-wake:
	case <-ended:
	case <-f.ctx.Done():
	case <-timeUp:
	}
	if touchEvery > 0 && time.Since(f.touched) >= touchEvery {
		f.touched = time.Now()
		f.target.touch(f.ctx, f.key.Key)
	}
}

// growsAt is when the next subscription may be opened; the zero time when
// little has been replaced lately.
func (f *feed) growsAt() time.Time {
	if len(f.lingering) < growAtOnce {
		return time.Time{}
	}
	return f.lingering[len(f.lingering)-1].until.Add(growEvery - linger)
}

func (f *feed) closeLingering() {
	for len(f.lingering) > 0 && !time.Now().Before(f.lingering[0].until) {
		f.lingering[0].sub.Close()
		f.lingering = slices.Delete(f.lingering, 0, 1)
	}
}

// open asks the server for all in filter, which is more than before because of
// batch, and leaves what was open until the new one is acknowledged.
func (f *feed) open(batch []*Subscription, filter mcpclient.Filter, pace *backoff.ExponentialBackOff) {
	u := &upstream{filter: filter, uris: handlesOf(filter.Resources), began: time.Now()}
	sub, err := f.listen(u)
	if err != nil {
		f.failed(batch, err, pace)
		return
	}
	u.sub = sub
	switch {
	case sub.Open(), f.acknowledged(u):
		f.opened(batch, u)
	case u.hasEnded():
		f.failed(batch, cmp.Or(sub.Err(), errEnded()), pace)
	default:
		f.unacknowledged(batch, u)
	}
}

// opened goes over to u.
func (f *feed) opened(batch []*Subscription, u *upstream) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	u.agreedLocked()
	gap := f.installLocked(u)
	for _, s := range f.waiting {
		if u.covers(s.wanted) { // it came meanwhile
			batch = append(batch, s)
		}
	}
	waited := f.answeredLocked(batch)
	for s := range f.watchers {
		if told := s.told(); told || waited[s] {
			f.agreeLocked(s, gap || waited[s])
		}
	}
}

// listen opens a subscription at the server.
func (f *feed) listen(u *upstream) (*mcpclient.Subscription, error) {
	lease := f.lease
	if lease == nil {
		var err error
		if lease, err = f.target.pool.Acquire(f.ctx, pool.Request{Key: f.key.Key}); err != nil {
			return nil, err
		}
	}
	sub, err := lease.Client().Listen(f.ctx, u.filter, func(_ context.Context, n mcpclient.Notification) { f.deliver(u, n) })
	f.lease = nil
	if f.key.alone != 0 && err == nil {
		f.lease = lease
		return sub, nil
	}
	lease.Release()
	return sub, err
}

// installLocked makes u what is open. gap: changes may have been missed since
// the last time that something was.
func (f *feed) installLocked(u *upstream) (gap bool) {
	old := f.up
	if old == u {
		return false // it was told before
	}
	f.up = u
	if old == nil {
		return true
	}
	gap = old.hasEnded() || !old.sub.Open()
	old.until = time.Now().Add(linger)
	f.lingering = append(f.lingering, old)
	return gap
}

// answeredLocked takes subscriptions off the list of those that wait.
func (f *feed) answeredLocked(batch []*Subscription) map[*Subscription]bool {
	done := make(map[*Subscription]bool, len(batch))
	for _, s := range batch {
		done[s] = true
	}
	f.waiting = slices.DeleteFunc(f.waiting, func(s *Subscription) bool { return done[s] })
	f.retryAt = time.Time{}
	return done
}

// acknowledged waits for a late acknowledgement. Watchers that have nothing
// else get what the server sends all the same.
func (f *feed) acknowledged(u *upstream) bool {
	f.of.mu.Lock()
	if f.up == nil || f.up.hasEnded() {
		f.up = u
		f.gapLocked()
	}
	f.of.mu.Unlock()
	timer := time.NewTimer(unacknowledged)
	defer timer.Stop()
	for !u.sub.Open() {
		select {
		case <-f.wake:
		case <-u.sub.Done():
			return false
		case <-f.ctx.Done():
			return false
		case <-timer.C:
			return u.sub.Open()
		}
	}
	return true
}

// unacknowledged goes on without an acknowledgement.
func (f *feed) unacknowledged(batch []*Subscription, u *upstream) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.up != u {
		u.sub.Close()
	}
	if f.ctx.Err() != nil {
		return
	}
	f.answeredLocked(batch)
	for _, s := range batch {
		if !s.told() {
			f.endLocked(s, errUnacknowledged())
		}
	}
}

// failed is told that nothing could be opened.
func (f *feed) failed(batch []*Subscription, err error, pace *backoff.ExponentialBackOff) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.ctx.Err() != nil {
		return // the last watcher has left, or the target ends
	}
	err, passing := refusal(err)
	different := func(s *Subscription) bool { return !s.wanted.same(batch[0].wanted) }
	if e, ok := errors.AsType[*mcpclient.Error](err); ok && e.Kind == mcpclient.KindRPC && !f.apart && slices.ContainsFunc(batch, different) {
		f.apart = true // it may be about one of them
		return
	}
	wait := pace.NextBackOff()
	if e, ok := errors.AsType[*mcpclient.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	f.retryAt = time.Now().Add(wait)
	for _, s := range batch {
		if !passing || !s.told() {
			f.endLocked(s, err)
		}
	}
}

// hasEnded reports whether a subscription is over; the client keeps it through
// losses of its connection.
func (u *upstream) hasEnded() bool {
	select {
	case <-u.sub.Done():
		return true
	default:
		return false
	}
}

package targets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// Interest is what a subscription tells of. The zero value is nothing.
type Interest struct {
	Tools, Prompts, Resources bool     // the list changed
	URIs                      []string // the resource changed
}

func (i Interest) isEmpty() bool {
	return !i.Tools && !i.Prompts && !i.Resources && len(i.URIs) == 0
}

// same reports whether two interests ask for the same, in the same order.
func (i Interest) same(o Interest) bool {
	return i.Tools == o.Tools && i.Prompts == o.Prompts && i.Resources == o.Resources && slices.Equal(i.URIs, o.URIs)
}

// within reports whether o has everything that i has.
func (i Interest) within(o Interest) bool {
	if i.Tools && !o.Tools || i.Prompts && !o.Prompts || i.Resources && !o.Resources || len(i.URIs) > len(o.URIs) {
		return false
	}
	if slices.Equal(i.URIs, o.URIs) {
		return true
	}
	has := setOf(o.URIs)
	return !slices.ContainsFunc(i.URIs, func(uri string) bool { return !has[uri] })
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// News is what happened since the last look: each thing once, however often
// it happened.
type News struct {
	// Resync: changes may have been missed, so that everything is to be looked at.
	Resync                    bool
	Tools, Prompts, Resources bool     // the list changed
	URIs                      []string // the resource changed, in the order in which they did first
}

// MaxURIBytes bounds the URI of a resource that is watched, and of one that
// watchers are told of.
const MaxURIBytes = 8 << 10

const (
	// maxPendingURIs is how many resources a subscription remembers for a reader
	// that is slow; past that it is told to look at everything.
	maxPendingURIs = 1000
	// maxPendingBytes bounds the same for URIs that the server made up.
	maxPendingBytes = 64 << 10
	// indexFrom is how many pending URIs are searched one by one.
	indexFrom = 16
)

// Subscription tells one watcher of changes at a target. What it holds is
// bounded by what it watches, and a slow reader delays nobody. All methods may
// be called from many goroutines at once.
type Subscription struct {
	who    Caller
	wanted Interest
	uris   []unique.Handle[string] // wanted.URIs
	wake   chan struct{}           // holds a token when there may be something to take
	feed   atomic.Pointer[feed]
	left   atomic.Bool
	first  chan struct{} // closed once the server has agreed, or at the end
	heard  uint64        // number of the last update that it was told of; guarded by feeds.mu

	mu       sync.Mutex // protects the fields below; taken after feeds.mu
	answered bool       // first is closed
	agreed   Interest
	pending  News                               // without URIs
	marks    []unique.Handle[string]            // its URIs
	index    map[unique.Handle[string]]struct{} // of marks, when there are many
	foreign  int                                // bytes of those that were not asked for as they are
	err      error
}

// Subscribe tells of changes at the target, for a caller that shares its
// connections with others as in Acquire. It returns once the server has agreed
// to any of the interest; changes from then on are told. Watchers with the same
// isolation key share what is open at the server; it ends with the last of them.
// No URI of the interest may be longer than MaxURIBytes.
//
// A subscription outlives connections: after a gap it has News.Resync. One of
// a target that is replaced goes on at the new one; one of a target that is
// removed ends with a *NotFoundError.
//
// ctx bounds the wait alone. Errors are ctx's, those of Acquire, and
// *mcpclient.Error values: of KindUnsupported if the server agrees to nothing of
// the interest, of KindRPC if it rejected it. The subscription must be closed.
func (t *Target) Subscribe(ctx context.Context, who Caller, interest Interest) (*Subscription, error) {
	interest.URIs = distinct(interest.URIs)
	if interest.isEmpty() {
		return nil, &mcpclient.Error{Kind: mcpclient.KindInvalid, SafeToRetry: true, Message: "the subscription asks for nothing; name a list or a resource"}
	}
	if slices.ContainsFunc(interest.URIs, isLong) {
		return nil, &mcpclient.Error{Kind: mcpclient.KindInvalid, SafeToRetry: true, Message: fmt.Sprintf("a URI of the subscription has more than %d bytes", MaxURIBytes)}
	}
	s := &Subscription{who: who, wanted: interest, uris: handlesOf(interest.URIs), wake: make(chan struct{}, 1), first: make(chan struct{})}
	if err := t.attach(s); err != nil {
		return nil, err
	}
	select {
	case <-s.first:
	case <-ctx.Done():
		s.Close()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// distinct returns a copy without repetitions.
func distinct(list []string) []string {
	out := make([]string, 0, len(list))
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return slices.Clip(out)
}

// Agreed returns the part of the interest that the server tells of. It does not
// change. The caller must not change it.
func (s *Subscription) Agreed() Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agreed
}

// Changed returns a channel that receives when Take may have something. It is
// never closed.
func (s *Subscription) Changed() <-chan struct{} { return s.wake }

// Take returns what has happened since the last call; the zero value if
// nothing has. The error is why the subscription has ended; it comes after the
// last changes. An error of KindLost that is safe to retry says that the server
// agrees to less than it did: subscribe again.
func (s *Subscription) Take() (News, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.pending
	for _, uri := range s.marks {
		taken.URIs = append(taken.URIs, uri.Value())
	}
	if taken.isEmpty() {
		return taken, s.err
	}
	s.pending, s.marks, s.index, s.foreign = News{}, nil, nil, 0
	if s.err != nil {
		s.wakeUp()
	}
	return taken, nil
}

func (n *News) isEmpty() bool {
	return !n.Resync && !n.Tools && !n.Prompts && !n.Resources && len(n.URIs) == 0
}

// Close ends the subscription. Calling it again does nothing.
func (s *Subscription) Close() {
	s.left.Store(true)
	for {
		f := s.feed.Load()
		if f == nil {
			return
		}
		f.leave(s)
		if s.feed.Load() == f { // it was not handed over meanwhile
			return
		}
	}
}

// answer notes what the server agreed to, at first. The feeds' lock is held.
func (s *Subscription) answer(agreed Interest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agreed = agreed
	s.settleLocked()
}

// fail ends the subscription; the first reason counts.
func (s *Subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.settleLocked()
	s.wakeUp()
}

func (s *Subscription) settleLocked() {
	if !s.answered {
		s.answered = true
		close(s.first)
	}
}

// told reports whether the server has agreed.
func (s *Subscription) told() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// resync notes that anything may have changed.
func (s *Subscription) resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resyncLocked()
}

func (s *Subscription) resyncLocked() {
	if s.pending.Resync {
		return
	}
	s.pending, s.marks, s.index, s.foreign = News{Resync: true}, nil, nil, 0 // the rest is part of it
	s.wakeUp()
}

// mark notes the change of a list.
func (s *Subscription) mark(list func(*News) *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if flag := list(&s.pending); !s.pending.Resync && !*flag {
		*flag = true
		s.wakeUp()
	}
}

// markURI notes the change of a resource; own: it was asked for by this URI.
// That costs the same however long the URI is.
func (s *Subscription) markURI(uri unique.Handle[string], own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending.Resync || s.isMarkedLocked(uri) {
		return
	}
	if !own {
		s.foreign += len(uri.Value())
	}
	if len(s.marks) >= maxPendingURIs || s.foreign > maxPendingBytes {
		s.resyncLocked()
		return
	}
	s.marks = append(s.marks, uri)
	switch {
	case s.index != nil:
		s.index[uri] = struct{}{}
	case len(s.marks) >= indexFrom:
		s.index = make(map[unique.Handle[string]]struct{}, 2*indexFrom)
		for _, known := range s.marks {
			s.index[known] = struct{}{}
		}
	}
	s.wakeUp()
}

func (s *Subscription) isMarkedLocked(uri unique.Handle[string]) bool {
	if s.index != nil {
		_, ok := s.index[uri]
		return ok
	}
	return slices.Contains(s.marks, uri)
}

func (s *Subscription) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// unacknowledged bounds the wait for a server that takes a subscription and
// does not acknowledge it, beyond the time that the client waits.
const unacknowledged = 25 * time.Second

func errUnacknowledged() error {
	return &mcpclient.Error{
		Kind: mcpclient.KindUnavailable, SafeToRetry: true,
		Message: "the server has not acknowledged the subscription within 30s; try again, and report it to the server's maintainer",
	}
}

func errEnded() error {
	return &mcpclient.Error{
		Kind: mcpclient.KindUnavailable, SafeToRetry: true,
		Message: "the server ended the subscription before it acknowledged it; try again, and report it to the server's maintainer",
	}
}

// errNothing says that the server agreed to nothing of an interest.
func errNothing(of Interest) error {
	what := "a resource that is asked for"
	switch {
	case len(of.URIs) > 0 && of.Resources:
		what = "its list of resources or a resource that is asked for"
	case of.Tools:
		what = "its list of tools"
	case of.Prompts:
		what = "its list of prompts"
	case of.Resources:
		what = "its list of resources"
	}
	return &mcpclient.Error{
		Kind: mcpclient.KindUnsupported, SafeToRetry: true, Message: "the server does not tell when " + what + " changes",
	}
}

func errLess() error {
	return &mcpclient.Error{
		Kind: mcpclient.KindLost, SafeToRetry: true,
		Message: "the connection to the server was replaced, and it tells of less than before; watch again",
	}
}

// refusal is an error of Listen as watchers get it. passing: the same attempt
// may succeed later.
func refusal(err error) (_ error, passing bool) {
	e, ok := errors.AsType[*mcpclient.Error](err)
	if !ok {
		return &mcpclient.Error{Kind: mcpclient.KindUnavailable, SafeToRetry: true, Message: "the subscription could not be opened; try again", Err: err}, true
	}
	switch e.Kind {
	case mcpclient.KindUnavailable, mcpclient.KindLost, mcpclient.KindClosed, mcpclient.KindTimeout,
		mcpclient.KindRateLimited, mcpclient.KindOverloaded, mcpclient.KindTooLarge, mcpclient.KindCanceled:
		return err, e.RetryAfter != mcpclient.NeverAgain
	case mcpclient.KindHTTP:
		switch e.Status {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
			return &mcpclient.Error{
				Kind: mcpclient.KindUnsupported, Method: e.Method, Status: e.Status, Sent: e.Sent, Err: err,
				Message: fmt.Sprintf("the server does not tell of changes: it does not know the method (HTTP %d)", e.Status),
			}, false
		}
		return err, e.Status/100 == 5 || e.Status == http.StatusRequestTimeout
	default:
		return err, false
	}
}

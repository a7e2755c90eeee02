package targets

import (
	"context"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// feeds are what a target has open at its server for watchers. The zero value
// is ready.
type feeds struct {
	work sync.WaitGroup // one goroutine a feed

	mu    sync.Mutex // protects the fields below and those of feeds; never held during I/O
	byKey map[feedKey]*feed
	calls uint64 // feeds that are shared with nobody
	over  bool
	err   error         // with over: the end of later subscriptions
	gone  chan struct{} // closed by end; nil = nobody has asked for it
}

// feedKey says who shares a feed.
type feedKey struct {
	pool.Key

	alone uint64 // not 0 = nobody
}

// feed is the subscriptions of one key, and what is open for them.
type feed struct {
	of     *feeds
	target *Target
	key    feedKey
	ctx    context.Context //nolint:containedctx // ends with the last watcher
	cancel context.CancelFunc
	wake   chan struct{} // holds a token when run has to look

	// guarded by feeds.mu
	watchers map[*Subscription]struct{}
	byURI    map[unique.Handle[string]]map[*Subscription]struct{}
	updates  uint64          // of resources, so far
	waiting  []*Subscription // they need an answer of the server that is yet to come; some may have left
	apart    bool            // the server rejected a union: it is asked for one interest after the other
	up       *upstream       // what is open; nil = nothing

	// of run alone
	lingering []*upstream
	lease     *pool.Lease // where a connection belongs to one watcher
	retryAt   time.Time
	touched   time.Time
}

// upstream is one subscription at the server.
type upstream struct {
	sub    *mcpclient.Subscription
	filter mcpclient.Filter
	uris   []unique.Handle[string] // filter.Resources, which are sorted
	began  time.Time
	until  time.Time // of those that linger

	// guarded by feeds.mu
	answered bool // the server has said what it agrees to
	agreed   mcpclient.Filter
	agrees   map[string]bool // agreed.Resources
}

// attach adds a subscription to the feed of its key, of the target that took
// over if there is one. An error ends the subscription.
func (t *Target) attach(s *Subscription) error {
	for {
		key, err := keyOf(t.Isolation(), s.who)
		if err != nil {
			return err
		}
		over, err := t.feeds.add(t, key, s)
		if !over {
			return nil
		}
		if next := t.next.Load(); next != nil {
			t = next
			continue
		}
		return err
	}
}

// add adds a subscription. When all is over it does not, and says why unless
// another target took over.
func (fs *feeds) add(t *Target, key pool.Key, s *Subscription) (over bool, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.over {
		return true, fs.err
	}
	k := feedKey{Key: key}
	if t.Isolation() == PerCall {
		fs.calls++
		k.alone = fs.calls
	}
	f := fs.byKey[k]
	if f == nil {
		f = fs.newFeedLocked(t, k)
	}
	f.watchers[s] = struct{}{}
	s.heard = 0 // another feed counts on its own
	for _, uri := range s.uris {
		if f.byURI[uri] == nil {
			f.byURI[uri] = map[*Subscription]struct{}{}
		}
		f.byURI[uri][s] = struct{}{}
	}
	s.feed.Store(f)
	switch {
	case s.left.Load(): // Close may have looked at the feed before
		f.dropLocked(s)
	case f.up != nil && f.up.covers(s.wanted):
		f.agreeLocked(s, true)
	default:
		f.waiting = append(f.waiting, s)
		f.wakeUp()
	}
	return false, nil
}

func (fs *feeds) newFeedLocked(t *Target, k feedKey) *feed {
	f := &feed{
		of: fs, target: t, key: k, wake: make(chan struct{}, 1),
		watchers: map[*Subscription]struct{}{}, byURI: map[unique.Handle[string]]map[*Subscription]struct{}{},
		touched: time.Now(),
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if fs.byKey == nil {
		fs.byKey = map[feedKey]*feed{}
	}
	fs.byKey[k] = f
	fs.work.Go(f.run)
	return f
}

// end ends all subscriptions with err, or hands them over to the target that
// took over. Later ones fare the same.
func (fs *feeds) end(err error, next *Target) {
	fs.mu.Lock()
	if fs.over {
		fs.mu.Unlock()
		return
	}
	fs.over, fs.err = true, err
	if fs.gone != nil {
		close(fs.gone)
	}
	var all []*Subscription
	for _, f := range fs.byKey {
		for s := range f.watchers {
			all = append(all, s)
		}
		f.cancel()
		f.watchers, f.byURI, f.waiting = nil, nil, nil
	}
	fs.byKey = nil
	fs.mu.Unlock()
	for _, s := range all {
		end := err
		if next != nil {
			end = next.attach(s)
		}
		if end != nil {
			s.fail(end)
		}
	}
}

// ended returns a channel that is closed by end.
func (fs *feeds) ended() <-chan struct{} {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.gone == nil {
		fs.gone = make(chan struct{})
		if fs.over {
			close(fs.gone)
		}
	}
	return fs.gone
}

// why is the reason that end was given.
func (fs *feeds) why() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.err
}

// leave removes a subscription.
func (f *feed) leave(s *Subscription) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.dropLocked(s)
}

// endLocked removes a subscription and says why.
func (f *feed) endLocked(s *Subscription, err error) {
	if _, ok := f.watchers[s]; ok {
		f.dropLocked(s)
		s.fail(err)
	}
}

// dropLocked removes a subscription; the last one ends the feed.
func (f *feed) dropLocked(s *Subscription) {
	if _, ok := f.watchers[s]; !ok {
		return
	}
	delete(f.watchers, s)
	for _, uri := range s.uris {
		if of := f.byURI[uri]; len(of) > 1 {
			delete(of, s)
		} else {
			delete(f.byURI, uri)
		}
	}
	if len(f.waiting) > 2*len(f.watchers) { // seldom, since each time costs as much as there are
		f.waiting = slices.DeleteFunc(f.waiting, f.isGoneLocked)
	}
	if len(f.watchers) == 0 {
		delete(f.of.byKey, f.key)
		f.cancel()
	}
}

func (f *feed) isGoneLocked(s *Subscription) bool {
	_, here := f.watchers[s]
	return !here
}

func (f *feed) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default: // run will look anyway
	}
}

// answerHolds is for how long the server is not asked again for a resource that
// it did not agree to.
const answerHolds = 5 * time.Second

// covers reports whether what is open answers an interest.
func (u *upstream) covers(i Interest) bool {
	if !u.answered || i.Tools && !u.filter.ToolsList || i.Prompts && !u.filter.PromptsList || i.Resources && !u.filter.ResourcesList {
		return false
	}
	fresh := time.Since(u.began) < answerHolds
	for _, uri := range i.URIs {
		if u.agrees[uri] {
			continue
		}
		if _, asked := slices.BinarySearch(u.filter.Resources, uri); !asked || !fresh {
			return false
		}
	}
	return true
}

// agreedLocked notes what the server agrees to by now.
func (u *upstream) agreedLocked() {
	u.answered, u.agreed = true, u.sub.Acknowledged()
	u.agrees = setOf(u.agreed.Resources)
}

// part is what the server agrees to of an interest.
func (u *upstream) part(i Interest) Interest {
	agreed := Interest{Tools: i.Tools && u.agreed.ToolsList, Prompts: i.Prompts && u.agreed.PromptsList, Resources: i.Resources && u.agreed.ResourcesList}
	if !slices.ContainsFunc(i.URIs, func(uri string) bool { return !u.agrees[uri] }) {
		agreed.URIs = i.URIs
		return agreed
	}
	for _, uri := range i.URIs {
		if u.agrees[uri] {
			agreed.URIs = append(agreed.URIs, uri)
		}
	}
	return agreed
}

// agreeLocked compares what is open with a subscription: a new one is answered,
// and one that the server has agreed to more before ends. Without a gap nothing
// was missed.
func (f *feed) agreeLocked(s *Subscription, gap bool) {
	agreed := f.up.part(s.wanted)
	switch told := s.told(); {
	case agreed.isEmpty():
		f.endLocked(s, errNothing(s.wanted))
	case !told:
		s.answer(agreed)
	case !s.Agreed().within(agreed):
		f.endLocked(s, errLess())
	case gap:
		s.resync()
	}
}

// gapLocked tells those that the server has agreed to of a gap.
func (f *feed) gapLocked() {
	for s := range f.watchers {
		if s.told() {
			s.resync()
		}
	}
}

// deliver takes what the server tells. It never blocks.
func (f *feed) deliver(u *upstream, n mcpclient.Notification) {
	uri := ""
	if n.Method == mcpclient.MethodResourceUpdated {
		if uri = uriOf(n.Params); uri == "" {
			return
		}
	}
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	switch n.Method {
	case mcpclient.MethodToolsChanged:
		f.markLocked(func(i *Interest) bool { return i.Tools }, func(c *News) *bool { return &c.Tools })
	case mcpclient.MethodPromptsChanged:
		f.markLocked(func(i *Interest) bool { return i.Prompts }, func(c *News) *bool { return &c.Prompts })
	case mcpclient.MethodResourcesChanged:
		f.markLocked(func(i *Interest) bool { return i.Resources }, func(c *News) *bool { return &c.Resources })
	case mcpclient.MethodResourceUpdated:
		f.updatedLocked(u, uri)
	case mcpclient.MethodResync:
		f.resumedLocked(u)
	}
}

func (f *feed) markLocked(wants func(*Interest) bool, list func(*News) *bool) {
	for s := range f.watchers {
		if wants(&s.wanted) {
			s.mark(list)
		}
	}
}

// resumedLocked is told that the client opened u again after a gap.
func (f *feed) resumedLocked(u *upstream) {
	f.wakeUp() // the acknowledgement that run waits for may be there
	if u != f.up || !u.sub.Open() {
		f.gapLocked()
		return
	}
	u.agreedLocked()
	for s := range f.watchers {
		if s.told() {
			f.agreeLocked(s, true)
		}
	}
}

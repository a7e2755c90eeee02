package server

import (
	"context"
	"sync"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// stillFresh is the age of an answer up to which another watcher is no reason to
// ask again.
const stillFresh = time.Second

// taskFeeds are the tasks that are watched. The zero value is ready.
type taskFeeds struct {
	mu    sync.Mutex // protects the fields below, and those of feeds and watchers; never held during I/O
	byKey map[taskKey]*taskFeed
	calls uint64 // feeds that are shared with nobody
}

// taskKey says who shares a feed: watchers with the same identity, affinity and
// metadata, since the server may answer others in another way.
type taskKey struct {
	target *targets.Target
	who    targets.Caller
	id     string
	meta   string
	alone  uint64 // not 0 = nobody
}

// taskFeed asks for one task, for all who watch it, until the task has ended or
// the last of them has left.
type taskFeed struct {
	*caller

	of      *taskFeeds
	key     taskKey
	options *mcpclient.CallOptions
	running *work
	poll    chan struct{} // holds a token when something may have changed
	known   chan struct{} // closed once the task is known and goes on

	// of follow alone
	about scope
	since time.Time // when the task was first heard of

	// guarded by of.mu
	watchers map[*taskWatcher]struct{}
	state    *taskState // the newest; nil = none yet
	asked    time.Time  // when the server was last asked
	era      mcpclient.Era
	over     bool
	failed   *failure // with over: why; nil = the task has ended
}

// taskWatcher is one watch of a task. The newest state waits for the caller,
// however slowly it reads.
type taskWatcher struct {
	feed    *taskFeed
	woken   chan struct{} // holds a token when there is something to take
	pending *taskState    // not taken yet
}

// taskState is a task as its server told it. It is not changed.
type taskState struct {
	raw  []byte
	task *pb.Task
}

// in is the state with its JSON documents in a format.
func (s *taskState) in(format pb.JsonFormat) (*pb.Task, error) {
	if format == pb.JsonFormat_JSON_FORMAT_UNSPECIFIED {
		return s.task, nil
	}
	return convert.Task(s.raw, format)
}

// watch begins to watch a task; one that is watched already is told as it was
// last seen. ctx lends its values to the requests of a new feed. The watcher
// must leave.
func (fs *taskFeeds) watch(ctx context.Context, c *caller, key taskKey, about scope, options *mcpclient.CallOptions) *taskWatcher {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if key.target.Isolation() == targets.PerCall {
		fs.calls++
		key.alone = fs.calls
	}
	f := fs.byKey[key]
	if f == nil {
		f = &taskFeed{
			caller: c, of: fs, key: key, about: about, options: options,
			poll: make(chan struct{}, 1), known: make(chan struct{}), watchers: map[*taskWatcher]struct{}{},
		}
		if fs.byKey == nil {
			fs.byKey = map[taskKey]*taskFeed{}
		}
		fs.byKey[key] = f
		f.running = c.beside(context.WithoutCancel(ctx), f.run)
	}
	w := &taskWatcher{feed: f, woken: make(chan struct{}, 1), pending: f.state}
	f.watchers[w] = struct{}{}
	if f.state != nil && time.Since(f.asked) > stillFresh {
		notify(f.poll)
	}
	return w
}

// leave ends a watch; the last one ends the feed and waits for it.
func (w *taskWatcher) leave() {
	f := w.feed
	f.of.mu.Lock()
	delete(f.watchers, w)
	last := len(f.watchers) == 0
	if last {
		f.closeLocked()
	}
	f.of.mu.Unlock()
	if last {
		f.running.end()
	}
}

// closeLocked keeps later watchers away.
func (f *taskFeed) closeLocked() {
	if f.of.byKey[f.key] == f {
		delete(f.of.byKey, f.key)
	}
}

// take returns the newest state if it was not taken before, and whether another
// one may come.
func (w *taskWatcher) take() (state *taskState, more bool) {
	w.feed.of.mu.Lock()
	defer w.feed.of.mu.Unlock()
	state, w.pending = w.pending, nil
	return state, !w.feed.over
}

// end tells why nothing more comes, nil if the task has ended, and the era of
// the server.
func (w *taskWatcher) end() (*failure, mcpclient.Era) {
	w.feed.of.mu.Lock()
	defer w.feed.of.mu.Unlock()
	return w.feed.failed, w.feed.era
}

// update changes what watchers see, and wakes them.
func (f *taskFeed) update(change func()) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	change()
	for w := range f.watchers {
		notify(w.woken)
	}
}

func (f *taskFeed) put(state *taskState) {
	f.update(func() {
		f.state = state
		for w := range f.watchers {
			w.pending = state
		}
	})
}

// run follows the task and tells the watchers of the end.
func (f *taskFeed) run(ctx context.Context) (_ *mcpclient.Result, failed *failure) {
	failed = faulty() // unless it is followed to its end
	defer func() {
		f.update(func() {
			f.over, f.failed = true, failed
			f.closeLocked()
		})
	}()
	failed = f.whileThere(ctx)
	return nil, failed
}

// whileThere follows the task until its target has ended, if the task has not.
func (f *taskFeed) whileThere(ctx context.Context) *failure {
	ctx, cancel := context.WithCancel(ctx)
	var attending sync.WaitGroup
	stop := func() { cancel(); attending.Wait() }
	defer stop()
	var gone error // why the target has ended
	about := f.about
	attending.Go(func() {
		gone = f.attend(ctx, about)
		cancel()
	})
	failed := f.follow(ctx)
	stop()
	if failed != nil && gone != nil {
		return about.classify(ctx, gone)
	}
	return failed
}

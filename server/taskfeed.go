package server

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

const (
	// minPollInterval bounds what a server names, as the client does.
	minPollInterval = 100 * time.Millisecond
	// maxFailedPolls in a row that may pass do not end a feed: a task survives a
	// connection, so its feed does too.
	maxFailedPolls = 3
	// lookAhead is how long before the end of a task's time to live it is looked
	// at: afterwards it may be gone.
	lookAhead = time.Second
	// stillFresh is the age of an answer up to which another watcher is no reason
	// to ask again.
	stillFresh = time.Second
)

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
			poll: make(chan struct{}, 1), watchers: map[*taskWatcher]struct{}{},
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
	failed = faulty() // unless follow returns
	defer func() {
		f.update(func() {
			f.over, f.failed = true, failed
			f.closeLocked()
		})
	}()
	failed = f.follow(ctx)
	return nil, failed
}

// follow asks for the task until it has ended: at the server's pace, and at once
// when the server tells of a change.
func (f *taskFeed) follow(ctx context.Context) *failure {
	last, failed := f.look(ctx)
	if failed != nil {
		return failed
	}
	f.since = time.Now()
	f.put(last)
	if ended(last.task) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	listening.Go(func() { f.listen(ctx) })
	failures := 0
	for {
		wait := f.wait(last.task)
		if failed != nil {
			wait = max(wait, failed.retry)
		}
		if !f.pause(ctx, wait, failed != nil) {
			return f.about.classify(ctx, ctx.Err())
		}
		var now *taskState
		now, failed = f.look(ctx)
		switch {
		case failed == nil:
			failures = 0
			if changed(last.task, now.task) {
				f.put(now)
			}
			if last = now; ended(now.task) {
				return nil
			}
		case ctx.Err() != nil || !mayPass(failed) || failures == maxFailedPolls:
			return failed
		default:
			failures++
		}
	}
}

// pause waits for the time of the next poll, or until something may have
// changed, unless that is not to be heeded. It is false when ctx ended.
func (f *taskFeed) pause(ctx context.Context, d time.Duration, whole bool) bool {
	told := f.poll
	if whole {
		told = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-told:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// look asks for the task once.
func (f *taskFeed) look(ctx context.Context) (*taskState, *failure) {
	request := getTask(f.key.id, f.options)
	request.lease = f.acquire
	began := time.Now()
	result, failed := f.try(ctx, f.key.target, &f.about, request)
	f.of.mu.Lock()
	f.asked, f.era = began, f.about.era
	f.of.mu.Unlock()
	if failed != nil {
		return nil, failed
	}
	task, err := convert.Task(result.Raw, pb.JsonFormat_JSON_FORMAT_UNSPECIFIED)
	if err != nil {
		return nil, f.about.badReply(err)
	}
	return &taskState{raw: result.Raw, task: task}, nil
}

func (f *taskFeed) acquire(ctx context.Context, target *targets.Target) (*pool.Lease, error) {
	return target.Acquire(ctx, f.key.who)
}

// wait is the time until the next poll: the server's interval, but the task is
// looked at shortly before the end of its time to live, and at it (tasks
// extension, Task Polling).
func (f *taskFeed) wait(task *pb.Task) time.Duration {
	wait := f.key.target.TaskPollInterval()
	if task.PollIntervalMs != nil {
		wait = max(min(milliseconds(task.GetPollIntervalMs()), 24*time.Hour), minPollInterval)
	}
	if task.TtlMs == nil {
		return wait
	}
	ttl := milliseconds(task.GetTtlMs())
	ends := []time.Time{f.since.Add(ttl)} // at the latest
	if created, err := time.Parse(time.RFC3339, task.GetCreatedAt()); err == nil {
		ends = append(ends, created.Add(ttl)) // if the clocks agree
	}
	for _, end := range ends {
		left := time.Until(end)
		if left > lookAhead {
			left -= lookAhead
		}
		if left > 0 {
			wait = min(wait, max(left, minPollInterval))
		}
	}
	return wait
}

// milliseconds is a duration of a server, which may be any number.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// listen has the server tell of changes, where it does. The subscription belongs
// to a client that may be closed once nobody else uses it; then the polls are
// what is left.
func (f *taskFeed) listen(ctx context.Context) {
	lease, err := f.acquire(ctx, f.key.target)
	if err != nil {
		return
	}
	filter := mcpclient.Filter{Tasks: []string{f.key.id}}
	sub, err := lease.Client().Listen(ctx, filter, func(context.Context, mcpclient.Notification) { notify(f.poll) })
	lease.Release() // a watch is no call that takes a place from others
	if err != nil {
		f.log.DebugContext(ctx, "the server tells nothing of its tasks", "target", f.key.target.Name(), "error", err)
		return
	}
	defer sub.Close()
	if !slices.Contains(sub.Acknowledged().Tasks, filter.Tasks[0]) {
		return
	}
	notify(f.poll) // something may have changed before
	select {
	case <-ctx.Done():
	case <-sub.Done():
	}
}

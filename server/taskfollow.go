package server

import (
	"context"
	"math"
	"time"

	"github.com/cenkalti/backoff/v5"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

const (
	// minPollInterval and maxPollInterval bound what a server names, as the client
	// does.
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = 24 * time.Hour
	// maxFailedPolls in a row that may pass do not end a feed, nor does what fails
	// in the time that as many polls take: a task survives a connection, so its
	// feed does too.
	maxFailedPolls = 3
	// lookAhead is how long before the end of a task's time to live it is looked
	// at: afterwards it may be gone.
	lookAhead = time.Second
)

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
	close(f.known)
	var bad setback
	for {
		quiet, wait := time.Duration(0), f.wait(last.task)
		if failed != nil {
			quiet, wait = bad.pauses(wait, failed.retry)
		}
		if !pause(ctx, quiet, nil) || !pause(ctx, wait-quiet, f.poll) {
			return f.about.classify(ctx, ctx.Err())
		}
		var now *taskState
		now, failed = f.look(ctx)
		switch {
		case failed == nil:
			bad = setback{}
			if changed(last.task, now.task) {
				f.put(now)
			}
			if last = now; ended(now.task) {
				return nil
			}
		case ctx.Err() != nil || !mayPass(failed) || !bad.bears(f.wait(last.task)):
			return failed
		}
	}
}

// setback is polls that fail in a row. The zero value is none.
type setback struct {
	polls int
	until time.Time // what fails before then is borne
	pace  *backoff.ExponentialBackOff
}

// bears notes a failed poll of a task that is polled at an interval, and reports
// whether another one is due.
func (s *setback) bears(interval time.Duration) bool {
	if s.polls++; s.polls == 1 {
		s.until = time.Now().Add(maxFailedPolls * interval)
		s.pace = newPace(defaultRetry, maxPollInterval)
	}
	return s.polls <= maxFailedPolls || time.Now().Before(s.until)
}

// pauses is how long nothing is asked after a failed poll, whatever the server
// tells, and when it is asked in any case. A poll that fails is repeated sooner
// than the task's interval, since what the server told of is not known.
func (s *setback) pauses(interval, retry time.Duration) (quiet, wait time.Duration) {
	quiet = max(retry, min(defaultRetry, interval))
	return quiet, max(quiet, min(s.pace.NextBackOff(), interval))
}

// newPace makes pauses that grow, with jitter.
func newPace(first, most time.Duration) *backoff.ExponentialBackOff {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval, pace.Multiplier = first, most, 2
	pace.Reset()
	return pace
}

// pause waits for a time, or until told. It is false when ctx ended.
func pause(ctx context.Context, d time.Duration, told <-chan struct{}) bool {
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
		wait = max(min(milliseconds(task.GetPollIntervalMs()), maxPollInterval), minPollInterval)
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

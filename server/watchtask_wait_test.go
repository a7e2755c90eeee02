package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
)

// looks is when a task is asked for, of which the first answer came at 0, until
// a time.
func looks(t *testing.T, task func(began time.Time) *pb.Task, until time.Duration) []time.Duration {
	t.Helper()
	cfg := config.Default()
	cfg.Targets["shop"] = config.NewTarget(config.TransportStreamableHTTP)
	cfg.Targets["shop"].URL, cfg.Targets["shop"].Tasks.PollInterval = deadURL, 20*time.Second
	set, err := targets.New(cfg, targets.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close(context.Background()) }()
	began := time.Now()
	f := &taskFeed{key: taskKey{target: set.All()[0]}, since: began}
	var at []time.Duration
	for {
		if time.Sleep(f.wait(task(began))); time.Since(began) > until {
			return at
		}
		at = append(at, time.Since(began))
	}
}

func TestATaskIsLookedAtBeforeItsTimeToLiveEnds(t *testing.T) {
	const second = time.Second
	task := func(poll, ttl *int64, age time.Duration) func(time.Time) *pb.Task {
		return func(began time.Time) *pb.Task {
			created := began.Add(-age).Format(time.RFC3339Nano)
			return &pb.Task{PollIntervalMs: poll, TtlMs: ttl, CreatedAt: &created}
		}
	}
	for name, c := range map[string]struct {
		task func(time.Time) *pb.Task
		want []time.Duration // within a minute
	}{
		"no limit":                  {task(new(int64(25_000)), nil, 0), []time.Duration{25 * second, 50 * second}},
		"the configured interval":   {task(nil, nil, 0), []time.Duration{20 * second, 40 * second, 60 * second}},
		"rarely":                    {task(new(int64(86_400_000)), new(int64(30_000)), 0), []time.Duration{29 * second, 30 * second}},
		"more than a day":           {task(new(int64(1<<62)), new(int64(1<<62)), 0), nil},
		"older than the watch":      {task(new(int64(86_400_000)), new(int64(30_000)), 10*second), []time.Duration{19 * second, 20 * second, 29 * second, 30 * second}},
		"by a clock that is behind": {task(new(int64(86_400_000)), new(int64(30_000)), time.Hour), []time.Duration{29 * second, 30 * second}},
		"by a clock that is ahead":  {task(new(int64(86_400_000)), new(int64(30_000)), -10*second), []time.Duration{29 * second, 30 * second, 39 * second, 40 * second}},
		"often":                     {task(new(int64(25_000)), new(int64(30_000)), 0), []time.Duration{25 * second, 29 * second, 30 * second, 55 * second}},
		"short":                     {task(new(int64(50_000)), new(int64(300)), 0), []time.Duration{300 * time.Millisecond, 50*second + 300*time.Millisecond}},
		"very short":                {task(new(int64(50_000)), new(int64(1)), 0), []time.Duration{minPollInterval, 50*second + minPollInterval}},
		"over":                      {task(new(int64(50_000)), new(int64(-5)), 0), []time.Duration{50 * second}},
		"just before the last look": {task(new(int64(28_950)), new(int64(30_000)), 0), []time.Duration{28_950 * time.Millisecond, 29_050 * time.Millisecond, 30 * second, 58_950 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(c.want, looks(t, c.task, time.Minute)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestATimeToLiveThatGrowsIsFollowedAtABoundedPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		growing := func(began time.Time) *pb.Task {
			ttl := time.Since(began).Milliseconds() + 1
			return &pb.Task{PollIntervalMs: new(int64(86_400_000)), TtlMs: &ttl}
		}
		if got, most := len(looks(t, growing, time.Minute)), int(time.Minute/minPollInterval); got > most {
			t.Errorf("%d looks in a minute, want %d at most", got, most)
		}
	})
}

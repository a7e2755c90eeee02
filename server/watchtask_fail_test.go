package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestAPollThatFailsMakesNoWatchDeaf(t *testing.T) {
	for name, after := range map[string]func(*bridge, *telling){
		"the server tells once more": func(_ *bridge, s *telling) { s.tell <- struct{}{} },
		"another watcher comes":      func(b *bridge, _ *telling) { b.watchTask(overConnectJSON, "t").want("working") },
		"nothing happens":            func(*bridge, *telling) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, refused := newTelling(isWorking), make(chan struct{}, 10)
			get := server.Handle["tasks/get"]
			server.Handle["tasks/get"] = func(ctx context.Context, r *mcptest.Request) (any, error) {
				answer, err := get(ctx, r)
				if err != nil {
					refused <- struct{}{}
				}
				return answer, err
			}
			b := one(t, server.Server).ready()
			s := b.watchTask(overGRPC, "t")
			s.want("working")
			if _, err := server.WaitFor(t.Context(), "tasks/get", 2); err != nil { // the one after the acknowledgement
				t.Fatal(err)
			}
			server.set("", &mcptest.Error{Code: -32603, Message: "try again"})
			server.tell <- struct{}{}
			<-refused
			after(b, server)
			server.set(isComplete, nil)
			s.want("completed", "end")
		})
	}
}

func TestPollsThatFailAreRepeatedAtAGrowingPace(t *testing.T) {
	for name, c := range map[string]struct {
		interval, retry      time.Duration
		quiet                time.Duration // after each failure, at least
		fewest, most         int           // polls until it is enough
		shortest, notAtAllBy time.Duration // until then
	}{
		"often":                     {100 * time.Millisecond, 0, 100 * time.Millisecond, 4, 4, 300 * time.Millisecond, time.Second},
		"each second":               {time.Second, 0, time.Second, 4, 4, 3 * time.Second, 4 * time.Second},
		"rarely":                    {maxPollInterval, 0, time.Second, 12, 30, 3 * maxPollInterval, 5 * maxPollInterval},
		"the server wants a pause":  {time.Second, time.Minute, time.Minute, 4, 4, 3 * time.Minute, 4 * time.Minute},
		"a shorter one than it has": {time.Minute, time.Second, time.Second, 4, 20, 3 * time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bad setback
				began, polls := time.Now(), 1
				for ; bad.bears(c.interval); polls++ {
					quiet, wait := bad.pauses(c.interval, c.retry)
					if quiet != c.quiet || wait < quiet || wait > max(c.interval, c.retry) {
						t.Errorf("poll %d: nothing for %s, another one after %s", polls, quiet, wait)
					}
					time.Sleep(wait)
				}
				if took := time.Since(began); polls < c.fewest || polls > c.most || took < c.shortest || took >= c.notAtAllBy {
					t.Errorf("%d polls in %s", polls, took)
				}
			})
		})
	}
}

func TestWhatTheServerTellsIsHeededOnceItsPauseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan struct{}, 1)
		began := time.Now()
		notify(told)
		if !pause(t.Context(), time.Second, nil) || time.Since(began) != time.Second {
			t.Errorf("a pause of %s", time.Since(began))
		}
		if !pause(t.Context(), time.Hour, told) || time.Since(began) != time.Second {
			t.Errorf("heeded after %s", time.Since(began))
		}
		if !pause(t.Context(), time.Hour, told) || time.Since(began) != time.Hour+time.Second {
			t.Errorf("untold after %s", time.Since(began))
		}
	})
}

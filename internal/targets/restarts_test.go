package targets

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestOnlyWhatMakesUpForAFailureIsARestart(t *testing.T) {
	down, gaveUp := &mcpclient.Error{Kind: mcpclient.KindLost}, &mcpclient.Error{Kind: mcpclient.KindClosed}
	lives := map[string]struct {
		outcome error // of the attempt to connect
		states  []mcpclient.State
		counts  bool // the process that is started after it
	}{
		"served and closed":                  {nil, []mcpclient.State{mcpclient.StateReady, mcpclient.StateClosed}, false},
		"left while it connected":            {gaveUp, []mcpclient.State{mcpclient.StateConnecting, mcpclient.StateClosed}, false},
		"could not be connected to":          {down, []mcpclient.State{mcpclient.StateConnecting, mcpclient.StateReconnecting, mcpclient.StateClosed}, true},
		"ended by itself":                    {nil, []mcpclient.State{mcpclient.StateReady, mcpclient.StateSuspect, mcpclient.StateIdle, mcpclient.StateClosed}, true},
		"still waits for its next attempt":   {down, []mcpclient.State{mcpclient.StateReconnecting, mcpclient.StateIdle}, false},
		"ended by itself, and is well again": {nil, []mcpclient.State{mcpclient.StateReady, mcpclient.StateReconnecting, mcpclient.StateReady, mcpclient.StateClosed}, false},
	}
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := newRestarts(1, time.Minute)
				first := limit.process()
				if err := first.start(time.Now()); err != nil {
					t.Fatal(err)
				}
				first.attempted(life.outcome)
				for _, s := range life.states {
					first.observe(s)
				}
				for range 2 { // what failed once is made up for once
					if err := limit.process().start(time.Now()); err != nil {
						t.Errorf("another process: %v", err)
					}
				}
				if counted := len(limit.at) == 1; counted != life.counts {
					t.Errorf("counted as a restart: %v", counted)
				}
			})
		})
	}
}

func TestAFailureIsForgottenAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newRestarts(2, time.Minute)
		fail := func() {
			p := limit.process()
			if err := p.start(time.Now()); err != nil {
				t.Fatal(err)
			}
			p.attempted(errors.New("down"))
			p.observe(mcpclient.StateClosed)
		}
		for range 3 {
			fail()
		}
		refused := limit.process()
		e, ok := errors.AsType[*mcpclient.Error](refused.start(time.Now()))
		if !ok || e.Kind != mcpclient.KindUnavailable || !e.SafeToRetry || e.RetryAfter != time.Minute || !strings.Contains(e.Message, "restart.max") {
			t.Errorf("refused with %+v", e)
		}
		time.Sleep(time.Minute)
		if err := refused.start(time.Now()); err != nil || len(limit.at) != 0 {
			t.Errorf("a window later: %v, with %d restarts", err, len(limit.at))
		}
	})
}

func TestEachKindOfConnectionHasItsLimit(t *testing.T) {
	usual, other, interactive := pool.Member{}, pool.Member{Key: pool.Key{Isolation: "b"}}, pool.Member{Exclusive: true}
	for isolation, want := range map[config.Isolation]struct{ others, interactive bool }{
		config.IsolationShared:  {true, true},
		config.IsolationPerKey:  {false, true},
		config.IsolationPerCall: {false, false},
	} {
		c := config.NewTarget(config.TransportStdio)
		c.Command, c.Pool.Isolation = []string{"server"}, isolation
		limits := newLimits(c)
		if got := limits(usual).limit == limits(other).limit; got != want.others {
			t.Errorf("%v: connections share a limit: %v", isolation, got)
		}
		if one, another := limits(interactive), limits(interactive); (one.limit == another.limit) != want.interactive {
			t.Errorf("%v: whether those of interactive calls share a limit: %v", isolation, !want.interactive)
		}
		if limits(interactive).limit == limits(usual).limit {
			t.Errorf("%v: an interactive call may use up the restarts of others", isolation)
		}
	}
	if newLimits(httpTarget("http://x/"))(usual) != nil {
		t.Error("a target without a process has a limit")
	}
}

// asks makes one interactive call and ends its connection, as after a call that
// may still be running.
func asks(ctx context.Context, target *Target, tool string) error {
	lease, err := target.AcquireInteractive(ctx, Caller{}, mcpclient.Capabilities{ElicitationForm: true})
	if err != nil {
		return err
	}
	defer lease.Release()
	defer lease.Discard()
	_, err = lease.Client().CallTool(ctx, tool, nil, nil)
	return err
}

func TestProcessesThatEndWithTheirInteractiveCallAreStartedOnlySoOften(t *testing.T) {
	child := mcptest.StartChild(t, "fragile")
	c := childTarget(child)
	c.Restart = config.Restart{Max: 3, Window: time.Hour, StopTimeout: time.Second}
	c.ProtocolVersion = config.Version20251125 // one process per attempt
	c.Pool.MaxInteractive = 1                  // the next one starts when it is known how the last one ended
	s := newSet(t, Deps{}, map[string]*config.Target{"child": c})
	s.Start()
	target := s.All()[0]
	for i := range 20 {
		e, ok := errors.AsType[*mcpclient.Error](asks(t.Context(), target, "die"))
		switch want := mcpclient.KindLost; {
		case !ok:
			t.Fatal("a process that ended has answered")
		case i < 4 && e.Kind != want:
			t.Errorf("call %d: %v", i, e)
		case i >= 4 && (e.Kind != mcpclient.KindUnavailable || !e.SafeToRetry || e.RetryAfter < 50*time.Minute || !strings.Contains(e.Message, "restart.max")):
			t.Errorf("call %d: %+v, want a refusal with the time to retry", i, e)
		}
	}
	if n := child.Count(mcptest.MethodOpened); n != 1+1+3 {
		t.Errorf("%d processes were started, want that of all callers, one more and three restarts", n)
	}
	if _, err := call(t, s, "child", "hi"); err != nil {
		t.Errorf("other calls: %v", err)
	}
}

func TestInteractiveCallsThatAreLeftAreNoRestarts(t *testing.T) {
	child := mcptest.StartChild(t, "fragile")
	c := childTarget(child)
	c.Restart = config.Restart{Max: 2, Window: time.Hour, StopTimeout: 5 * time.Second}
	c.ProtocolVersion = config.Version20251125
	c.Pool.MaxInteractive = 1
	s := newSet(t, Deps{}, map[string]*config.Target{"child": c})
	s.Start()
	target := s.All()[0]
	for i := range 8 {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- asks(ctx, target, "hang") }()
		if _, err := child.WaitFor(t.Context(), "tools/call", i+1); err != nil {
			t.Fatal(err)
		}
		leave()
		if e, ok := errors.AsType[*mcpclient.Error](<-left); !ok || e.Kind != mcpclient.KindCanceled {
			t.Fatalf("call %d: %v", i, e)
		}
	}
	if err := asks(t.Context(), target, "hi"); err != nil {
		t.Errorf("after calls that were left: %v", err)
	}
}

func TestProcessesThatTakeTheirTimeToEndKeepTheirPlaces(t *testing.T) {
	child := mcptest.StartChild(t, "stubborn")
	c := childTarget(child)
	c.Restart.StopTimeout = 4 * time.Second // killed after three
	c.ProtocolVersion = config.Version20251125
	c.Pool.MaxInteractive = 2
	s := newSet(t, Deps{}, map[string]*config.Target{"child": c})
	s.Start()
	target := s.All()[0]
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 2)
	for range cap(left) {
		go func() { left <- asks(ctx, target, "hang") }()
	}
	if _, err := child.WaitFor(t.Context(), "tools/call", cap(left)); err != nil {
		t.Fatal(err)
	}
	leave()
	for range cap(left) {
		if err := <-left; err == nil {
			t.Error("a tool that never ends has ended")
		}
	}
	hurried, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if e, ok := errors.AsType[*mcpclient.Error](asks(hurried, target, "hang")); !ok || e.Kind != mcpclient.KindTimeout || !strings.Contains(e.Message, "pool.max_interactive") {
		t.Errorf("while two processes end: %v", e)
	}
	if got, n := target.Stat(), child.Count(mcptest.MethodOpened); got.Closing != 2 || n != 3 {
		t.Errorf("%d processes were started, %+v", n, got)
	}
	patient, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- asks(patient, target, "hang") }()
	if _, err := child.WaitFor(t.Context(), "tools/call", 3); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-served; err == nil {
		t.Error("a tool that never ends has ended")
	}
}

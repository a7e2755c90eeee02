package targets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestOnlyFirstConnectsAreGated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuilder(Deps{})
		list := make([]gate, maxEagerConnects+1)
		releases := make([]func(error), len(list))
		for i := range list {
			list[i] = b.firstConnect(nil)
		}
		enter := func(i int) {
			release, err := list[i](t.Context())
			if err != nil {
				t.Errorf("gate %d: %v", i, err)
			}
			releases[i] = release
		}
		for i := range maxEagerConnects {
			enter(i)
		}
		done := make(chan struct{})
		go func() { defer close(done); enter(maxEagerConnects) }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("one connect too many at the same time")
		default:
		}
		again, err := list[0](t.Context()) // a reconnect is not held up
		if err != nil {
			t.Fatal(err)
		}
		again(nil)
		releases[3](nil)
		<-done
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.firstConnect(nil)(ctx); err == nil {
			t.Error("a full gate must let go of an ended context")
		}
		wanted := make(chan struct{})
		close(wanted)
		if _, err := b.firstConnect(wanted)(t.Context()); err != nil {
			t.Errorf("a target that a call waits for: %v", err)
		}
	})
}

func TestRestartsAreBoundedWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := gates(newRestarts(2, time.Minute).process())
		enter := func() error {
			done, err := open(t.Context())
			if err == nil {
				done(nil)
			}
			return err
		}
		for range 3 { // the first start is free
			if err := enter(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		err := enter() // restarts at 10 s and 20 s, and now it is 30 s
		e, ok := errors.AsType[*mcpclient.Error](err)
		if !ok || e.Kind != mcpclient.KindUnavailable || !e.SafeToRetry || e.RetryAfter != 40*time.Second || !strings.Contains(e.Message, "restart.max") {
			t.Fatalf("refused with %+v, want one that is due in 40 s", err)
		}
		time.Sleep(40*time.Second - 1)
		if enter() == nil {
			t.Error("a restart before its time")
		}
		time.Sleep(time.Nanosecond)
		if err := enter(); err != nil {
			t.Error(err)
		}
		if enter() == nil {
			t.Error("the restart at 20 s is still in the window")
		}
		time.Sleep(time.Hour)
		if err := enter(); err != nil {
			t.Error(err)
		}
	})
}

func TestGatesAreTriedInOrderAndToldTheOutcome(t *testing.T) {
	var events []string
	named := func(name string, refusal error) gate {
		return func(context.Context) (func(error), error) {
			events = append(events, "enter "+name)
			if refusal != nil {
				return nil, refusal
			}
			return func(err error) { events = append(events, name+": "+err.Error()) }, nil
		}
	}
	full := errors.New("full")
	limit := newRestarts(1, time.Minute).process()
	for range 3 {
		if _, err := gates(limit, named("a", nil), nil, named("b", full))(t.Context()); !errors.Is(err, full) {
			t.Errorf("err = %v", err) // nothing was started, so that restarts are not used up
		}
	}
	done, err := gates(limit, nil, named("a", nil), named("b", nil))(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done(errors.New("down"))
	want := []string{"enter a", "enter b", "a: full", "enter a", "enter b", "a: full", "enter a", "enter b", "a: full", "enter a", "enter b", "b: down", "a: down"}
	if !slices.Equal(events, want) {
		t.Errorf("events = %q", events)
	}
	if gates(newRestarts(0, time.Minute).process(), nil, nil) != nil {
		t.Error("a client without gates has one")
	}
}

func TestAChildThatKeepsEndingIsStartedAgainOnlySoOften(t *testing.T) {
	child := mcptest.StartChild(t, "quitter")
	c := childTarget(child)
	c.Restart = config.Restart{Max: 2, Window: time.Hour, StopTimeout: time.Second}
	c.Reconnect = config.Reconnect{Interval: time.Millisecond, MaxInterval: time.Millisecond, Multiplier: 1}
	c.ProtocolVersion = config.Version20251125 // one process per attempt
	s := newSet(t, Deps{}, map[string]*config.Target{"child": c})
	w := s.Watch("child")
	defer w.Close()
	s.Start()
	for {
		e, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Status.LastError != nil && strings.Contains(e.Status.LastError.Error(), "restart.max") {
			if wait := time.Until(e.Status.NextAttempt); wait < 50*time.Minute {
				t.Errorf("the next start is due in %v", wait)
			}
			break
		}
	}
	if n := child.Count("initialize"); n != 3 {
		t.Errorf("the child was started %d times, want 3", n)
	}
	_, err := call(t, s, "child", "x")
	e, ok := errors.AsType[*mcpclient.Error](err)
	if !ok || e.Kind != mcpclient.KindUnavailable || e.RetryAfter < 50*time.Minute || !strings.Contains(e.Message, "restart.max") {
		t.Errorf("a call fails with %v", err)
	}
	if state := s.All()[0].Status().State; state != pool.StateReconnecting {
		t.Errorf("state %v", state)
	}
}

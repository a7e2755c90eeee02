package pool

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestConnectionsOfOneTargetLearnFromEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		f.server.SetDown(true)
		p := f.pool(t, Options{Mode: ModePerKey, Reconnect: mcpclient.ReconnectOptions{Interval: 10 * time.Second}})
		attempt := func(name string) *mcpclient.Error {
			l, err := p.Acquire(t.Context(), key(name))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			e, _ := errors.AsType[*mcpclient.Error](l.Client().Connect(t.Context()))
			return e
		}
		for i := range breakAfter {
			if e := attempt(fmt.Sprint("down", i)); e == nil || e.Kind != mcpclient.KindUnavailable {
				t.Fatalf("Connect = %v", e)
			}
		}
		asked := len(f.server.Entries(""))
		if e := attempt("late"); e == nil || e.RetryAfter < 8*time.Second || e.RetryAfter > 12*time.Second || !e.SafeToRetry {
			t.Errorf("Connect = %+v, want the time to come back", e)
		}
		if now := len(f.server.Entries("")); now != asked {
			t.Error("an open breaker let an attempt through")
		}
		synctest.Wait()
		if got := p.Status(); got.State != StateReconnecting || got.NextAttempt.IsZero() || got.LastError == nil {
			t.Errorf("status = %+v", got)
		}
		f.server.SetDown(false)
		time.Sleep(12 * time.Second)
		if e := attempt("back"); e != nil {
			t.Errorf("Connect = %v after the server is back", e)
		}
		if e := attempt("late"); e != nil {
			t.Errorf("Connect = %v with a closed breaker", e)
		}
	})
}

func TestAHalfOpenBreakerLetsOneAttemptThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(mcpclient.ReconnectOptions{Interval: time.Second, MaxInterval: 4 * time.Second})
		fail := &mcpclient.Error{Kind: mcpclient.KindTimeout, Message: "no answer"}
		enter := func() (func(error), *mcpclient.Error) {
			done, err := b.enter(t.Context())
			e, _ := errors.AsType[*mcpclient.Error](err)
			return done, e
		}
		for range breakAfter {
			done, _ := enter()
			done(fail)
		}
		for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
			_, refused := enter()
			if refused == nil || refused.Kind != mcpclient.KindUnavailable || refused.Message != "no answer" || refused.RetryAfter < wait*8/10 || refused.RetryAfter > wait*12/10 {
				t.Fatalf("refusal = %+v, want about %v", refused, wait)
			}
			time.Sleep(refused.RetryAfter)
			trial, refused := enter()
			if refused != nil {
				t.Fatalf("the trial was refused: %v", refused)
			}
			if _, second := enter(); second == nil {
				t.Fatal("two attempts through a half-open breaker")
			}
			trial(fail)
		}
		time.Sleep(5 * time.Second)
		trial, _ := enter()
		trial(&mcpclient.Error{Kind: mcpclient.KindClosed}) // a caller's connection ended: says nothing
		trial, refused := enter()
		if refused != nil {
			t.Fatalf("after an attempt without a verdict: %v", refused)
		}
		trial(nil)
		if _, refused := enter(); refused != nil || !b.openUntil().IsZero() {
			t.Errorf("after a success: %v", refused)
		}
	})
}

func TestOneOutageIsOneStepOfThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(mcpclient.ReconnectOptions{Interval: time.Second, MaxInterval: time.Hour})
		var done []func(error)
		for range 50 {
			d, err := b.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done = append(done, d)
		}
		for _, d := range done { // all of them were under way when the server went
			d(&mcpclient.Error{Kind: mcpclient.KindLost})
		}
		if wait := time.Until(b.openUntil()); wait > 1200*time.Millisecond {
			t.Errorf("one outage costs %v, want the first interval", wait)
		}
		time.Sleep(2 * time.Second)
		trial, err := b.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		trial(&mcpclient.Error{Kind: mcpclient.KindUnauthorized}) // a refusal is an answer
		if _, err := b.enter(t.Context()); err != nil || !b.openUntil().IsZero() {
			t.Errorf("after an answer: %v", err)
		}
	})
}

func TestAKeysConnectionSaysLittleOfTheTarget(t *testing.T) {
	for _, mode := range []Mode{ModePerKey, ModePerCall} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, legacy())
			p := f.pool(t, Options{Mode: mode, MaxConnections: 50, Reconnect: mcpclient.ReconnectOptions{Interval: 10 * time.Second}})
			for i := range 20 {
				connected(t, p, key(fmt.Sprint(i))).Release()
				synctest.Wait()
			}
			f.mu.Lock()
			if diff := cmp.Diff([]State{StateReady}, f.states); diff != "" {
				t.Errorf("mode %d: calls that succeed are no changes of the target: %s", mode, diff)
			}
			f.mu.Unlock()
			f.server.SetDown(true)
			for i := range breakAfter {
				if l, err := p.Acquire(t.Context(), key(fmt.Sprint("down", i))); err == nil {
					_ = l.Client().Connect(t.Context())
					l.Release()
				}
				synctest.Wait()
			}
			if mode == ModePerCall {
				if got := p.Status(); got.State != StateReconnecting || got.NextAttempt.IsZero() {
					t.Errorf("status = %+v with an open breaker", got)
				}
				time.Sleep(12 * time.Second)
				synctest.Wait()
				if got := p.Status(); got.State != StateIdle {
					t.Errorf("status = %+v once a call may try: who goes by it must not stay away", got)
				}
			}
			f.server.SetDown(false)
			time.Sleep(12 * time.Second)
			connected(t, p, key("back")).Release()
			if got := p.Status(); got.State != StateReady {
				t.Errorf("mode %d: status = %+v", mode, got)
			}
		})
	}
}

func TestAgeAtTheCapEndsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := legacy()
		server.Status = func(method string, _ int) *mcptest.Reply {
			if method == "DELETE" {
				time.Sleep(2 * time.Second) // a session that takes its time to end
			}
			return nil
		}
		f := newFake(t, server)
		p := f.pool(t, Options{Mode: ModePerKey, MaxConnections: 1, MaxLifetime: 3 * time.Second})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 100 {
					l, err := p.Acquire(t.Context(), key("a"))
					if err != nil {
						t.Errorf("Acquire = %v", err)
						return
					}
					if err := l.Client().Connect(t.Context()); err != nil {
						t.Errorf("Connect = %v", err)
					}
					time.Sleep(100 * time.Millisecond)
					l.Release()
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		if n := f.server.Count("initialize"); n < 10 {
			t.Errorf("%d sessions in about two minutes", n)
		}
		if got := p.Stat(); got.Rejected != 0 || got.Queued != 0 || p.usual.open > 1 || p.usual.live > p.usual.open {
			t.Errorf("stat = %+v, open %d, live %d", got, p.usual.open, p.usual.live)
		}
	})
}

func TestAConnectionThatIsSlowToBootIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		f.boot = time.Minute
		p := f.pool(t, Options{MaxConnections: 2, IdleTimeout: 10 * time.Second, MaxLifetime: 30 * time.Minute})
		p.Start()
		held := connected(t, p, Request{})
		acquire(t, p).Release() // wants a second one
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := p.Stat().Connections; got != 2 || f.count() != 2 {
			t.Errorf("%d connections of %d made", got, f.count())
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := p.Stat().Connections; got != 1 {
			t.Errorf("%d connections after the idle time", got)
		}
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if again := connected(t, p, Request{}); again.Client() == held.Client() || f.count() != 3 {
			t.Errorf("%d connections made, the old one was not replaced", f.count())
		} else {
			again.Release()
		}
		held.Release()
	})
}

func TestFurtherConnectionsDoNotCloseTheDoorForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := legacy()
		var open atomic.Bool
		server.Status = func(method string, n int) *mcptest.Reply {
			if method == "initialize" && n > 1 && !open.Load() {
				return &mcptest.Reply{Status: 503} // one session at a time
			}
			return nil
		}
		f := newFake(t, server)
		p := f.pool(t, Options{MaxConnections: 2})
		p.Start()
		held := connected(t, p, Request{})
		for range 40 {
			acquire(t, p).Release()
			time.Sleep(time.Second)
		}
		if n := f.server.Count("initialize"); n > 15 {
			t.Errorf("%d attempts at a second connection in 40 s", n)
		}
		open.Store(true)
		f.server.ExpireSessions()
		if _, err := held.Client().CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Errorf("the first connection: %v", err)
		}
		held.Release()
	})
}

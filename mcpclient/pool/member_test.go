package pool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// fakeTarget makes clients of one scriptable server and counts them.
type fakeTarget struct {
	server *mcptest.Server
	url    string
	http   *http.Client

	mu     sync.Mutex // protects the fields below
	refuse bool       // the gate of clients made now
	boot   time.Duration
	made   []Member
	states []State
}

func newFake(t *testing.T, s *mcptest.Server) *fakeTarget {
	t.Helper()
	f := &fakeTarget{server: s}
	f.url, f.http = mcptest.StartMemoryHTTP(t, s)
	return f
}

func (f *fakeTarget) New(m Member) (*mcpclient.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = append(f.made, m)
	if f.refuse {
		m.Gate = func(context.Context) (func(error), error) {
			return nil, &mcpclient.Error{Kind: mcpclient.KindUnavailable, Message: "refused", RetryAfter: time.Hour}
		}
	}
	if boot, gate := f.boot, m.Gate; boot > 0 {
		m.Gate = func(ctx context.Context) (func(error), error) {
			time.Sleep(boot)
			if gate == nil {
				return func(error) {}, nil
			}
			return gate(ctx)
		}
	}
	return mcpclient.New(&transport.HTTP{URL: f.url, Client: f.http}, mcpclient.Options{
		Version: mcpclient.VersionOptions{Advertise: "2025-11-25"},
		Lazy:    m.Lazy, OnState: m.OnState, ConnectGate: m.Gate,
	})
}

func (f *fakeTarget) changed(s Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states = append(f.states, s.State)
}

func (f *fakeTarget) setRefuse(refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

func (f *fakeTarget) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made)
}

// pool returns a pool on the fake.
func (f *fakeTarget) pool(t *testing.T, o Options) *Pool {
	t.Helper()
	o.New, o.OnChange = f.New, f.changed
	return newPool(t, o)
}

// connected acquires a lease and has its client connect.
func connected(t *testing.T, p *Pool, r Request) *Lease {
	t.Helper()
	l, err := p.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Client().Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // for the news of it
	return l
}

func key(name string) Request { return Request{Key: Key{Isolation: name}} }

func legacy() *mcptest.Server {
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "echo", Call: mcptest.Echo()}}}
}

func TestABusyStatelessTargetGetsMoreConnectionsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{MaxConnections: 3, IdleTimeout: time.Minute})
		p.Start()
		synctest.Wait()
		var leases []*Lease
		for range 30 {
			leases = append(leases, acquire(t, p))
			synctest.Wait()
		}
		if got := p.Stat().Connections; got != 3 || f.count() != 3 {
			t.Errorf("%d connections of %d clients, want 3", got, f.count())
		}
		on := map[*mcpclient.Client]int{}
		for _, l := range leases {
			on[l.Client()]++
		}
		for _, n := range on {
			if n != 10 {
				t.Errorf("%d of 30 calls on one of three connections", n)
			}
		}
		for _, l := range leases {
			l.Release()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := p.Stat(); got.Connections != 1 || got.Evicted != 2 {
			t.Errorf("after the idle time: %+v, want one connection", got)
		}
	})
}

func TestAnIdleTargetKeepsToItsFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{MaxConnections: 8})
		p.Start()
		for range 50 {
			connected(t, p, Request{}).Release()
		}
		if f.count() != 1 || f.server.Count("initialize") != 1 {
			t.Errorf("%d clients and %d sessions for calls one after the other", f.count(), f.server.Count("initialize"))
		}
	})
}

func TestTheCapOfOneConnectionQueuesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{Mode: ModePerKey, MaxInFlightPerConnection: 1})
		a := connected(t, p, key("a"))
		var order []string
		var wg sync.WaitGroup
		wg.Go(func() {
			l, err := p.Acquire(t.Context(), key("a"))
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "second a")
			l.Release()
		})
		synctest.Wait()
		connected(t, p, key("b")).Release() // another key does not wait behind it
		order = append(order, "b")
		a.Release()
		wg.Wait()
		if diff := cmp.Diff([]string{"b", "second a"}, order); diff != "" {
			t.Error(diff)
		}
	})
}

func TestEachKeyHasAConnectionOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{Mode: ModePerKey, IdleTimeout: time.Minute})
		p.Start()
		clients := map[*mcpclient.Client]string{}
		for range 3 {
			for _, r := range []Request{key("a"), key("b"), {Key: Key{Isolation: "a", Profile: "x"}}, {Key: Key{Isolation: "a", Credential: "x"}}} {
				l := connected(t, p, r)
				name := fmt.Sprint(r)
				if was, ok := clients[l.Client()]; ok && was != name {
					t.Errorf("%s and %s share a connection", was, name)
				}
				clients[l.Client()] = name
				l.Release()
			}
		}
		if len(clients) != 4 || f.server.Count("initialize") != 4 || p.Stat().Keys != 4 {
			t.Errorf("%d clients, %d sessions, %+v; want 4 of each", len(clients), f.server.Count("initialize"), p.Stat())
		}
		if got := p.Status().State; got != StateReady {
			t.Errorf("state = %v", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := p.Stat(); got.Keys != 0 || got.Evicted != 4 || f.server.Count("DELETE") != 4 || len(p.groups) != 0 {
			t.Errorf("after the idle time: %+v with %d deleted sessions", got, f.server.Count("DELETE"))
		}
		if got := p.Status(); got.State != StateReady || got.Server == nil {
			t.Errorf("status = %+v, want ready and what the server told", got)
		}
	})
}

func TestAKeyPastTheCapIsRefusedAndAnIdleOneMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{Mode: ModePerKey, MaxConnections: 2, IdleTimeout: time.Minute})
		a := connected(t, p, key("a"))
		connected(t, p, key("b")).Release()
		_, err := p.Acquire(t.Context(), key("c"))
		if e := wantKind(t, err, mcpclient.KindOverloaded); e.RetryAfter <= 0 || !strings.Contains(e.Message, "pool.max_connections") {
			t.Errorf("error = %+v", e)
		}
		if len(p.groups) != 2 {
			t.Errorf("%d groups: a refused key is remembered", len(p.groups))
		}
		connected(t, p, key("b")).Release() // a key that has a connection goes on
		time.Sleep(90 * time.Second)
		synctest.Wait()
		connected(t, p, key("c")).Release()
		if got := p.Stat(); got.Keys != 2 || got.Rejected != 1 || got.Evicted != 1 {
			t.Errorf("stat = %+v", got)
		}
		a.Release()
	})
}

func TestEachCallHasAConnectionOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{Mode: ModePerCall, MaxConnections: 2})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				l, err := p.Acquire(t.Context(), Request{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Client().Connect(t.Context()); err != nil {
					t.Error(err)
				}
				p.mu.Lock()
				if l.member.inFlight != 1 || p.usual.open > 2 {
					t.Errorf("%d calls on a connection, %d connections", l.member.inFlight, p.usual.open)
				}
				p.mu.Unlock()
				l.Release()
			})
		}
		wg.Wait()
		synctest.Wait()
		if f.server.Count("initialize") != 20 || f.server.Count("DELETE") != 20 || p.usual.open != 0 {
			t.Errorf("%d sessions, %d deleted, %d open", f.server.Count("initialize"), f.server.Count("DELETE"), p.usual.open)
		}
	})
}

func TestAnExclusiveLeaseIsAloneAndItsConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{MaxExclusive: 2, IdleTimeout: time.Minute})
		p.Start()
		interactive := Request{Key: Key{Profile: "all"}, Exclusive: true}
		usual := connected(t, p, Request{})
		a, b := connected(t, p, interactive), connected(t, p, interactive)
		if a.Client() == b.Client() || a.Client() == usual.Client() {
			t.Error("exclusive leases share a connection")
		}
		_, err := p.Acquire(t.Context(), interactive)
		if e := wantKind(t, err, mcpclient.KindOverloaded); !strings.Contains(e.Message, "pool.max_interactive") {
			t.Errorf("error = %+v", e)
		}
		kept := a.Client()
		a.Release()
		if again := connected(t, p, interactive); again.Client() != kept {
			t.Error("the idle connection of the key was not used again")
		} else {
			again.Release()
		}
		other := connected(t, p, Request{Key: Key{Profile: "other"}, Exclusive: true}) // takes the idle one's place
		if got := p.Stat(); got.Interactive != 2 || got.Evicted != 1 {
			t.Errorf("stat = %+v", got)
		}
		for _, l := range []*Lease{b, other, usual} {
			l.Release()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := p.Stat(); got.Interactive != 0 || got.Connections != 1 {
			t.Errorf("after the idle time: %+v", got)
		}
	})
}

func TestADiscardedConnectionIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{})
		p.Start()
		usual := connected(t, p, Request{})
		usual.Discard() // it is shared: nothing happens
		interactive := Request{Key: Key{Profile: "all"}, Exclusive: true}
		first := connected(t, p, interactive)
		first.Discard()
		if err := first.Client().Connect(t.Context()); err != nil {
			t.Errorf("a discarded connection ended under its call: %v", err)
		}
		second := connected(t, p, interactive)
		if second.Client() == first.Client() {
			t.Error("a discarded connection was used again")
		}
		first.Release()
		first.Discard()
		second.Release()
		usual.Release()
		synctest.Wait()
		if got := p.Stat(); got.Connections != 2 || got.Interactive != 1 || f.server.Count("DELETE") != 1 {
			t.Errorf("stat = %+v, %d sessions deleted", got, f.server.Count("DELETE"))
		}
	})
}

func TestAnOldConnectionIsReplacedBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{MaxLifetime: time.Hour})
		p.Start()
		first := connected(t, p, Request{})
		f.setRefuse(true) // the successor cannot connect: the old one stays
		time.Sleep(70 * time.Minute)
		synctest.Wait()
		if l := acquire(t, p); l.Client() != first.Client() {
			t.Error("the old connection went before its successor was there")
		} else {
			l.Release()
		}
		f.setRefuse(false)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		second := connected(t, p, Request{})
		if second.Client() == first.Client() {
			t.Error("the old connection was not replaced")
		}
		if err := first.Client().Connect(t.Context()); err != nil {
			t.Errorf("a call on the old connection: %v", err)
		}
		first.Release()
		synctest.Wait()
		if got := p.Stat(); got.Connections != 1 || got.InFlight != 1 || f.server.Count("DELETE") != 1 {
			t.Errorf("stat = %+v, %d sessions deleted", got, f.server.Count("DELETE"))
		}
		second.Release()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.states[1:] {
			if s != StateReady && s != StateSuspect {
				t.Errorf("states = %v: a replacement must not be seen", f.states)
			}
		}
	})
}

func TestStatesOfATargetAreToldInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p := f.pool(t, Options{})
		p.Start()
		connected(t, p, Request{}).Release()
		f.server.SetDown(true)
		l := acquire(t, p)
		_, _ = l.Client().CallTool(t.Context(), "echo", nil, nil) // finds out
		l.Release()
		synctest.Wait()
		if got := p.Status(); got.State != StateReconnecting || got.NextAttempt.IsZero() {
			t.Errorf("status = %+v", got)
		}
		f.server.SetDown(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := p.Status(); got.State != StateReady || got.LastError == nil {
			t.Errorf("status = %+v, want ready with the reason of the loss", got)
		}
		held := acquire(t, p)
		closed := make(chan error)
		go func() { closed <- p.Close(context.Background()) }()
		synctest.Wait()
		if got := p.Status().State; got != StateDraining {
			t.Errorf("state = %v", got)
		}
		held.Release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		var seen []State
		for i, s := range f.states {
			if i == 0 || s != f.states[i-1] {
				seen = append(seen, s)
			}
		}
		want := []State{StateConnecting, StateReady, StateReconnecting, StateReady, StateDraining, StateClosed}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Error(diff)
		}
	})
}

func TestClosingEndsConnectionsThatWereOnTheirWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, legacy())
		p, err := New(Options{New: f.New, Mode: ModePerKey, MaxLifetime: time.Minute, IdleTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		busy := connected(t, p, key("a"))
		time.Sleep(5 * time.Minute) // old, but in use
		synctest.Wait()
		if busy.member.gone {
			t.Error("a connection in use was taken from its key")
		}
		p.mu.Lock()
		p.removeLocked(busy.member)
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = p.Close(ctx)
		if err := busy.Client().Connect(t.Context()); err == nil {
			t.Error("a connection outlived its pool")
		}
		busy.Release()
	})
}

func TestAClientThatCannotBeMadeIsTheCallersError(t *testing.T) {
	broken := errors.New("broken")
	fail := false
	p := newPool(t, Options{Mode: ModePerKey, New: func(m Member) (*mcpclient.Client, error) {
		if fail {
			return nil, broken
		}
		return lazyClient(m)
	}})
	fail = true
	if _, err := p.Acquire(t.Context(), key("a")); !errors.Is(err, broken) {
		t.Errorf("Acquire = %v", err)
	}
	fail = false
	l, err := p.Acquire(t.Context(), key("a"))
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}

func TestAPoolLooksForOldConnectionsOnlyIfThereCanBeAny(t *testing.T) {
	for name, tc := range map[string]struct {
		options Options
		want    bool
	}{
		"one connection, which may be idle": {Options{IdleTimeout: time.Minute}, false},
		"one connection, which gets old":    {Options{MaxLifetime: time.Minute}, true},
		"neither":                           {Options{}, false},
	} {
		p := newPool(t, tc.options)
		p.Start()
		p.mu.Lock()
		if got := p.sweeper != nil; got != tc.want {
			t.Errorf("%s: it looks for old connections: %v, want %v", name, got, tc.want)
		}
		p.mu.Unlock()
	}
}

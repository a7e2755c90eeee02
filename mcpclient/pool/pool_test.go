package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lazyClient never connects unless it is called.
func lazyClient(m Member) (*mcpclient.Client, error) {
	return mcpclient.New(&transport.HTTP{URL: "http://127.0.0.1:1/mcp"}, mcpclient.Options{Lazy: true, OnState: m.OnState, ConnectGate: m.Gate})
}

// newPool returns a pool that the test closes; on a lazyClient by default.
func newPool(t *testing.T, o Options) *Pool {
	t.Helper()
	if o.New == nil {
		o.New = lazyClient
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func acquire(t *testing.T, p *Pool) *Lease {
	t.Helper()
	l, err := p.Acquire(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantKind(t *testing.T, err error, kind mcpclient.Kind) *mcpclient.Error {
	t.Helper()
	e, ok := errors.AsType[*mcpclient.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("error = %v, want kind %v", err, kind)
	}
	if !e.SafeToRetry || e.Sent {
		t.Errorf("%v: nothing was sent, so it is safe to retry", err)
	}
	return e
}

func TestLeasesAreCountedAndReleasedOnce(t *testing.T) {
	p := newPool(t, Options{MaxInFlight: 2, MaxQueue: mcpclient.Unlimited})
	a, b := acquire(t, p), acquire(t, p)
	if a.Client() == nil || a.Client() != b.Client() {
		t.Error("all leases share one client")
	}
	if diff := cmp.Diff(Stat{InFlight: 2, MaxConnections: 1, MaxInFlight: 2, MaxQueue: -1}, p.Stat()); diff != "" {
		t.Error(diff)
	}
	a.Release()
	a.Release()
	if got := p.Stat().InFlight; got != 1 {
		t.Errorf("in flight after a double release = %d, want 1", got)
	}
	b.Release()
}

func TestZeroLimitsAreTheDefaultsAndNegativeOnesAreRefused(t *testing.T) {
	if got := newPool(t, Options{}).Stat(); got.MaxInFlight != 1024 || got.MaxQueue != 1024 {
		t.Errorf("defaults = %+v", got)
	}
	unlimited := newPool(t, Options{MaxInFlight: mcpclient.Unlimited})
	for range 3000 {
		defer acquire(t, unlimited).Release()
	}
	for _, o := range []Options{{MaxInFlight: -2}, {MaxQueue: -2}, {MaxInFlightPerConnection: -2}, {MaxConnections: -2}, {MaxExclusive: -2}} {
		o.New = func(Member) (*mcpclient.Client, error) { return nil, nil }
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "-2") {
			t.Errorf("New(%+v) = %v, want an error naming -2", o, err)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("New without Options.New must fail")
	}
	broken := errors.New("broken")
	if _, err := New(Options{New: func(Member) (*mcpclient.Client, error) { return nil, broken }}); !errors.Is(err, broken) {
		t.Errorf("New = %v, want the client's error", err)
	}
}

func TestWaitersAreServedInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Options{MaxInFlight: 1})
		held := acquire(t, p)
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				l := acquire(t, p)
				order = append(order, i) // the lease is the lock
				l.Release()
			})
			synctest.Wait()
		}
		if got := p.Stat(); got.Queued != 5 || got.Waits != 5 || got.InFlight != 1 {
			t.Errorf("stat = %+v", got)
		}
		held.Release()
		wg.Wait()
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4}, order); diff != "" {
			t.Error(diff)
		}
		if got := p.Stat(); got.Queued != 0 || got.InFlight != 0 {
			t.Errorf("stat = %+v", got)
		}
	})
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Options{MaxInFlight: 1, MaxQueue: 1})
		held := acquire(t, p)
		var wg sync.WaitGroup
		wg.Go(func() { acquire(t, p).Release() })
		synctest.Wait()
		_, err := p.Acquire(t.Context(), Request{})
		if e := wantKind(t, err, mcpclient.KindOverloaded); e.RetryAfter <= 0 || !strings.Contains(e.Message, "pool.max_in_flight") {
			t.Errorf("error = %+v", e)
		}
		if got := p.Stat().Rejected; got != 1 {
			t.Errorf("rejected = %d", got)
		}
		held.Release()
		wg.Wait()
	})
}

func TestTheCallersDeadlineBoundsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Options{MaxInFlight: 1})
		held := acquire(t, p)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := p.Acquire(ctx, Request{})
		_ = wantKind(t, err, mcpclient.KindTimeout)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited %v, want 5s", waited)
		}
		_, err = p.Acquire(ctx, Request{})
		_ = wantKind(t, err, mcpclient.KindTimeout)

		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		_, err = p.Acquire(gone, Request{})
		_ = wantKind(t, err, mcpclient.KindCanceled)
		if got := p.Stat(); got.Queued != 0 || got.InFlight != 1 {
			t.Errorf("those who left are still counted: %+v", got)
		}
		held.Release()
		acquire(t, p).Release()
	})
}

func TestALeaseGrantedToALeavingCallerGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Options{MaxInFlight: 1})
		held := acquire(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if l, err := p.Acquire(ctx, Request{}); err == nil {
				l.Release()
			}
		})
		synctest.Wait()
		wg.Go(func() { acquire(t, p).Release() })
		synctest.Wait()
		cancel() // at the same instant as the release: either side may win
		held.Release()
		wg.Wait()
		if got := p.Stat(); got.InFlight != 0 || got.Queued != 0 {
			t.Errorf("stat = %+v", got)
		}
	})
}

func TestCloseFailsTheQueueAndWaitsForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Options{MaxInFlight: 1})
		held := acquire(t, p)
		queued := make(chan error, 1)
		go func() {
			_, err := p.Acquire(context.Background(), Request{})
			queued <- err
		}()
		synctest.Wait()
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- p.Close(t.Context()) }()
		}
		_ = wantKind(t, <-queued, mcpclient.KindClosed)
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("Close returned while a lease was out")
		}
		_, err := p.Acquire(t.Context(), Request{})
		_ = wantKind(t, err, mcpclient.KindClosed)
		held.Release()
		for range 2 {
			if err := <-closed; err != nil {
				t.Errorf("Close = %v", err)
			}
		}
		if got := p.Status().State; got != StateClosed {
			t.Errorf("state = %v", got)
		}
	})
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Options{New: lazyClient})
		if err != nil {
			t.Fatal(err)
		}
		held := acquire(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_ = p.Close(ctx) // whether the client had time is its own matter
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("Close took %v, want 3s", waited)
		}
		held.Release()
		held.Release()
	})
}

func TestTheCapHoldsUnderLoad(t *testing.T) {
	const limit = 7
	p := newPool(t, Options{MaxInFlight: limit, MaxQueue: 20})
	var running, most atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(50))*time.Microsecond)
				l, err := p.Acquire(ctx, Request{})
				cancel()
				if err != nil {
					continue
				}
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				running.Add(-1)
				l.Release()
			}
		})
	}
	wg.Wait()
	if got := p.Stat(); most.Load() > limit || got.InFlight != 0 || got.Queued != 0 {
		t.Errorf("most at once = %d, stat = %+v", most.Load(), got)
	}
}

func TestThePoolShowsTheClientsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url, hc := mcptest.StartMemoryHTTP(t, &mcptest.Server{Tools: []mcptest.Tool{{Name: "echo", Call: mcptest.Echo()}}})
		p := newPool(t, Options{New: func(m Member) (*mcpclient.Client, error) {
			return mcpclient.New(&transport.HTTP{URL: url, Client: hc}, mcpclient.Options{OnState: m.OnState})
		}})
		if got := p.Stat().Connections; got != 0 {
			t.Errorf("connections before Start = %d", got)
		}
		p.Start()
		l := acquire(t, p)
		defer l.Release()
		if err := l.Client().Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the news of it
		if got := p.Stat().Connections; got != 1 {
			t.Errorf("connections = %d, want 1", got)
		}
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	p, err := New(Options{New: lazyClient})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		l, err := p.Acquire(b.Context(), Request{})
		if err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
	if err := p.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func TestWaitsForALeaseAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type wait struct {
			Caller string
			Took   time.Duration
			Kind   string
		}
		type callerKey struct{}
		var mu sync.Mutex // guards waits
		var waits []wait
		p := newPool(t, Options{MaxInFlight: 1, OnWait: func(ctx context.Context) func(error) {
			name, _ := ctx.Value(callerKey{}).(string)
			began := time.Now()
			return func(err error) {
				kind := "none"
				if e, ok := errors.AsType[*mcpclient.Error](err); ok {
					kind = e.Kind.String()
				}
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, wait{name, time.Since(began), kind})
			}
		}})
		first := acquire(t, p) // does not wait
		var callers sync.WaitGroup
		for name, patience := range map[string]time.Duration{"hurried": time.Second, "patient": time.Minute} {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), callerKey{}, name), patience)
				defer cancel()
				if lease, err := p.Acquire(ctx, Request{}); err == nil {
					lease.Release()
				}
			})
		}
		time.Sleep(3 * time.Second)
		first.Release()
		callers.Wait()
		want := []wait{{"hurried", time.Second, "timeout"}, {"patient", 3 * time.Second, "none"}}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

package balance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func modernServer(int) *mcptest.Server {
	return &mcptest.Server{Tools: []mcptest.Tool{{Name: "echo", Call: mcptest.Echo()}}}
}

func TestModernCallsAreSpreadOverAllReplicas(t *testing.T) {
	nodes, servers := mcp(t, 3, modernServer)
	c := over(t, urls(nodes), Options{}).client(t)
	const n = 90
	for range n {
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for i, s := range servers {
		got := s.Count("tools/call")
		if total += got; got < n/3-5 || got > n/3+5 {
			t.Errorf("replica %d got %d of %d calls", i, got, n)
		}
	}
	if total != n {
		t.Errorf("%d calls arrived, want %d", total, n)
	}
}

func TestABusyReplicaGetsNoFurtherCalls(t *testing.T) {
	leave, held := make(chan struct{}), make(chan int, 1)
	var others [2]atomic.Int32
	var list []string
	for i := range others {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Method") == "slow" {
				held <- i
				<-leave
			} else {
				others[i].Add(1)
			}
			answer(w)
		}))
		defer server.Close()
		list = append(list, server.URL)
	}
	tg := over(t, list, Options{})
	conn, slow := tg.dial(t), tg.dial(t)
	done := make(chan error, 1)
	go func() {
		_, err := slow.Call(t.Context(), modern("slow"))
		done <- err
	}()
	busy := <-held
	for range 20 {
		if _, err := conn.Call(t.Context(), modern("tools/call")); err != nil {
			t.Fatal(err)
		}
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := others[busy].Load(); got != 0 {
		t.Errorf("the busy replica got %d of 20 calls", got)
	}
	for _, r := range tg.lb.tripper.replicas {
		if load := r.load.Load(); load != 0 {
			t.Errorf("%s counts %d requests in flight, none is", r.url.Host, load)
		}
	}
}

func TestCallsGoOnWhileAReplicaIsDownAndReachItWhenItIsBack(t *testing.T) {
	nodes, servers := mcp(t, 2, modernServer)
	tg := over(t, urls(nodes), Options{})
	c := tg.client(t)
	call := func() {
		t.Helper()
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		call()
	}
	nodes[0].stop()
	tg.base.CloseIdleConnections() // a call on one of them would be lost
	before := servers[1].Count("tools/call")
	for range 50 {
		call()
	}
	if got := servers[1].Count("tools/call") - before; got != 50 {
		t.Errorf("the replica that is left got %d of 50 calls", got)
	}
	nodes[0].start()
	begin, before := time.Now(), servers[0].Count("tools/call")
	for servers[0].Count("tools/call") == before {
		if call(); time.Since(begin) > 20*time.Second {
			t.Fatal("the replica that is back is not used")
		}
	}
	t.Logf("used again after %v", time.Since(begin))
	before = servers[0].Count("tools/call")
	for range 50 {
		call()
	}
	if got := servers[0].Count("tools/call") - before; got < 20 {
		t.Errorf("the replica that is back got %d of 50 calls", got)
	}
}

func TestCallsRunAtMostOnceWhileReplicasComeAndGo(t *testing.T) {
	var mu sync.Mutex
	ran := map[string]int{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		ran[r.Header.Get("Call")]++
		mu.Unlock()
		answer(w)
	})
	nodes := []*node{startNode(t, handler), startNode(t, handler)}
	tg := over(t, urls(nodes), Options{})
	var wg sync.WaitGroup
	left := make(chan struct{})
	const workers, calls = 4, 300
	for w := range workers {
		conn := tg.dial(t)
		wg.Go(func() {
			for n := range calls {
				r, name := modern("tools/call"), fmt.Sprintf("%d-%d", w, n)
				r.Header = http.Header{"Call": {name}}
				_, err := conn.Call(t.Context(), r)
				mu.Lock()
				times := ran[name]
				mu.Unlock()
				e, _ := errors.AsType[*transport.Error](err)
				switch {
				case err == nil && times != 1, times > 1:
					t.Errorf("call %s ran %d times (error %v)", name, times, err)
				case err != nil && (e == nil || e.Kind != transport.Lost):
					t.Errorf("call %s: %v; a replica was there all the time", name, err)
				}
			}
		})
	}
	go func() { wg.Wait(); close(left) }()
	for i := 0; ; i++ {
		n := nodes[i%2]
		n.stop()
		n.start()
		mu.Lock()
		before := len(ran)
		mu.Unlock()
		for { // until some calls have passed
			mu.Lock()
			now := len(ran)
			mu.Unlock()
			if now >= before+20 {
				break
			}
			select {
			case <-left:
				return
			default:
				runtime.Gosched()
			}
		}
	}
}

func TestARequestThatNoReplicaAcceptsWasNotSent(t *testing.T) {
	list := []string{refusing(t), refusing(t), refusing(t)}
	conn := over(t, list, Options{}).dial(t)
	for range 3 { // also once they are known to be down
		_, err := conn.Call(t.Context(), modern("tools/call"))
		e := wantKind(t, err, transport.NotSent)
		for _, u := range list {
			if host := strings.TrimSuffix(strings.TrimPrefix(u, "http://"), "/mcp"); !strings.Contains(e.Message, host) {
				t.Errorf("message %q does not name %s", e.Message, host)
			}
		}
	}
}

func TestOneURLFailsAsItDoesWithoutABalancer(t *testing.T) {
	u := refusing(t)
	_, err := over(t, []string{u}, Options{}).dial(t).Call(t.Context(), modern("tools/call"))
	balanced := wantKind(t, err, transport.NotSent)
	plain := &target{HTTP: &transport.HTTP{URL: u, SSEFallback: transport.SSENever}}
	_, err = plain.dial(t).Call(t.Context(), modern("tools/call"))
	if alone := wantKind(t, err, transport.NotSent); balanced.Message != alone.Message {
		t.Errorf("message %q, without a balancer %q", balanced.Message, alone.Message)
	}
}

func TestARequestThatMayHaveBeenReadGoesToNoOtherReplica(t *testing.T) {
	var arrived atomic.Int32
	hangUp := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		panic(http.ErrAbortHandler)
	})
	a, b := httptest.NewServer(hangUp), httptest.NewServer(hangUp)
	defer a.Close()
	defer b.Close()
	conn := over(t, []string{a.URL, b.URL}, Options{}).dial(t)
	for i := range int32(4) {
		_, err := conn.Call(t.Context(), modern("tools/call"))
		_ = wantKind(t, err, transport.Lost)
		if got := arrived.Load(); got != i+1 {
			t.Fatalf("%d requests arrived for %d calls", got, i+1)
		}
	}
}

func TestALostConnectionIsNamedByTheHostOfItsReplica(t *testing.T) {
	hangUp := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	a, b := httptest.NewServer(hangUp), httptest.NewServer(hangUp)
	defer a.Close()
	defer b.Close()
	conn := over(t, []string{a.URL, b.URL}, Options{}).dial(t)
	var said strings.Builder
	for range 2 {
		_, err := conn.Call(t.Context(), modern("tools/call"))
		said.WriteString(err.Error())
	}
	for _, s := range []*httptest.Server{a, b} {
		if host := s.Listener.Addr().String(); !strings.Contains(said.String(), "the connection to "+host+" ended") {
			t.Errorf("%s is not named in %q", host, said.String())
		}
	}
}

func TestAReplicaThatAnswersNoConnectionIsGivenUpInTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	defer server.Close()
	var hung atomic.Int32
	tg := over(t, []string{"http://192.0.2.1:80", server.URL}, Options{ConnectTimeout: 50 * time.Millisecond}, func(base *http.Transport) {
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "192.0.2.1:80" {
				hung.Add(1)
				<-ctx.Done()
				return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
			}
			return dial(ctx, network, address)
		}
	})
	conn := tg.dial(t)
	for range 4 {
		if _, err := conn.Call(t.Context(), modern("tools/call")); err != nil {
			t.Fatal(err)
		}
	}
	if hung.Load() == 0 {
		t.Error("the silent replica was never tried")
	}
}

func TestACallThatEndsWhileItWaitsForAReplicaWasNotSent(t *testing.T) {
	started := make(chan struct{}, 9)
	tg := over(t, []string{"http://192.0.2.1:80", "http://192.0.2.2:80"}, Options{}, func(base *http.Transport) {
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			started <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	_, err := tg.dial(t).Call(ctx, modern("tools/call"))
	if err == nil || !strings.Contains(fmt.Sprint(err), transport.ErrUnsent.Error()) {
		t.Errorf("error %v, want one that wraps ErrUnsent", err)
	}
}

func TestAClosedBalancerSendsNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }))
	defer server.Close()
	lb, err := New([]string{server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	early := &target{HTTP: &transport.HTTP{URL: server.URL, SSEFallback: transport.SSENever, Wrap: lb.Wrap}}
	conn := early.dial(t)
	for range 2 {
		if err := lb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, err = conn.Call(t.Context(), modern("tools/call"))
	_ = wantKind(t, err, transport.NotSent)
	late := &target{HTTP: &transport.HTTP{URL: server.URL, SSEFallback: transport.SSENever, Wrap: lb.Wrap}}
	_, err = late.dial(t).Call(t.Context(), modern("tools/call"))
	_ = wantKind(t, err, transport.NotSent)
}

func TestCloseWaitsForRequestsOnlyAsLongAsItMay(t *testing.T) {
	leave := make(chan struct{})
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-leave
		answer(w)
	}))
	defer server.Close()
	tg := over(t, []string{server.URL}, Options{})
	conn := tg.dial(t)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Call(t.Context(), modern("tools/call"))
		done <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tg.lb.Close(ctx); err == nil {
		t.Error("Close did not tell that a request is under way")
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("the request under way failed: %v", err)
	}
}

func TestARequestOfAnotherClientIsRefused(t *testing.T) {
	lb, err := New([]string{"http://a/"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lb.Close(t.Context()) }()
	client := &http.Client{Transport: lb.Wrap(new(http.Transport))}
	if _, err := client.Get("http://a/"); err == nil || !strings.Contains(err.Error(), errForeign.Error()) {
		t.Errorf("error %v", err)
	}
}

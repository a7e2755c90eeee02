package mcpclient_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// nowhere is a transport to a server that is down.
type nowhere struct{}

func (nowhere) Name() string { return transport.NameHTTP }
func (nowhere) Dial(context.Context, transport.Handler) (transport.Conn, error) {
	return nil, &transport.Error{Kind: transport.NotSent, Message: "nothing listens there"}
}

// switchable fails to dial until it is up.
type switchable struct {
	transport.Transport
	up    atomic.Bool
	dials atomic.Int32
	slow  time.Duration // how long a failing dial takes
}

func (s *switchable) Dial(ctx context.Context, h transport.Handler) (transport.Conn, error) {
	s.dials.Add(1)
	if s.up.Load() {
		return s.Transport.Dial(ctx, h)
	}
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
	}
	return nil, &transport.Error{Kind: transport.NotSent, Message: "nothing listens there"}
}

func TestADeadServerIsTriedAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		url, client := mcptest.StartMemoryHTTP(t, s)
		tr := &switchable{Transport: &transport.HTTP{URL: url, Client: client}}
		var mu sync.Mutex
		var states []mcpclient.State
		c := newClient(t, tr, mcpclient.Options{OnState: func(st mcpclient.Status) {
			mu.Lock()
			defer mu.Unlock()
			if n := len(states); n == 0 || states[n-1] != st.State {
				states = append(states, st.State)
			}
		}})
		c.Start()
		c.Start() // has no effect
		synctest.Wait()
		e := wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "nothing listens there")
		if !e.SafeToRetry || e.RetryAfter < 4*time.Second || e.RetryAfter > 6*time.Second {
			t.Errorf("the next attempt is due in %v, want about 5s", e.RetryAfter)
		}
		time.Sleep(10 * time.Minute)
		if n := tr.dials.Load(); n < 10 || n > 16 {
			t.Errorf("%d attempts in ten minutes, want 5s, 10s, 20s, 40s, then every minute", n)
		}
		tr.up.Store(true)
		time.Sleep(70 * time.Second)
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(states, []mcpclient.State{mcpclient.StateConnecting, mcpclient.StateReconnecting, mcpclient.StateReady}) {
			t.Errorf("the states were %v", states)
		}
	})
}

func TestTheFirstConnectionIsSharedAndOutlivesWhoAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Discover = mcptest.Delay(3*time.Second, nil)
		c := overHTTP(t, s, mcpclient.Options{Lazy: true})
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = wantKind(t, c.Connect(ctx), mcpclient.KindTimeout, "caller's deadline")
		})
		for range 20 {
			wg.Go(func() {
				if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.Count("server/discover") != 1 {
			t.Errorf("%d handshakes, want one for all", s.Count("server/discover"))
		}
	})
}

func TestCallersAreNotHeldWhileAFailedServerIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &switchable{slow: 20 * time.Second}
		c := newClient(t, namedHTTP{tr}, mcpclient.Options{})
		c.Start()
		start := time.Now()
		_ = wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "")
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("the first connection is waited for: %v", took)
		}
		time.Sleep(7 * time.Second) // into the second attempt
		start = time.Now()
		e := wantKind(t, c.Connect(t.Context()), mcpclient.KindUnavailable, "")
		if took := time.Since(start); took != 0 || e.RetryAfter <= 0 {
			t.Errorf("it took %v to say so, retry after %v", took, e.RetryAfter)
		}
	})
}

// namedHTTP gives a switchable without a transport below it a name.
type namedHTTP struct{ *switchable }

func (namedHTTP) Name() string { return transport.NameHTTP }

func TestAForgottenSessionIsReplacedAndTheCallRunsOnce(t *testing.T) {
	for name, reply := range map[string]*mcptest.Reply{
		"empty body":   {Status: 404},
		"a page":       {Status: 404, ContentType: "text/html", Body: "<h1>gone</h1>"},
		"id null":      {Status: 404, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`},
		"a foreign id": {Status: 404, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32002,"message":"no"}}`},
		"text":         {Status: 404, ContentType: "text/plain", Body: "Invalid session ID"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := features(mcptest.Legacy)
				s.Session.Unknown = reply
				c := overHTTP(t, s, mcpclient.Options{})
				for round := range 3 {
					if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
					s.ExpireSessions()
				}
				if n := s.Count("initialize"); n != 3 {
					t.Errorf("%d handshakes, want 3", n)
				}
				if st := c.Status(); st.Connects != 3 {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

func TestASessionForgottenWith400IsReplacedWithoutRepeatingATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Session.Unknown = &mcptest.Reply{Status: 400, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`}
		c := overHTTP(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		s.ExpireSessions()
		_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindRPC, "-32000")
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		s.ExpireSessions()
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Errorf("a safe method is repeated: %v", err)
		}
		if n := s.Count("initialize"); n != 3 {
			t.Errorf("%d handshakes, want 3", n)
		}
	})
}

func TestALiveSessionSurvivesAToolThatAnswers400(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Fail(-32000, "no", nil, 400)}
		c := overHTTP(t, s, mcpclient.Options{})
		for range 3 {
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindRPC, "-32000")
		}
		if s.Count("initialize") != 1 {
			t.Error("the session was replaced although it lives")
		}
	})
}

func TestACallInFlightSurvivesWhatAnotherFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		gate := make(chan struct{})
		s.Tools = append(s.Tools, mcptest.Tool{Name: "slow", Call: mcptest.After(gate, mcptest.Respond(mcptest.Text("done")))})
		s.Status = func(method string, n int) *mcptest.Reply {
			if method == "tools/call" && n == 2 { // as a balancer that changed its mind answers
				return &mcptest.Reply{Status: 404}
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		slow := make(chan error, 1)
		go func() { slow <- errOf(c.CallTool(t.Context(), "slow", nil, nil)) }()
		if _, err := s.WaitFor(t.Context(), "tools/call", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		close(gate)
		if err := <-slow; err != nil {
			t.Errorf("the call in flight failed: %v", err)
		}
		synctest.Wait()
		if s.Count("initialize") != 2 {
			t.Errorf("want a new session: %v", s.Methods())
		}
	})
}

func TestCloseEndsConnectionsThatWereReplacedAndAreStillInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Status = func(method string, n int) *mcptest.Reply {
			if method == "tools/call" && n == 2 {
				return &mcptest.Reply{Status: 404}
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		stuck := make(chan error, 1)
		go func() { stuck <- errOf(c.CallTool(context.Background(), "stuck", nil, nil)) }()
		if _, err := s.WaitFor(t.Context(), "tools/call", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil || c.Status().Connects != 2 {
			t.Fatalf("%v %+v", err, c.Status())
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = wantKind(t, <-stuck, mcpclient.KindClosed, "")
	})
}

func TestALostConnectionFailsAToolAndRepeatsWhatIsSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Modern)
		s.Handle = map[string]mcptest.Handler{
			"tools/call":     mcptest.Sequence(mcptest.Hangup(), nil),
			"resources/read": mcptest.Sequence(mcptest.Hangup(), nil),
			"prompts/get":    mcptest.Hangup(),
		}
		c := overHTTP(t, s, mcpclient.Options{})
		e := wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindLost, "")
		if e.SafeToRetry || !e.Sent || s.Count("tools/call") != 1 {
			t.Errorf("a tool may not run twice: %+v, %d calls", e, s.Count("tools/call"))
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil || s.Count("resources/read") != 2 {
			t.Errorf("a read is repeated once: %v, %d", err, s.Count("resources/read"))
		}
		_ = wantKind(t, errOf(c.GetPrompt(t.Context(), "hi", nil, nil)), mcpclient.KindLost, "")
		if n := s.Count("prompts/get"); n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
		if s.Count("server/discover") != 1 {
			t.Error("one lost exchange is no lost server")
		}
	})
}

func TestCloseEndsCallsAndRefusesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		stuck := make(chan error, 1)
		go func() { stuck <- errOf(c.CallTool(context.Background(), "stuck", nil, nil)) }()
		if _, err := s.WaitFor(t.Context(), "tools/call", 1); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(t.Context()), c.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		_ = wantKind(t, <-stuck, mcpclient.KindClosed, "")
		_ = wantKind(t, errOf(c.ListTools(t.Context())), mcpclient.KindClosed, "closed")
		if s.Count(mcptest.MethodDelete) != 1 || c.Status().State != mcpclient.StateClosed {
			t.Errorf("%v %v", s.Methods(), c.Status().State)
		}
	})
}

func TestCloseIsBoundedWhenTheServerNeverAnswersTheDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		block := make(chan struct{})
		defer close(block)
		s.Status = func(method string, _ int) *mcptest.Reply {
			if method == mcptest.MethodDelete {
				<-block
			}
			return nil
		}
		c := overHTTP(t, s, mcpclient.Options{})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_ = c.Close(t.Context())
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

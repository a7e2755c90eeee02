package targets

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// outcome is what a Subscribe in the background came to.
type outcome struct {
	sub *Subscription
	err error
}

func (l *lab) subscribe(i Interest) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		sub, err := l.target("a").Subscribe(l.t.Context(), Caller{}, i)
		if err == nil {
			l.t.Cleanup(sub.Close)
		}
		done <- outcome{sub, err}
	}()
	return done
}

func TestWhatTheServerDoesNotTellOfIsSaid(t *testing.T) {
	nothing := map[string]func(*mcptest.Server){
		"declared without changes": func(s *mcptest.Server) {
			s.Capabilities = `{"tools":{},"resources":{"listChanged":true},"prompts":{}}`
			s.Listen.Subset = `{"resourcesListChanged":true}`
		},
		"no such method": func(s *mcptest.Server) {
			s.Listen.Reject = &mcptest.Error{Code: mcpclient.CodeMethodNotFound, Message: "Method not found"}
			s.Capabilities = `{"tools":{}}`
		},
		"HTTP 404": refusingListen(404),
		"HTTP 405": refusingListen(405),
	}
	for name, change := range nothing {
		for _, era := range eras {
			synctest.Test(t, func(t *testing.T) {
				s := store(era)
				change(s)
				l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
				for _, i := range []Interest{{Tools: true}, {Prompts: true}, uris("file:///1", "file:///2")} {
					got := <-l.subscribe(i)
					e, ok := errors.AsType[*mcpclient.Error](got.err)
					if rejected := ok && e.Kind == mcpclient.KindRPC && e.RPC.Code == mcpclient.CodeMethodNotFound; !ok || e.Kind != mcpclient.KindUnsupported && !rejected {
						t.Errorf("%s, era %v, %+v: %v", name, era, i, got.err)
					}
				}
				synctest.Wait()
				if n := len(l.target("a").feeds.byKey); n != 0 {
					t.Errorf("%d feeds left", n)
				}
			})
		}
	}
}

func refusingListen(status int) func(*mcptest.Server) {
	return func(s *mcptest.Server) {
		s.Capabilities = `{"tools":{}}`
		s.Status = func(method string, _ int) *mcptest.Reply {
			if method == "subscriptions/listen" {
				return &mcptest.Reply{Status: status}
			}
			return nil
		}
	}
}

func TestAPartThatTheServerAgreesToIsServed(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		s.Listen.Subset = `{"toolsListChanged":true,"resourceSubscriptions":["file:///1"]}`
		s.Handle = map[string]mcptest.Handler{"resources/subscribe": func(ctx context.Context, r *mcptest.Request) (any, error) {
			if r.Text("uri") != "file:///1" {
				return nil, &mcptest.Error{Code: mcpclient.CodeResourceNotFound, Message: "Resource not found"}
			}
			return r.Default(ctx)
		}}
		w := l.watcher(Interest{URIs: []string{"file:///2", "file:///1", "file:///2"}})
		if diff := cmp.Diff(uris("file:///1"), w.Agreed()); diff != "" {
			t.Error(diff)
		}
		before := asked(s)
		for range 10 {
			if got := <-l.subscribe(uris("file:///2")); !isKind(mcpclient.KindUnsupported)(got.err) {
				t.Error(got.err)
			}
		}
		if got := asked(s); got != before {
			t.Errorf("asked %d times more for what was just refused", got-before)
		}
		time.Sleep(2 * answerHolds)
		<-l.subscribe(uris("file:///2"))
		if got := asked(s); got == before {
			t.Error("not asked again later")
		}
		update(s, "file:///1")
		w.want(News{URIs: []string{"file:///1"}})
	})
}

func TestARejectionHitsOnlyWhoAskedForIt(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		s.Handle = map[string]mcptest.Handler{"resources/subscribe": rejectBad, "subscriptions/listen": rejectBad}
		first := l.subscribe(uris("file:///1"))
		synctest.Wait()
		other, refused, second, again := l.subscribe(Interest{Tools: true}), l.subscribe(uris("bad:1")), l.subscribe(uris("file:///2")), l.subscribe(uris("bad:1"))
		for _, good := range []<-chan outcome{first, other, second} {
			if got := <-good; got.err != nil {
				t.Error(got.err)
			}
		}
		for _, got := range []outcome{<-refused, <-again} {
			e, ok := errors.AsType[*mcpclient.Error](got.err)
			if !ok || e.Kind != mcpclient.KindUnsupported && (e.Kind != mcpclient.KindRPC || e.RPC.Code != mcpclient.CodeInvalidParams) {
				t.Error(got.err)
			}
		}
		time.Sleep(2 * answerHolds)
		if got := <-l.subscribe(uris("bad:1")); got.err == nil {
			t.Error("accepted")
		}
		if got := <-l.subscribe(uris("file:///3")); got.err != nil {
			t.Error(got.err)
		}
	})
}

func rejectBad(ctx context.Context, r *mcptest.Request) (any, error) {
	timer := time.NewTimer(time.Second) // others arrive meanwhile
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if strings.Contains(string(r.Params), "bad:") {
		return nil, &mcptest.Error{Code: mcpclient.CodeInvalidParams, Message: "bad"}
	}
	return r.Default(ctx)
}

func TestAServerThatIsAwayIsToldAtOnceAndWaitedForByWatchers(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		w := l.watcher(Interest{Tools: true})
		s.SetDown(true)
		s.ExpireSessions()
		time.Sleep(10 * time.Minute)
		got := <-l.subscribe(uris("file:///1"))
		if e, ok := errors.AsType[*mcpclient.Error](got.err); !ok || e.Kind != mcpclient.KindUnavailable || !e.SafeToRetry || e.RetryAfter <= 0 {
			t.Errorf("a new watcher: %v", got.err)
		}
		w.want(News{})
		s.SetDown(false)
		time.Sleep(5 * time.Minute)
		w.want(News{Resync: true})
	})
}

func TestAMissingAcknowledgementIsWaitedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		s.Listen.AckDelay = 20 * time.Second
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		l.watcher(Interest{Tools: true})
		synctest.Wait()
		s.Listen.AckDelay = 10 * time.Minute
		begin := time.Now()
		got := <-l.subscribe(uris("file:///1"))
		if took := time.Since(begin); took != 30*time.Second || !isKind(mcpclient.KindUnavailable)(got.err) {
			t.Errorf("after %v: %v", took, got.err)
		}
		if got := <-l.subscribe(Interest{Tools: true}); got.err != nil {
			t.Error(got.err)
		}
	})
}

func TestWithoutAcknowledgementsWatchersGetWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		w := l.watcher(Interest{Tools: true})
		synctest.Wait()
		s.Listen.NoAck = true
		s.EndSubscriptions()
		time.Sleep(time.Minute)
		w.want(News{Resync: true})
		s.Notify(mcpclient.MethodToolsChanged, nil)
		w.want(News{Tools: true})
	})
}

func TestASubscriptionThatEndsAtOnceIsNotStormed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		w := l.watcher(Interest{Tools: true})
		synctest.Wait()
		before := s.Count("subscriptions/listen")
		s.Listen.End = "graceful"
		s.EndSubscriptions()
		time.Sleep(10 * time.Minute)
		if n := s.Count("subscriptions/listen") - before; n < 10 || n > 100 {
			t.Errorf("%d attempts in ten minutes, by the client itself and for the watcher", n)
		}
		w.want(News{Resync: true})
	})
}

func TestAServerThatEndsInsteadOfAcknowledgingIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		s.Listen.NoAck, s.Listen.End = true, "graceful"
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		got := <-l.subscribe(Interest{Tools: true})
		if !isKind(mcpclient.KindUnavailable)(got.err) || !strings.Contains(got.err.Error(), "before it acknowledged") {
			t.Error(got.err)
		}
	})
}

func TestAWatcherEndsWhenTheServerAgreesToLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		part, all, none := l.watcher(uris("file:///1", "file:///2")), l.watcher(uris("file:///1")), l.watcher(Interest{Tools: true})
		time.Sleep(2 * linger)
		synctest.Wait()
		s.Listen.Subset = `{"resourceSubscriptions":["file:///1"]}`
		s.DropSubscriptions()
		time.Sleep(time.Minute)
		part.wantEnd(isKind(mcpclient.KindLost))
		none.wantEnd(isKind(mcpclient.KindUnsupported))
		all.want(News{Resync: true})
		synctest.Wait()
		s.Listen.Subset, s.Listen.Reject = "", &mcptest.Error{Code: mcpclient.CodeMethodNotFound, Message: "gone"}
		s.DropSubscriptions()
		time.Sleep(time.Minute)
		all.wantEnd(isKind(mcpclient.KindRPC))
	})
}

func TestWatchersGoOnAtTheTargetThatTookOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, other := store(mcptest.Modern), store(mcptest.Legacy)
		l := newLab(t, map[string]*mcptest.Server{"a": old, "b": other}, conf("a=a"))
		l.Start()
		first := l.target("a")
		one, two := l.watcher(uris("file:///1")), l.watcher(uris("file:///1"))
		tools := l.watcher(Interest{Tools: true})
		time.Sleep(2 * linger)
		l.reload(conf("a=b"), Changes{Changed: []string{"a"}})
		time.Sleep(time.Minute)
		for _, w := range []watcher{one, two, tools} {
			w.want(News{Resync: true})
		}
		if n := old.Subscriptions(); n != 0 || other.Count("resources/subscribe") != 1 {
			t.Errorf("%d left at the old one, %d at the new one", n, other.Count("resources/subscribe"))
		}
		update(other, "file:///1")
		one.want(News{URIs: []string{"file:///1"}})
		one.Close()
		two.Close()
		synctest.Wait()
		sub, err := first.Subscribe(t.Context(), Caller{}, Interest{Prompts: true}) // someone found the old one just before
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		keyed := conf("a=b")
		keyed.Targets["a"].Pool.Isolation = config.IsolationPerKey
		l.reload(keyed, Changes{Changed: []string{"a"}})
		tools.wantEnd(func(err error) bool { return errors.Is(err, ErrAffinityRequired) })
		tools.Close()
	})
}

func TestWatchersOfARemovedTargetAreTold(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		w := l.watcher(Interest{Tools: true})
		removed := l.target("a")
		l.reload(conf("b=a"), Changes{Added: []string{"b"}, Removed: []string{"a"}})
		isUnknown := func(err error) bool {
			e, ok := errors.AsType[*NotFoundError](err)
			return ok && e.Name == "a"
		}
		w.wantEnd(isUnknown)
		if _, err := removed.Subscribe(t.Context(), Caller{}, Interest{Tools: true}); !isUnknown(err) {
			t.Error(err)
		}
	})
}

func TestTheEndOfTheSetEndsWatchers(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		w := l.watcher(Interest{Tools: true})
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantEnd(func(err error) bool { return errors.Is(err, ErrClosed) })
		if _, err := l.target("a").Subscribe(t.Context(), Caller{}, Interest{Tools: true}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestACallerThatLeavesEndsItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Modern)
		s.Listen.NoAck = true
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := l.target("a").Subscribe(ctx, Caller{}, Interest{Prompts: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(l.target("a").feeds.byKey); n != 0 {
			t.Errorf("%d feeds left", n)
		}
	})
}

func TestSubscribeRefusesWhatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := conf("a=a")
		cfg.Targets["a"].Pool.Isolation = config.IsolationPerCaller
		l := newLab(t, map[string]*mcptest.Server{"a": store(mcptest.Legacy)}, cfg)
		if _, err := l.target("a").Subscribe(t.Context(), Caller{}, Interest{}); !isKind(mcpclient.KindInvalid)(err) {
			t.Error(err)
		}
		if _, err := l.target("a").Subscribe(t.Context(), Caller{}, Interest{Tools: true}); !errors.Is(err, ErrCallerRequired) {
			t.Error(err)
		}
	})
}

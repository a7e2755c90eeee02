package targets

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestManyDifferentResourcesAreAskedForTogether(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		for i := range 200 {
			go l.watcher(uris(fmt.Sprintf("db:///%d", i)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		f := l.target("a").feeds.byKey[feedKey{}]
		if n := len(f.up.agrees); n != 200 {
			t.Errorf("%d resources are open", n)
		}
		if got := s.Count("subscriptions/listen"); got > 2*growAtOnce {
			t.Errorf("%d listens for 200 resources", got)
		}
		if got := s.Subscriptions(); s.Era == mcptest.Modern && got != 1 {
			t.Errorf("%d are open", got)
		}
	})
}

func TestWhatIsWatchedGrowsAtOnceOrInSmallSteps(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		const more = 100
		begin := time.Now()
		most := 0
		for i := range growAtOnce + 1 + more { // each waits for the one before, as a caller may
			l.watcher(uris(fmt.Sprintf("db:///%d", i)))
			if took := time.Since(begin); i <= growAtOnce && took != 0 {
				t.Errorf("number %d took %v", i, took)
			}
			most = max(most, s.Subscriptions())
		}
		if took := time.Since(begin); took > more*growEvery {
			t.Errorf("%d more took %v", more, took)
		}
		if limit := growAtOnce + int(linger/growEvery) + 1; most > limit {
			t.Errorf("%d open at once, want %d at most", most, limit)
		}
		f := l.opened()
		if n := len(f.up.agrees); n != growAtOnce+1+more {
			t.Errorf("%d resources are open", n)
		}
		if n := s.Subscriptions(); s.Era == mcptest.Modern && n != 1 {
			t.Errorf("%d are open in the end", n)
		}
	})
}

func TestWatchersThatDoNotWaitForTheServerLeaveNothingBehind(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		l.watcher(Interest{Tools: true})
		f := l.opened()
		s.Listen.AckDelay = 20 * time.Second
		s.Handle = map[string]mcptest.Handler{"resources/subscribe": mcptest.Delay(20*time.Second, func(ctx context.Context, r *mcptest.Request) (any, error) { return r.Default(ctx) })}
		for i := range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := l.target("a").Subscribe(ctx, Caller{}, uris(fmt.Sprintf("file:///%d", i))); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		f.of.mu.Lock()
		waiting, watched := len(f.waiting), len(f.byURI)
		f.of.mu.Unlock()
		if waiting > 3 || watched > 0 {
			t.Errorf("%d wait, for %d resources", waiting, watched)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.Listen.AckDelay, s.Handle = 0, nil
		w := l.watcher(uris("file:///1"))
		update(s, "file:///1")
		w.want(News{URIs: []string{"file:///1"}})
	})
}

package targets

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestASlowReaderCostsBoundedMemoryAndSeesTheLastState(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		slow, quick := l.watcher(uris("file:///1", "file:///2")), l.watcher(uris("file:///1"))
		time.Sleep(2 * linger)
		told := 0
		for i := range 60_000 { // a minute of 1,000 updates/s
			update(s, fmt.Sprintf("file:///%d", 1+i%2))
			time.Sleep(time.Millisecond)
			if news, err := quick.Take(); err != nil || news.Resync {
				t.Fatal(news, err)
			} else if len(news.URIs) == 1 {
				told++
			}
		}
		if told != 30_000 {
			t.Errorf("a quick reader was told %d of 30000 updates", told)
		}
		slow.want(News{URIs: []string{"file:///1", "file:///2"}})
		update(s, "file:///2")
		slow.want(News{URIs: []string{"file:///2"}})
	})
}

func TestASlowReaderOfManyThingsCostsBoundedMemoryAndSeesTheLastState(t *testing.T) {
	inEras(t, func(t *testing.T, l *lab, s *mcptest.Server) {
		many := func(from, n int) []string {
			var list []string
			for i := range n {
				list = append(list, fmt.Sprintf("file:///%04d", from+i))
			}
			return list
		}
		all := many(0, maxPendingURIs+500)
		slow := map[string]struct {
			watcher
			want, last News
		}{
			"many":     {l.watcher(uris(many(200, 1000)...)), News{URIs: many(200, 1000)}, News{URIs: many(300, 1)}},
			"too many": {l.watcher(uris(all...)), News{Resync: true}, News{URIs: many(300, 1)}},
			"a list":   {l.watcher(Interest{Tools: true}), News{Tools: true}, News{Tools: true}},
			"the list and resources": {
				l.watcher(Interest{Resources: true, URIs: many(300, 2)}),
				News{Resources: true, URIs: many(300, 2)}, News{Resources: true, URIs: many(300, 1)},
			},
		}
		l.opened()
		change := func(uri string) {
			update(s, uri)
			s.Notify(mcpclient.MethodToolsChanged, nil)
			s.Notify(mcpclient.MethodResourcesChanged, nil)
		}
		for i := range 60_000 / 3 { // a minute of 1,000 notifications/s
			change(all[i%len(all)])
			time.Sleep(3 * time.Millisecond)
			for name, w := range slow {
				w.mu.Lock()
				if len(w.marks) > min(len(w.uris), maxPendingURIs) || len(w.index) > maxPendingURIs {
					t.Fatalf("%s: %d marks", name, len(w.marks))
				}
				w.mu.Unlock()
			}
		}
		for _, w := range slow {
			w.watcher.want(w.want)
		}
		change(all[300])
		for _, w := range slow {
			w.watcher.want(w.last)
		}
	})
}

func TestWhatASlowReaderIsOwedIsBounded(t *testing.T) {
	s := &Subscription{wake: make(chan struct{}, 1), first: make(chan struct{})}
	mark := func(uri string, own bool) { s.markURI(unique.Make(uri), own) }
	for i := range maxPendingURIs {
		for range 3 {
			mark(fmt.Sprintf("file:///%d", i), true)
		}
	}
	if news, _ := s.Take(); len(news.URIs) != maxPendingURIs || news.Resync {
		t.Errorf("%d URIs, resync %v", len(news.URIs), news.Resync)
	}
	for i := range maxPendingURIs + 1 {
		mark(fmt.Sprintf("file:///%d", i), true)
	}
	s.mark(func(n *News) *bool { return &n.Tools }) // is part of the resync
	if news, _ := s.Take(); !cmp.Equal(news, News{Resync: true}) {
		t.Errorf("got %+v", news)
	}
	long := strings.Repeat("x", maxPendingBytes)
	mark(long, true)
	mark(long+"y", false)
	if news, _ := s.Take(); !cmp.Equal(news, News{Resync: true}) {
		t.Errorf("URIs that the server made up: got %+v", news)
	}
	mark("a", true)
	s.fail(ErrClosed)
	if news, err := s.Take(); err != nil || len(news.URIs) != 1 {
		t.Errorf("the last change: %v, %v", news, err)
	}
	<-s.wake
	if _, err := s.Take(); !errors.Is(err, ErrClosed) {
		t.Errorf("the end: %v", err)
	}
}

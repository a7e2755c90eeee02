package targets

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// textsOf is the reverse of handlesOf.
func textsOf(handles []unique.Handle[string]) []string {
	var texts []string
	for _, h := range handles {
		texts = append(texts, h.Value())
	}
	return texts
}

func TestWhatAResourceMayBeAPartOf(t *testing.T) {
	watched := []string{"a:", "a:/", "a:/b", "a:/b/", "a:/b/c", "a:/b/c#d", "a:/b/c?q", "a:/bc", "z"}
	for uri, want := range map[string][]string{
		"a:/b/c#d":  {"a:", "a:/", "a:/b", "a:/b/", "a:/b/c", "a:/b/c#d"},
		"a:/b/c#dd": {"a:", "a:/", "a:/b", "a:/b/", "a:/b/c"},
		"a:/bcd":    {"a:", "a:/"},
		"a:/b":      {"a:", "a:/", "a:/b"},
		"a:/b?":     {"a:", "a:/", "a:/b"},
		"a:b":       nil,
		"z#":        {"z"},
		"y":         nil,
		"A:/":       nil,
		"":          nil,
	} {
		if diff := cmp.Diff(want, textsOf(wholes(handlesOf(watched), uri))); diff != "" {
			t.Errorf("%q: %s", uri, diff)
		}
	}
	if got := wholes(nil, "a:/"); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestWhatAResourceMayBeAPartOfIsFoundAsOneByOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range 1 + random.IntN(6) {
			b.WriteByte("ab/?#"[random.IntN(5)])
		}
		return b.String()
	}
	for range 2000 {
		var watched []string
		for range random.IntN(20) {
			watched = append(watched, text())
		}
		slices.Sort(watched)
		watched = slices.Compact(watched)
		uri := text()
		var want []string
		for _, whole := range watched {
			rest, ok := strings.CutPrefix(uri, whole)
			if ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsAny(rest[:1], "/?#")) {
				want = append(want, whole)
			}
		}
		if diff := cmp.Diff(want, textsOf(wholes(handlesOf(watched), uri))); diff != "" {
			t.Fatalf("%q of %q: %s", uri, watched, diff)
		}
	}
}

func TestAnUpdateCostsNoMoreThanItsURIIsLong(t *testing.T) {
	var nested []string // all that one byte more makes another one
	for i := range 1000 {
		nested = append(nested, "a:"+strings.Repeat("/", i))
	}
	for name, c := range map[string]struct {
		watched []string
		uri     string
		most    int // bytes that are looked at
		found   int
	}{
		"long, of a short one":   {[]string{"a:", "b:"}, "a:" + strings.Repeat("/", 4<<20), 2, 1},
		"long, of none":          {[]string{"b:", "c:"}, strings.Repeat("/", 4<<20), 0, 0},
		"long, of a long one":    {[]string{"a:" + strings.Repeat("/", MaxURIBytes-2)}, "a:" + strings.Repeat("/", 4<<20), MaxURIBytes, 1},
		"long, of many":          {nested, "a:" + strings.Repeat("/", 4<<20), len(nested) + 1, len(nested)},
		"the longest permitted":  {nested, "a:" + strings.Repeat("/", MaxURIBytes-2), len(nested) + 1, len(nested)},
		"one that is not nested": {nested, "a:" + strings.Repeat("x", MaxURIBytes-2), 2, 0},
	} {
		steps := 0
		for range narrow(handlesOf(c.watched), c.uri) {
			steps++
		}
		if steps > c.most {
			t.Errorf("%s: %d bytes were looked at, want %d at most", name, steps, c.most)
		}
		if got := len(wholes(handlesOf(c.watched), c.uri)); got != c.found {
			t.Errorf("%s: a part of %d, want %d", name, got, c.found)
		}
	}
}

// opened is the only feed of a lab's target, once what was replaced is closed.
func (l *lab) opened() *feed {
	l.t.Helper()
	time.Sleep(2 * linger)
	synctest.Wait()
	return l.target("a").feeds.byKey[feedKey{}]
}

// tell delivers an update on what a feed has open.
func (f *feed) tell(uri string) {
	f.deliver(f.up, mcpclient.Notification{Method: mcpclient.MethodResourceUpdated, Params: []byte(`{"uri":"` + uri + `"}`)})
}

func TestOfALongURIWatchersAreToldByTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, map[string]*mcptest.Server{"a": store(mcptest.Modern)}, conf("a=a"))
		long := "file:///d/" + strings.Repeat("/", 4<<20)
		dir, both := l.watcher(uris("file:///d")), l.watcher(uris("file:///d", "file:///d/", "file:///e"))
		other, list := l.watcher(uris("file:///x")), l.watcher(Interest{Tools: true})
		f := l.opened()
		f.tell(long)
		dir.want(News{URIs: []string{"file:///d"}})
		both.want(News{URIs: []string{"file:///d/"}}) // the nearest
		other.want(News{})
		f.tell("FILE:///d/" + strings.Repeat("/", 4<<20)) // may be any of them
		for _, w := range []watcher{dir, both, other} {
			w.want(News{Resync: true})
		}
		longest := "file:///d/" + strings.Repeat("x", MaxURIBytes-len("file:///d/"))
		f.tell(longest)
		dir.want(News{URIs: []string{longest}})
		list.want(News{})
		if got := <-l.subscribe(uris(longest + "x")); !isKind(mcpclient.KindInvalid)(got.err) {
			t.Errorf("a URI that is too long: %v", got.err)
		}
		l.watcher(uris(longest))
	})
}

func TestAnUpdateIsOneMarkForEachWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, map[string]*mcptest.Server{"a": store(mcptest.Modern)}, conf("a=a"))
		part := "a:" + strings.Repeat("/", 800)
		var nested []string
		for i := range 800 {
			nested = append(nested, "a:"+strings.Repeat("/", i+1))
		}
		w, one := l.watcher(uris(nested...)), l.watcher(uris(part))
		f := l.opened()
		for range 2 * maxPendingBytes / len(part) { // which as a stranger it could not have told of
			f.tell(part)
			w.want(News{URIs: []string{part}})
			one.want(News{URIs: []string{part}})
		}
		f.tell("b:") // what nobody watches, under a name that nobody knows
		w.want(News{URIs: []string{"b:"}})
		one.want(News{URIs: []string{"b:"}})
	})
}

func TestAWatcherIsToldOfTheFirstUpdateAfterAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(mcptest.Legacy)
		l := newLab(t, map[string]*mcptest.Server{"a": s}, conf("a=a"))
		l.Start()
		w := l.watcher(uris("file:///1"))
		update(s, "file:///1")
		w.want(News{URIs: []string{"file:///1"}})
		next := conf("a=a")
		next.Targets["a"].Lazy = true
		if _, err := l.Reload(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * linger)
		w.want(News{Resync: true})
		for i := range 3 {
			update(s, "file:///1")
			w.want(News{URIs: []string{"file:///1"}})
			if t.Failed() {
				t.Fatal(fmt.Sprint("update ", i))
			}
		}
	})
}

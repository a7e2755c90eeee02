package mcpclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// List is one complete list of a server. It is immutable and shared.
type List struct {
	// Items are in the server's order.
	Items []Item
	// Fingerprint is equal for equal lists, on every replica.
	Fingerprint string
	// Fetched is when the list arrived; TTL is how long the server lets it be
	// reused (the shortest ttlMs of its pages), 0 when it said nothing or zero.
	Fetched time.Time
	TTL     time.Duration
	// Private is true unless the server marked every page cacheScope public.
	Private bool
	// Excluded are the tools left out because their x-mcp-header annotations
	// are invalid (2026-07-28 streamable-http, Custom Headers).
	Excluded []ExcludedTool

	dropped int // entries that were no items
	names   map[string]struct{}
	plans   map[string][]paramHeader // tools with x-mcp-header annotations

	needTask map[string]struct{} // tools to be called as tasks of 2025-11-25
}

// Item is one tool, resource, resource template or prompt.
type Item struct {
	// Name is the tool's or prompt's name, the resource's URI or the template's
	// uriTemplate.
	Name string
	// Raw is the whole object as the server sent it.
	Raw jsontext.Value
}

// ExcludedTool is a tool that was left out of a list.
type ExcludedTool struct {
	Name, Reason string
}

// Has reports whether an item of this name is in the list.
func (l *List) Has(name string) bool {
	_, ok := l.names[name]
	return ok
}

// lists holds the caches of one client.
type lists struct {
	tools, resources, templates, prompts listCache
}

func (l *lists) init(o CacheOptions) {
	l.tools = listCache{method: methodListTools, member: "tools", key: "name"}
	l.resources = listCache{method: methodListResources, member: "resources", key: "uri"}
	l.templates = listCache{method: methodListTemplates, member: "resourceTemplates", key: "uriTemplate"}
	l.prompts = listCache{method: methodListPrompts, member: "prompts", key: "name"}
	for _, cache := range []*listCache{&l.tools, &l.resources, &l.templates, &l.prompts} {
		cache.ignoreTTL = o.IgnoreTTL
	}
}

// reset forgets everything; a fetch under way is not stored.
func (l *lists) reset() {
	for _, cache := range []*listCache{&l.tools, &l.resources, &l.templates, &l.prompts} {
		cache.reset()
	}
}

// listCache fetches and keeps one list.
type listCache struct {
	method, member, key string
	ignoreTTL           bool

	mu      sync.Mutex // guards the following; never held during I/O
	gen     uint64     // counts invalidations: a fetch that began before one is not stored
	list    *List      // the newest list, stale or not
	expires time.Time  // when list goes stale; zero = at the next invalidation
	stale   bool
	failed  time.Time // when the newest fetch failed; zero when it did not
	flight  *flight   // the fetch under way, which others join
}

type flight struct {
	gen  uint64
	done chan struct{} // closed once list or err is set
	list *List
	err  error
}

// invalidate marks the list stale.
func (l *listCache) invalidate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gen++
	l.stale = true
}

// reset forgets the list.
func (l *listCache) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gen++
	l.list, l.stale, l.failed = nil, false, time.Time{}
}

// get returns the list from the cache, or fetches it.
func (l *listCache) get(ctx context.Context, c *Client, noCache bool) (*List, error) {
	if !noCache {
		l.mu.Lock()
		if l.list != nil && !l.stale && (l.expires.IsZero() || time.Now().Before(l.expires)) {
			list := l.list
			l.mu.Unlock()
			c.cacheHits.Add(1)
			return list, nil
		}
		l.mu.Unlock()
		c.cacheMisses.Add(1)
		return l.join(ctx, c)
	}
	c.cacheMisses.Add(1)
	l.mu.Lock()
	gen := l.gen
	l.mu.Unlock()
	list, err := c.fetchList(ctx, l)
	if err != nil {
		return nil, err
	}
	l.store(list, gen)
	return list, nil
}

// refresh fetches the list anew.
func (l *listCache) refresh(ctx context.Context, c *Client) (*List, error) {
	l.invalidate()
	return l.join(ctx, c)
}

// newest returns the last list that was seen, stale or not; nil = none.
func (l *listCache) newest() *List {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list
}

// markFailed notes that the list cannot be had for now.
func (l *listCache) markFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = time.Now()
}

// failedWithin reports whether the newest fetch failed less than d ago.
func (l *listCache) failedWithin(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.failed.IsZero() && time.Since(l.failed) < d
}

// join waits for the fetch under way, or begins one. The fetch outlives the
// caller that began it: leaving ends the wait, not the work of others.
func (l *listCache) join(ctx context.Context, c *Client) (*List, error) {
	l.mu.Lock()
	f := l.flight
	if f == nil || f.gen != l.gen {
		f = &flight{gen: l.gen, done: make(chan struct{})}
		values := context.WithoutCancel(ctx)
		if !c.background(func() { l.run(values, c, f) }) {
			l.mu.Unlock()
			return nil, errClosed()
		}
		l.flight = f
	}
	l.mu.Unlock()
	select {
	case <-f.done:
		return f.list, f.err
	case <-ctx.Done():
		return nil, about(contextError(ctx, "the list was not complete before"), l.method, "")
	}
}

func (l *listCache) run(ctx context.Context, c *Client, f *flight) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.lifetime, cancel)()
	f.list, f.err = c.fetchList(ctx, l)
	l.mu.Lock()
	if l.flight == f {
		l.flight = nil
	}
	l.failed = time.Time{}
	if f.err != nil {
		l.failed = time.Now()
	}
	l.mu.Unlock()
	if f.err == nil {
		l.store(f.list, f.gen)
	}
	close(f.done)
}

// store keeps a list unless it was invalidated since its fetch began.
func (l *listCache) store(list *List, gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen != gen {
		return
	}
	l.list, l.stale, l.expires = list, false, time.Time{}
	if list.TTL >= 0 && !l.ignoreTTL {
		l.expires = list.Fetched.Add(list.TTL)
	}
	list.TTL = max(list.TTL, 0)
}

// fetchList reads a list to its end (2026-07-28 server/utilities/pagination).
// An empty cursor is a cursor; one that comes back is a loop, and is refused
// rather than taken for the end.
func (c *Client) fetchList(ctx context.Context, l *listCache) (*List, error) {
	ctx, cancel := c.overall(ctx, nil)
	defer cancel()
	if d, setting := c.timeout(&Call{Method: l.method}); d > 0 {
		// a list that drips in page by page must end some time
		var cancel func()
		ctx, _, cancel = limit(ctx, listTimeouts*d, setting+" times "+strconv.Itoa(listTimeouts), false, nil)
		defer cancel()
	}
	return watched(ctx, c, Operation{Method: l.method}, nil, func() (*List, error) { return c.fetchPages(ctx, l) })
}

// listTimeouts is how many times the time of one page a whole list may take.
const listTimeouts = 10

func (c *Client) fetchPages(ctx context.Context, l *listCache) (*List, error) {
	list := &List{names: map[string]struct{}{}, TTL: -1, Fetched: time.Now()}
	hash := sha256.New()
	seen := map[string]bool{}
	size := int64(0)
	var params []byte
	for range c.opts.MaxPages {
		result, err := c.request(ctx, &request{method: l.method, params: params, trail: c.newTrail()})
		if err != nil {
			return nil, err
		}
		if size += int64(len(result.Raw)); c.opts.MaxListBytes != Unlimited && size > c.opts.MaxListBytes {
			return nil, &Error{Kind: KindTooLarge, Method: l.method, Sent: true, Limit: c.opts.MaxListBytes, Message: fmt.Sprintf("the server's list is larger than %d bytes over all pages", c.opts.MaxListBytes)}
		}
		p, err := c.readPage(list, l, result)
		if err != nil {
			return nil, &Error{Kind: KindProtocol, Method: l.method, Sent: true, Message: "the server's answer is not a list of " + l.member, Err: err}
		}
		if p.ttl >= 0 && (list.TTL < 0 || p.ttl < list.TTL) {
			list.TTL = p.ttl
		}
		list.Private = list.Private || p.private
		if p.next == nil {
			for _, item := range list.Items {
				hash.Write(item.Raw)
			}
			list.Fingerprint = hex.EncodeToString(hash.Sum(nil)[:12])
			c.reportOddities(l, list)
			if f := c.opts.OnList; f != nil {
				c.guard("OnList", func() { f(l.method, list) })
			}
			return list, nil
		}
		if seen[*p.next] {
			return nil, &Error{Kind: KindProtocol, Method: l.method, Sent: true, Message: fmt.Sprintf("the server's pages loop: the cursor %.40q came twice", *p.next)}
		}
		seen[*p.next] = true
		params = appendString([]byte(`"cursor":`), *p.next)
	}
	return nil, &Error{Kind: KindProtocol, Method: l.method, Sent: true, Message: fmt.Sprintf("the server's list has more than %d pages", c.opts.MaxPages)}
}

// How old a list may be to answer whether a name exists. Absence is asked for
// after errors only, so a fresh look costs little; the second keeps a caller
// that repeats a wrong name from doubling the server's load.
const (
	presenceAge = time.Minute
	absenceAge  = time.Second
)

// knows reports whether the server has an item of this name, looking again
// when the newest list is too old to say so.
func (l *listCache) knows(ctx context.Context, c *Client, name string) (bool, error) {
	list := l.newest()
	if list != nil {
		age := time.Since(list.Fetched)
		if list.Has(name) && age < presenceAge {
			return true, nil
		}
		if !list.Has(name) && age < absenceAge {
			return false, nil
		}
	}
	list, err := l.refresh(ctx, c)
	if err != nil {
		return false, err
	}
	return list.Has(name), nil
}

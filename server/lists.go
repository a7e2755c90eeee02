package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// lister is one kind of list.
type lister struct {
	kind   byte // marks its page tokens
	method string
	fetch  func(*mcpclient.Client, context.Context) (*mcpclient.List, error)
}

// listRequest is what all list requests have in common.
type listRequest interface {
	GetTarget() string
	GetPageSize() int32
	GetPageToken() string
}

// listPage is one page, not yet converted.
type listPage struct {
	items       []pageItem
	next        string
	unreachable []*pb.TargetError
	lists       []listing // all lists, on the first page only
}

// list answers one list request: of the target it names or that is the only
// one, with that target's error as the RPC's, or of all targets, with the
// errors beside the rest.
func (c *caller) list(ctx context.Context, l lister, req listRequest) (*listPage, error) {
	s := scope{method: l.method, target: req.GetTarget()}
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	all := c.targets.All()
	single := req.GetTarget() != "" || len(all) == 1
	request := ""
	if single {
		target, err := c.find(ctx, req.GetTarget())
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		all, request = []*targets.Target{target}, target.Name()
		s.target = request
	}
	from := cursor{kind: l.kind}
	first := req.GetPageToken() == ""
	if !first {
		from, err = decodeCursor(req.GetPageToken())
		if err != nil {
			return nil, s.fail(ctx, badToken("is not one that the bridge gave out"))
		}
		if from.kind != l.kind {
			return nil, s.fail(ctx, badToken("belongs to another list method"))
		}
	}
	parts, failures := c.fetchAll(ctx, l, all, from, single)
	page := &listPage{}
	for i, f := range failures {
		if f == nil {
			continue
		}
		of := scope{method: l.method, target: all[i].Name()}
		switch {
		case single:
			return nil, of.build(f)
		case ctx.Err() != nil:
			return nil, scope{method: l.method}.fail(ctx, ctx.Err())
		case !first:
			return nil, of.fail(ctx, badToken(fmt.Sprintf("needs the list of target %s, which cannot be read now", quote(of.target))))
		}
		page.unreachable = append(page.unreachable, of.targetError(f))
	}
	if !first {
		if from.target >= len(all) || digestFrom(l.kind, request, parts, from.target) != from.digest {
			return nil, s.fail(ctx, badToken("is of another request, or the list has changed since"))
		}
	}
	items, target, offset, more := cutPage(parts, from.target, from.offset, size)
	page.items = items
	if first {
		page.lists = parts
	}
	if more {
		page.next = cursor{kind: l.kind, target: target, offset: offset, skipped: skips(parts, target), digest: digestFrom(l.kind, request, parts, target)}.encode()
	}
	c.cacheList(ctx, page, parts)
	return page, nil
}

// noFeature is the fingerprint of the list of a target without the feature.
const noFeature = "none"

func badToken(what string) *failure {
	return refuseField(reasonPageTokenInvalid, "page_token", what+"; start again without page_token")
}

// fetchAll gets the lists that a page needs, at the same time. A target of
// several that has no such feature has an empty list.
func (c *caller) fetchAll(ctx context.Context, l lister, all []*targets.Target, from cursor, single bool) ([]listing, []*failure) {
	parts, failures := make([]listing, len(all)), make([]*failure, len(all))
	if single {
		parts[0].target, parts[0].isolated = all[0].Name(), isolated(all[0])
		parts[0].list, failures[0] = c.fetch(ctx, l, all[0])
		return parts, failures
	}
	share := c.share(ctx)
	shared, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	var wg sync.WaitGroup
	for i, target := range all {
		parts[i].target, parts[i].isolated = target.Name(), isolated(target)
		if !from.wants(i) {
			continue
		}
		wg.Go(func() {
			list, f := c.fetch(shared, l, target)
			switch {
			case f == nil:
			case f.reason == reasonMethodNotSupported:
				list, f = &mcpclient.List{Fingerprint: noFeature}, nil
			case f.reason == reasonTimeout && shared.Err() != nil && ctx.Err() == nil:
				f.message = scope{method: l.method, target: target.Name()}.about(fmt.Sprintf("no answer within %v, the time for each of several targets; name the target to wait longer", share.Round(time.Millisecond)))
			}
			parts[i].list, failures[i] = list, f
		})
	}
	wg.Wait()
	return parts, failures
}

// share is the time for each of several targets: the budget, or less when the
// caller's deadline is near, so that those that answered still arrive.
func (c *caller) share(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(c.budget, time.Until(deadline)*9/10)
	}
	return c.budget
}

func (c *caller) fetch(ctx context.Context, l lister, target *targets.Target) (*mcpclient.List, *failure) {
	s := scope{method: l.method, target: target.Name()}
	lease, err := acquire(ctx, target)
	if err != nil {
		return nil, s.classify(ctx, err)
	}
	defer lease.Release()
	list, err := l.fetch(lease.Client(), ctx)
	if err != nil {
		return nil, s.classify(ctx, err)
	}
	return list, nil
}

// cacheList tells HTTP caches how long the page stays true.
func (c *caller) cacheList(ctx context.Context, page *listPage, parts []listing) {
	if len(page.unreachable) > 0 {
		doNotStore(ctx) // the next try may reach them
		return
	}
	var f freshness
	for _, part := range parts {
		if part.isolated {
			keepPrivate(ctx)
		}
		if part.list != nil && part.list.Fingerprint != noFeature {
			f.merge(part.list.TTL-time.Since(part.list.Fetched), part.list.Private || part.isolated)
		}
	}
	cacheFor(ctx, f)
}

// convertItems converts a page. An entry that cannot be converted is left out
// with a warning, so that it does not cost the others.
func convertItems[T any](ctx context.Context, c *caller, l lister, page *listPage, format pb.JsonFormat, convert func([]byte, pb.JsonFormat) (T, error), own func(T, string)) []T {
	out := make([]T, 0, len(page.items))
	for _, entry := range page.items {
		message, err := convert(entry.item.Raw, format)
		if err != nil {
			c.log.WarnContext(ctx, "an entry of a list cannot be converted and is left out", "target", entry.target, "method", l.method, "name", entry.item.Name, "error", err)
			continue
		}
		own(message, entry.target)
		out = append(out, message)
	}
	return out
}

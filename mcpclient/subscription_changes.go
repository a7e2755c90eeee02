package mcpclient

import (
	"context"
	"errors"
	"time"
)

// watchChanges subscribes to the list changes of a modern server, for the
// caches and the handlers: one subscriptions/listen for all lists. A server
// that refuses it is served from caches that obey ttlMs alone.
func (c *Client) watchChanges(s *session) {
	filter := c.changesFilter(s)
	if filter.isEmpty() {
		return
	}
	sub := c.newSubscription(c.lifetime, filter, nil)
	sub.automatic = true
	if !c.background(func() { sub.runChanges(s) }) {
		sub.cancel()
	}
}

// changesFilter is what a connection's server offers and the options allow.
func (c *Client) changesFilter(s *session) Filter {
	o := &c.opts.Changes
	if s.era != EraModern || s.server == nil {
		return Filter{}
	}
	return Filter{
		ToolsList:     !o.NoTools && (s.server.toolsChange || o.Force),
		PromptsList:   !o.NoPrompts && (s.server.promptsChange || o.Force),
		ResourcesList: !o.NoResources && (s.server.resourcesChange || o.Force),
	}
}

// runChanges keeps the subscription open while its connection lives. It begins
// again also after an end in good order: a server that is replaced behind a
// load balancer says goodbye so.
func (sub *Subscription) runChanges(s *session) {
	defer sub.finish()
	c := sub.c
	pace := c.newChangePace()
	for again := false; ; again = true {
		began := time.Now()
		ended, err := sub.serveModern(s, again)
		if sub.isOver() || s.isReplaced() {
			return
		}
		if ended && err != nil {
			c.changesRefused(err)
			return
		}
		wait := sub.nextTry(pace, began, err)
		c.log.Debug("the stream of list changes has ended; it will be opened again", "in", wait, "error", err)
		if !sub.pause(wait, s.replaced) {
			return
		}
	}
}

// changesRefused says so once a connection. A server that does not have the
// method is no fault (Kuadrant#1484).
func (c *Client) changesRefused(err error) {
	if c.lifetime.Err() != nil {
		return // nobody refused anything: the client is closed
	}
	const text = "the server does not serve list changes; cached lists obey ttlMs alone"
	if e, ok := errors.AsType[*Error](err); ok && (e.Status == 404 || e.RPC != nil && e.RPC.Code == CodeMethodNotFound) {
		c.log.Info(text, "error", err)
		return
	}
	c.log.Warn(text, "error", err)
}

// changesAcknowledged is told what the server agreed to report. After a gap
// the lists may have changed unseen: the caches are stale once, and the
// handlers are told as if each had changed.
func (c *Client) changesAcknowledged(sub *Subscription, f Filter, afterGap bool) {
	t := &c.subs
	t.mu.Lock()
	afterGap = afterGap || t.changes
	t.changes = true
	t.mu.Unlock()
	if !afterGap {
		return
	}
	for _, method := range []string{MethodToolsChanged, MethodPromptsChanged, MethodResourcesChanged} {
		if sub.filter.wants(method) && f.wants(method) {
			c.invalidateFor(method)
			c.tellHandlers(sub.lane, Notification{Method: method})
		}
	}
}

// SubscribeResource has [Handlers].ResourceUpdated told whenever the resource
// changes, and once after a gap. It is kept through reconnects until
// UnsubscribeResource; subscribing again to the same URI has no effect. For
// many resources, one [Client.Listen] costs a modern server less. The error is
// an [*Error]; of kind KindUnsupported if the server does not agree.
func (c *Client) SubscribeResource(ctx context.Context, uri string) error {
	t := &c.subs
	if t.resource(uri) != nil {
		return nil
	}
	filter := Filter{Resources: []string{uri}}
	if err := filter.check(); err != nil {
		return err
	}
	sub := c.newSubscription(ctx, filter, c.feedHandlers(uri))
	sub.toHandlers = true
	if err := sub.start(ctx); err != nil {
		return about(err, methodListen, uri)
	}
	if !t.acceptsResources(sub) {
		sub.Close()
		return errNoUpdates(uri)
	}
	if other := t.keepResource(uri, sub); other != sub {
		sub.Close() // someone else was faster
	}
	return nil
}

// UnsubscribeResource ends what SubscribeResource began, and nothing else. The
// error is that of a ctx that ended first; the subscription ends all the same.
func (c *Client) UnsubscribeResource(ctx context.Context, uri string) error {
	t := &c.subs
	t.mu.Lock()
	sub := t.byURI[uri]
	delete(t.byURI, uri)
	t.mu.Unlock()
	if sub == nil {
		return nil
	}
	sub.Close()
	select {
	case <-sub.done:
		return nil
	case <-ctx.Done():
		return about(contextError(ctx, "the subscription had not ended before"), methodUnsubscribe, uri)
	}
}

func errNoUpdates(uri string) error {
	return &Error{Kind: KindUnsupported, Method: methodListen, Name: uri, Message: "the server does not report changes of this resource"}
}

// acceptsResources reports whether a server agreed to report resources, or has
// not answered yet.
func (t *subscriptions) acceptsResources(sub *Subscription) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return !sub.answered || len(sub.acked.Resources) > 0
}

// resource returns the live subscription of a URI.
func (t *subscriptions) resource(uri string) *Subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.liveLocked(uri)
}

func (t *subscriptions) liveLocked(uri string) *Subscription {
	sub := t.byURI[uri]
	if sub == nil {
		return nil
	}
	select {
	case <-sub.done:
		delete(t.byURI, uri)
		return nil
	default:
		return sub
	}
}

// keepResource stores the subscription of a URI and returns the one that is
// kept.
func (t *subscriptions) keepResource(uri string, sub *Subscription) *Subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.liveLocked(uri); other != nil {
		return other
	}
	if t.byURI == nil {
		t.byURI = map[string]*Subscription{}
	}
	t.byURI[uri] = sub
	return sub
}

// feedHandlers delivers to the client's handlers.
func (c *Client) feedHandlers(uri string) func(ctx context.Context, n Notification) {
	return func(ctx context.Context, n Notification) {
		updated, changed := c.opts.Handlers.ResourceUpdated, uri
		if n.Method != MethodResync {
			changed = uriOf(n.Params)
			handler := c.opts.Handlers.Notification[n.Method]
			if handler == nil {
				handler = c.opts.Handlers.Notification[""]
			}
			if handler != nil {
				c.guard(n.Method, func() { handler(ctx, n) })
			}
		}
		switch {
		case changed == "":
			c.log.WarnContext(ctx, "a resource update names no URI")
		case updated != nil:
			updated(ctx, changed)
		}
	}
}

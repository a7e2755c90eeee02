package mcpclient

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// serveLegacy keeps the subscription on one legacy connection: list changes
// come unasked, and each resource is subscribed to (2025-11-25
// server/resources, Subscriptions).
func (sub *Subscription) serveLegacy(s *session, again bool) (ended bool, err error) {
	c, table := sub.c, &sub.c.subs
	ctx, st := sub.newStream(s, again)
	defer st.over(nil)
	table.openLegacy(st) // before the requests, so that nothing is missed behind their answers
	defer table.closeLegacy(st)
	st.expect(ctx)
	agreed := sub.filter.declaredBy(s.server)
	wanted := agreed.Resources
	agreed.Resources, err = c.subscribeAll(ctx, s, wanted)
	defer c.unsubscribeAll(s, agreed.Resources)
	switch {
	case sub.isOver():
		return true, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil && (broken(err) || agreed.isEmpty()):
		return !broken(err), err
	}
	sub.acknowledge(agreed, table.acknowledged(st))
	<-ctx.Done()
	if sub.isOver() {
		return true, nil
	}
	return false, context.Cause(ctx)
}

// broken reports whether an error is about the connection, not the resource. A
// server that leaves one resource unanswered does not cost the others.
func broken(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind != KindTimeout && !rejects(err, false)
}

// declaredBy is the part of a filter that a legacy server says it serves.
func (f Filter) declaredBy(s *Server) Filter {
	out := Filter{
		ToolsList: f.ToolsList && s.toolsChange, PromptsList: f.PromptsList && s.promptsChange, ResourcesList: f.ResourcesList && s.resourcesChange,
	}
	if s.subscribe {
		out.Resources = f.Resources
	}
	return out
}

// subscribersAtOnce bounds the resources/subscribe requests under way.
const subscribersAtOnce = 8

// subscribeAll subscribes to resources and returns those that worked, in
// order, and the error that weighs most: one that says that the connection
// broke, else any.
func (c *Client) subscribeAll(ctx context.Context, s *session, uris []string) (subscribed []string, err error) {
	errs := make([]error, len(uris))
	var wg sync.WaitGroup
	room := make(chan struct{}, subscribersAtOnce)
	for i, uri := range uris {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			errs[i] = c.subscribeURI(ctx, s, uri)
		})
	}
	wg.Wait()
	for i, uri := range uris {
		e := errs[i]
		if e == nil {
			subscribed = append(subscribed, uri)
			continue
		}
		if ctx.Err() == nil {
			c.log.WarnContext(ctx, "the server did not accept the subscription to a resource", "uri", uri, "error", e)
		}
		if err == nil || !broken(err) {
			err = e
		}
	}
	return subscribed, err
}

// unsubscribeAll gives resources back, behind the caller's back.
func (c *Client) unsubscribeAll(s *session, uris []string) {
	if len(uris) == 0 {
		return
	}
	if s.isReplaced() {
		t := &c.subs
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.topics, s)
		return
	}
	c.background(func() {
		for _, uri := range uris {
			c.unsubscribeURI(s, uri)
		}
	})
}

// topic is one resource on one legacy connection. Only one request about it is
// under way at a time, so that the server ends up with the last word.
type topic struct {
	refs   int           // subscriptions that want it
	active bool          // the server may have it
	busy   chan struct{} // closed when the request under way is over; nil = none
}

// topicLocked returns the topic of a URI.
func (t *subscriptions) topicLocked(s *session, uri string) *topic {
	if t.topics == nil {
		t.topics = map[*session]map[string]*topic{}
	}
	of := t.topics[s]
	if of == nil {
		of = map[string]*topic{}
		t.topics[s] = of
	}
	tp := of[uri]
	if tp == nil {
		tp = &topic{}
		of[uri] = tp
	}
	return tp
}

// dropLocked forgets a topic that nobody needs.
func (t *subscriptions) dropLocked(s *session, uri string) {
	if tp := t.topics[s][uri]; tp != nil && tp.refs == 0 && tp.busy == nil && !tp.active {
		delete(t.topics[s], uri)
	}
	if len(t.topics[s]) == 0 {
		delete(t.topics, s)
	}
}

// subscribeURI takes a reference to a resource; the first one subscribes.
func (c *Client) subscribeURI(ctx context.Context, s *session, uri string) error {
	t := &c.subs
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := t.topicLocked(s, uri)
	tp.refs++
	for {
		if tp.busy == nil && tp.active {
			return nil
		}
		if busy := tp.busy; busy != nil {
			t.mu.Unlock()
			select {
			case <-busy:
			case <-ctx.Done():
			}
			t.mu.Lock()
			if ctx.Err() != nil {
				tp.refs--
				t.dropLocked(s, uri)
				return contextError(ctx, "the resource was not subscribed to before")
			}
			continue
		}
		err := t.request(tp, func() error { return c.askForUpdates(ctx, s, methodSubscribe, uri) })
		if err == nil {
			tp.active = true
			return nil
		}
		tp.refs--
		t.dropLocked(s, uri)
		return err
	}
}

// unsubscribeURI gives a reference back; the last one unsubscribes.
func (c *Client) unsubscribeURI(s *session, uri string) {
	t := &c.subs
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := t.topics[s][uri]
	if tp == nil {
		return // the connection was given up, and its topics with it
	}
	tp.refs--
	for tp.refs == 0 && tp.busy != nil {
		busy := tp.busy
		t.mu.Unlock()
		<-busy // a request of ours, which has a timeout
		t.mu.Lock()
	}
	if tp.refs > 0 || !tp.active {
		return
	}
	err := t.request(tp, func() error {
		ctx, cancel := context.WithTimeout(c.lifetime, cancelBudget)
		defer cancel()
		return c.askForUpdates(ctx, s, methodUnsubscribe, uri)
	})
	tp.active = false
	if err != nil {
		c.log.Debug("a resource could not be unsubscribed from", "uri", uri, "error", err)
	}
	t.dropLocked(s, uri)
}

// request runs one request about a topic, without the lock.
func (t *subscriptions) request(tp *topic, send func() error) error {
	tp.busy = make(chan struct{})
	t.mu.Unlock()
	err := send()
	t.mu.Lock()
	close(tp.busy)
	tp.busy = nil
	return err
}

// askForUpdates sends one resources/subscribe or resources/unsubscribe.
func (c *Client) askForUpdates(ctx context.Context, s *session, method, uri string) error {
	if d := c.opts.Timeouts.Resource; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, &ownTimeout{limit: d, setting: "timeouts.resource"})
		defer cancel()
	}
	call := &Call{Method: method, Name: uri, params: appendString([]byte(`"uri":`), uri), options: &CallOptions{}}
	_, err := watched(ctx, c, Operation{Method: method, Name: uri}, nil, func() (*Result, error) {
		result, _, err := c.try(ctx, s, call)
		return result, err
	})
	return err
}

// fanOut hands a notification of a legacy server to the subscriptions that
// want it.
func (c *Client) fanOut(s *session, m *jsonrpc.Message) {
	uri := ""
	switch m.Method {
	case MethodToolsChanged, MethodPromptsChanged, MethodResourcesChanged:
	case MethodResourceUpdated:
		if uri = uriOf(m.Params); uri == "" {
			return // receive says so
		}
	default:
		return
	}
	t := &c.subs
	t.mu.Lock()
	var subs []*Subscription
	for st := range t.legacy {
		f := &st.sub.filter
		if st.session == s && f.wants(m.Method) && (uri == "" || f.covers(uri)) {
			subs = append(subs, st.sub)
		}
	}
	t.mu.Unlock()
	for _, sub := range subs {
		sub.heard.Store(true)
		if !sub.toHandlers { // receive tells the handlers
			sub.post(Notification{Method: m.Method, Params: m.Params.Clone()}, false)
		}
	}
}

// covers reports whether an updated resource was subscribed to, itself or as a
// part of another one.
func (f *Filter) covers(uri string) bool {
	for _, own := range f.Resources {
		rest, ok := strings.CutPrefix(uri, own)
		if ok && (rest == "" || strings.HasSuffix(own, "/") || strings.ContainsAny(rest[:1], "/?#")) {
			return true
		}
	}
	return false
}

package mcpclient

import (
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// subscriptions is what a client knows of its subscriptions. The zero value is
// ready.
type subscriptions struct {
	mu      sync.Mutex // guards the following; never held during I/O or callbacks
	streams map[jsonrpc.ID]*stream
	past    []jsonrpc.ID         // the newest ids of streams that have ended
	legacy  map[*stream]struct{} // of legacy connections
	topics  map[*session]map[string]*topic
	byURI   map[string]*Subscription // of SubscribeResource

	connected chan struct{} // closed at the next connection; nil while nobody waits
	changes   bool          // list changes were acknowledged before
	strays    int           // notifications of streams that nobody opened
	untagged  int           // notifications that lack their subscription id
}

// pastIDs is how many ended streams are remembered: what still comes for them
// is late, not wrong.
const pastIDs = 64

// open registers a subscriptions/listen before it is sent, since its
// acknowledgement may be there before the sender knows that it was written.
func (t *subscriptions) open(id jsonrpc.ID, st *stream) {
	t.mu.Lock()
	if t.streams == nil {
		t.streams = map[jsonrpc.ID]*stream{}
	}
	if t.streams[id] == nil { // an id that is in use belongs to the other stream
		t.streams[id] = st
	}
	t.mu.Unlock()
	if st.session.isReplaced() { // lost may have looked before
		st.over(errReplaced)
	}
}

// close forgets a subscriptions/listen; acked is whether it was acknowledged.
func (t *subscriptions) close(id jsonrpc.ID, st *stream) (acked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams[id] == st {
		delete(t.streams, id)
		if t.past = append(t.past, id); len(t.past) > pastIDs {
			t.past = slices.Delete(t.past, 0, 1)
		}
	}
	return st.acked
}

// openLegacy and closeLegacy do the same on a legacy connection.
func (t *subscriptions) openLegacy(st *stream) {
	t.mu.Lock()
	if t.legacy == nil {
		t.legacy = map[*stream]struct{}{}
	}
	t.legacy[st] = struct{}{}
	t.mu.Unlock()
	if st.session.isReplaced() {
		st.over(errReplaced)
	}
}

func (t *subscriptions) closeLegacy(st *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.legacy, st)
}

// acknowledged marks a stream; after a gap, or after it was overdue, something
// may have been missed.
func (t *subscriptions) acknowledged(st *stream) (afterGap bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st.acked {
		return false // said again
	}
	st.acked = true
	close(st.ready)
	return st.afterGap || st.overdue
}

// late is called when an acknowledgement is overdue.
func (t *subscriptions) late(st *stream) {
	t.mu.Lock()
	acked := st.acked
	st.overdue = true
	t.mu.Unlock()
	if acked {
		return
	}
	sub := st.sub
	sub.c.log.Warn("the server has not acknowledged a subscription; it stays open and may bring nothing", "waited", ackWait)
	sub.markOpen()
	if st.afterGap && !sub.automatic {
		sub.post(Notification{Method: MethodResync}, false)
	}
}

// nextConnection returns a channel that is closed at the next connection.
func (t *subscriptions) nextConnection() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.connected == nil {
		t.connected = make(chan struct{})
	}
	return t.connected
}

// subscriptionsConnected is told of every new connection.
func (c *Client) subscriptionsConnected(s *session) {
	t := &c.subs
	t.mu.Lock()
	if t.connected != nil {
		close(t.connected)
		t.connected = nil
	}
	t.mu.Unlock()
	c.watchChanges(s)
}

// subscriptionsLost ends what was open on a connection that was given up.
func (c *Client) subscriptionsLost(s *session) {
	t := &c.subs
	t.mu.Lock()
	var lost []*stream
	for _, st := range t.streams {
		if st.session == s {
			lost = append(lost, st)
		}
	}
	for st := range t.legacy {
		if st.session == s {
			lost = append(lost, st)
		}
	}
	delete(t.topics, s)
	t.mu.Unlock()
	for _, st := range lost {
		st.over(errReplaced)
	}
}

// routeSubscription hands a notification to the subscriptions it is for; true
// means that it was for them alone.
func (c *Client) routeSubscription(l *link, in transport.Inbound) bool {
	s := l.session.Load()
	if s == nil {
		return false
	}
	if s.era == EraLegacy {
		c.fanOut(s, in.Message)
		return false
	}
	m := in.Message
	switch m.Method {
	case "notifications/progress", "notifications/message":
		return false // they belong to requests, never to subscriptions
	case methodCancelled:
		return c.tornDown(m.Params)
	}
	id, tag := subscriptionID(m.Params)
	st := c.streamOf(in.Origin, id)
	if st == nil {
		c.stray(m.Method, id, tag)
		return tag != untagged
	}
	if m.Method == methodAcknowledged {
		c.takeAcknowledgement(st, m.Params)
		return true
	}
	sub := st.sub
	sub.heard.Store(true)
	c.invalidateFor(m.Method)
	if !sub.filter.wants(m.Method) {
		c.log.Debug("a notification that was not subscribed to was dropped", "method", m.Method)
		return true
	}
	n := Notification{Method: m.Method, Params: m.Params.Clone()}
	if sub.automatic {
		c.tellHandlers(sub.lane, n)
	} else {
		sub.post(n, true)
	}
	return true
}

// idTag says what a notification tells of its subscription.
type idTag int

const (
	untagged idTag = iota
	tagged
	tagInvalid // it can be no id of ours
)

// subscriptionID reads the subscription id of a notification. Type and value
// count: "1" is not 1.
func subscriptionID(params jsontext.Value) (id jsonrpc.ID, tag idTag) {
	if params.Kind() != '{' {
		return id, untagged
	}
	_ = eachMember(params, func(key string, value jsontext.Value) error {
		if key != "_meta" || value.Kind() != '{' {
			return nil
		}
		return eachMember(value, func(key string, value jsontext.Value) error {
			if key != MetaSubscriptionID || value.Kind() == 'n' {
				return nil
			}
			var err error
			if id, err = jsonrpc.ParseID(value); err != nil {
				tag = tagInvalid
			} else {
				tag = tagged
			}
			return nil
		})
	})
	return id, tag
}

// streamOf finds the stream that a notification belongs to: over HTTP the one
// that carried it, on a shared stream the one it names.
func (c *Client) streamOf(origin, id jsonrpc.ID) *stream {
	t := &c.subs
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.streams[origin]; st != nil {
		return st
	}
	return t.streams[id]
}

// stray logs a notification that belongs to no stream.
func (c *Client) stray(method string, id jsonrpc.ID, tag idTag) {
	counter := func(t *subscriptions) *int { return &t.strays }
	text := "a notification was dropped: its subscription id is none of ours"
	if tag == untagged {
		switch method {
		case MethodToolsChanged, MethodPromptsChanged, MethodResourcesChanged, MethodResourceUpdated, MethodTaskStatus, methodAcknowledged:
		default:
			return
		}
		counter = func(t *subscriptions) *int { return &t.untagged }
		text = "a notification of the server lacks its subscription id; it reaches the general handlers only"
	}
	t := &c.subs
	t.mu.Lock()
	if tag == tagged && slices.Contains(t.past, id) {
		t.mu.Unlock()
		return // late, not wrong
	}
	n := counter(t)
	*n++
	count := *n
	t.mu.Unlock()
	if count == 1 || count%100 == 0 {
		c.log.Warn(text, "method", method, "id", id.String(), "so_far", count) //nolint:sloglint // one of two literals
	}
}

// takeAcknowledgement takes what a server agreed to (2026-07-28
// patterns/subscriptions, Acknowledgment).
func (c *Client) takeAcknowledgement(st *stream, params jsontext.Value) {
	var p struct {
		Notifications wireFilter `json:"notifications"`
	}
	if err := json.Unmarshal(params, &p, jsonOptions); err != nil {
		c.log.Warn("the acknowledgement of a subscription is malformed; nothing counts as agreed to", "error", err)
		p.Notifications = wireFilter{}
	}
	afterGap := c.subs.acknowledged(st)
	agreed := p.Notifications.filter()
	if missing := st.sub.filter.without(agreed); !missing.isEmpty() { // numbers, since a short acknowledgement must not make a long line
		c.log.Info("the server agreed to a part of a subscription only", "missing_tools", missing.ToolsList, "missing_prompts", missing.PromptsList,
			"missing_resources", missing.ResourcesList, "missing_uris", len(missing.Resources), "missing_tasks", len(missing.Tasks))
	}
	st.sub.acknowledge(agreed, afterGap)
}

// tornDown ends the subscription that the server cancelled (2026-07-28
// patterns/cancellation).
func (c *Client) tornDown(params jsontext.Value) bool {
	var p struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	if len(params) == 0 || json.Unmarshal(params, &p, jsonOptions) != nil {
		return false
	}
	id, err := jsonrpc.ParseID(p.RequestID)
	if err != nil {
		return false
	}
	t := &c.subs
	t.mu.Lock()
	st := t.streams[id]
	t.mu.Unlock()
	if st == nil {
		return false
	}
	st.over(errTornDown)
	return true
}

// invalidateFor marks the lists stale that a notification says have changed.
func (c *Client) invalidateFor(method string) {
	switch method {
	case MethodToolsChanged:
		c.lists.tools.invalidate()
	case MethodPromptsChanged:
		c.lists.prompts.invalidate()
	case MethodResourcesChanged:
		c.lists.resources.invalidate()
		c.lists.templates.invalidate()
	}
}

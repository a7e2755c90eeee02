package mcpclient

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// link is where a connection's inbound messages come in. They may arrive before
// the dial has returned and before the session is negotiated.
type link struct {
	dialed  chan struct{} // closed once conn is set
	conn    transport.Conn
	session atomic.Pointer[session]
	lane    *lane // notifications of the shared stream, in order
	heard   atomic.Int64

	mu     sync.Mutex // guards the following
	asked  map[jsonrpc.ID]*question
	dialog *dialog // the call whose caller answers the questions; nil = the handlers do
}

func (c *Client) newLink() *link {
	return &link{dialed: make(chan struct{}), lane: c.newLane(), asked: map[jsonrpc.ID]*question{}}
}

// receive takes what a server sends on its own account. It runs on a reader's
// goroutine and never blocks: handlers run on lanes.
func (c *Client) receive(l *link, in transport.Inbound) {
	l.heard.Store(time.Now().UnixNano())
	m := in.Message
	if m.Kind == jsonrpc.Request {
		c.answer(l, in)
		return
	}
	if c.routeSubscription(l, in) {
		return
	}
	switch m.Method {
	case MethodToolsChanged:
		c.lists.tools.invalidate()
	case MethodResourcesChanged:
		c.lists.resources.invalidate()
		c.lists.templates.invalidate()
	case MethodPromptsChanged:
		c.lists.prompts.invalidate()
	case "notifications/progress":
		c.receiveProgress(m.Params)
	case "notifications/message":
		c.receiveLog(l, in.Origin, m.Params)
	case methodCancelled:
		c.withdraw(l, m.Params)
	}
	c.tellHandlers(l.lane, Notification{Method: m.Method, Params: m.Params})
}

// tellHandlers hands a notification to the listeners and to its handler; one
// that nobody wants costs nothing.
func (c *Client) tellHandlers(on *lane, n Notification) {
	handler := c.opts.Handlers.Notification[n.Method]
	if handler == nil {
		handler = c.opts.Handlers.Notification[""]
	}
	updated := c.opts.Handlers.ResourceUpdated
	if n.Method != MethodResourceUpdated {
		updated = nil
	}
	watched := false
	for i := range c.opts.Listeners {
		watched = watched || c.opts.Listeners[i].Notification != nil
	}
	if handler == nil && updated == nil && !watched {
		return
	}
	n.Params = n.Params.Clone() // the transport may use its buffer again
	c.dispatch(on, n.Method, func() {
		for i := range c.opts.Listeners {
			if f := c.opts.Listeners[i].Notification; f != nil {
				c.guard("listener", func() { f(c.lifetime, n) })
			}
		}
		if updated != nil {
			if uri := uriOf(n.Params); uri != "" {
				c.guard("resource handler", func() { updated(c.lifetime, uri) })
			} else {
				c.log.Warn("a resource update names no URI")
			}
		}
		if handler != nil {
			handler(c.lifetime, n)
		}
	})
}

// uriOf reads params.uri; "" when there is none.
func uriOf(params jsontext.Value) string {
	var p struct {
		URI string `json:"uri"`
	}
	if len(params) == 0 || json.Unmarshal(params, &p, jsonOptions) != nil {
		return ""
	}
	return p.URI
}

// answer responds to a request of a legacy server; a modern one may not send
// any and gets no response (2026-07-28 basic/transports).
func (c *Client) answer(l *link, in transport.Inbound) {
	m, version := in.Message, l.version()
	if EraOf(version) == EraModern {
		if n := c.forbidden.Add(1); n == 1 || n%100 == 0 {
			c.log.Warn("the server sent a request, which its protocol version forbids; it was dropped", "method", m.Method, "so_far", n)
		}
		return
	}
	q := &question{id: m.ID, method: m.Method, params: m.Params.Clone(), version: version}
	if q.method == methodPing { // outside of every cap: the server asks whether we live
		c.answerFreely(func() {
			c.tellRequest(q.method, q.params)
			c.reply(l, version, jsonrpc.AppendResult(nil, q.id, []byte("{}")))
		})
		return
	}
	release, ok := c.admit(q.method)
	if !ok {
		c.refuse(l, version, q.id, &jsonrpc.Error{Code: c.opts.Dispatch.OverloadCode, Message: "Client overloaded"})
		return
	}
	if !l.ask(c, q, in.Origin) {
		release()
		c.refuse(l, version, q.id, &jsonrpc.Error{Code: CodeInvalidRequest, Message: "a request with this id is being answered already"})
		return
	}
	started := c.background(func() {
		defer release()
		defer q.cancel()
		defer c.questions.begin(q.params)()
		c.tellRequest(q.method, q.params)
		if body := c.work(q); body != nil && l.settle(q) {
			c.reply(l, version, body)
		}
	})
	if !started {
		q.cancel()
		release()
	}
}

func (c *Client) tellRequest(method string, params jsontext.Value) {
	for i := range c.opts.Listeners {
		if f := c.opts.Listeners[i].Request; f != nil {
			c.guard("listener", func() { f(c.lifetime, method, params) })
		}
	}
}

// work has one request answered and encodes the answer; nil = the end of its
// call refuses it.
func (c *Client) work(q *question) []byte {
	var result jsontext.Value
	err := errors.New("the handler panicked")
	done := c.observeRequest(q)
	c.guard(q.method, func() {
		handler := c.opts.Handlers.Request[q.method]
		switch {
		case q.dialog != nil:
			result, err = c.askCaller(q)
		case handler != nil:
			result, err = handler(q.ctx, q.params)
		default:
			result, err = c.answerInput(q.ctx, q.method, q.params)
		}
	})
	done(err)
	if errors.Is(err, errCallEnds) {
		return nil
	}
	return c.encodeReply(q, result, err)
}

// encodeReply writes the answer to one request. A handler's own error text
// stays here: it may be about things the server must not see.
func (c *Client) encodeReply(q *question, result jsontext.Value, err error) []byte {
	if err == nil {
		return jsonrpc.AppendResult(nil, q.id, relate(result, q.params))
	}
	if rpc, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return jsonrpc.AppendError(nil, q.id, rpc)
	}
	c.log.WarnContext(q.ctx, "a request of the server could not be answered", "method", q.method, "error", err)
	return jsonrpc.AppendError(nil, q.id, &jsonrpc.Error{Code: CodeInternal, Message: "internal error"})
}

// withdraw cancels a request of the server that is being answered; there is
// then no answer. It needs no place under the cap, since it frees one.
func (c *Client) withdraw(l *link, params jsontext.Value) {
	var p struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	if len(params) == 0 || json.Unmarshal(params, &p, jsonOptions) != nil {
		return
	}
	id, err := jsonrpc.ParseID(p.RequestID)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.asked[id]; q != nil && !q.cancelled {
		q.cancelled = true
		q.cancel()
	}
}

// refuse answers a request with an error, without a handler.
func (c *Client) refuse(l *link, version string, id jsonrpc.ID, e *jsonrpc.Error) {
	c.answerFreely(func() { c.reply(l, version, jsonrpc.AppendError(nil, id, e)) })
}

// answerFreely delivers one answer that needs no handler, on a goroutine of its
// own, or drops it when too many are on their way: a server that floods us and
// does not read must not cost us memory without end.
func (c *Client) answerFreely(deliver func()) {
	if c.replies.Add(1) > maxReplies {
		c.replies.Add(-1)
		return
	}
	if !c.background(func() {
		defer c.replies.Add(-1)
		deliver()
	}) {
		c.replies.Add(-1)
	}
}

// maxReplies bounds the answers to pings and the refusals on their way at once.
const maxReplies = 256

// reply delivers one answer.
func (c *Client) reply(l *link, version string, body []byte) {
	ctx, cancel := context.WithTimeout(c.lifetime, cancelBudget)
	defer cancel()
	select {
	case <-l.dialed:
	case <-ctx.Done():
		return
	}
	if err := l.conn.Reply(ctx, body, version); err != nil {
		c.log.Debug("an answer to the server was not delivered", "error", err)
	}
}

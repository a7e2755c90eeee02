package mcpclient

import (
	"context"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// maxReplies bounds the answers to server requests that are under way, so that
// a flooding server costs itself, not us.
const maxReplies = 1024

// link is where a connection's inbound messages come in. They may arrive before
// the dial has returned and before the session is negotiated.
type link struct {
	dialed  chan struct{} // closed once conn is set
	conn    transport.Conn
	session atomic.Pointer[session]
}

// receive takes what a server sends on its own account. It runs on a reader's
// goroutine and never blocks.
func (c *Client) receive(l *link, in transport.Inbound) {
	m := in.Message
	if m.Kind == jsonrpc.Request {
		c.answer(l, m)
		return
	}
	switch m.Method {
	case "notifications/tools/list_changed":
		c.lists.tools.invalidate()
	case "notifications/resources/list_changed":
		c.lists.resources.invalidate()
		c.lists.templates.invalidate()
	case "notifications/prompts/list_changed":
		c.lists.prompts.invalidate()
	default:
		c.log.Debug("a notification has no handler", "method", m.Method)
	}
}

// answer responds to a request of a legacy server; a modern one may not send
// any and gets no response (2026-07-28 basic/transports).
func (c *Client) answer(l *link, m *jsonrpc.Message) {
	version := ""
	if s := l.session.Load(); s != nil {
		version = s.version
	}
	if EraOf(version) == EraModern {
		c.log.Warn("the server sent a request, which its protocol version forbids; it was dropped", "method", m.Method)
		return
	}
	if c.replies.Add(1) > maxReplies {
		c.replies.Add(-1)
		c.log.Warn("a request of the server was dropped: too many answers are under way", "method", m.Method)
		return
	}
	var body []byte
	switch {
	case m.Method == methodPing:
		body = jsonrpc.AppendResult(nil, m.ID, []byte("{}"))
	case m.Method == methodListRoots && len(c.opts.Roots) > 0:
		roots, err := json.Marshal(map[string][]Root{"roots": c.opts.Roots})
		if err != nil {
			body = jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: CodeInternal, Message: "the roots cannot be encoded"})
			break
		}
		body = jsonrpc.AppendResult(nil, m.ID, roots)
	default:
		body = jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: CodeMethodNotFound, Message: "method not found: this client declared no capability for it"})
	}
	started := c.background(func() {
		defer c.replies.Add(-1)
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
	})
	if !started {
		c.replies.Add(-1)
	}
}

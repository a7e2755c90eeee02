package mcpclient

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// callStream is where the progress and log messages of one request go.
type callStream struct {
	lane     *lane
	ctx      context.Context //nolint:containedctx // the request's, for its handlers
	progress func(ctx context.Context, p Progress)
	log      func(ctx context.Context, m LogMessage)
	extend   func() // restarts the request's time; nil = it does not move

	shed atomic.Int64 // log messages since the last one that was admitted

	last    float64 // the newest progress; guarded by Client.streamMu
	started bool    // there was one
}

// openStream registers who is told about a request before it is sent, if anybody
// asked. end ends it: what came before the response is delivered, what comes
// later is dropped (2026-07-28 patterns/progress).
func (c *Client) openStream(ctx context.Context, call *Call, extend func()) (end func(), err error) {
	o := call.options
	progress := c.opts.Handlers.Progress
	if call.Method != methodCallTool {
		progress = nil
	}
	if o != nil && o.Progress != nil {
		progress = o.Progress
	}
	var log func(context.Context, LogMessage)
	if o != nil {
		log = o.Log
	}
	if progress == nil && log == nil {
		return func() {}, nil
	}
	st := &callStream{lane: c.newLane(), ctx: ctx, progress: progress, log: log, extend: extend}
	if progress != nil {
		token, err := c.nextToken()
		if err != nil {
			return nil, err
		}
		call.token = token
	}
	c.streamMu.Lock()
	c.byID[call.ID] = st
	if !call.token.IsZero() {
		c.byToken[call.token] = st
	}
	c.streamMu.Unlock()
	call.answered = func() {
		c.streamMu.Lock()
		defer c.streamMu.Unlock()
		delete(c.byID, call.ID)
		delete(c.byToken, call.token)
	}
	return func() {
		call.answered()
		st.lane.wait(ctx)
	}, nil
}

// nextToken returns a progress token that no request in flight has.
func (c *Client) nextToken() (jsonrpc.ID, error) {
	token := jsonrpc.StringID(fmt.Sprintf("progress-%d", c.lastToken.Add(1)))
	if c.opts.NewProgressToken != nil {
		var err error
		if token, err = idOf(c.opts.NewProgressToken()); err != nil {
			return jsonrpc.ID{}, &Error{Kind: KindInvalid, SafeToRetry: true, Message: "Options.NewProgressToken returned an unusable token", Err: err}
		}
	}
	c.streamMu.Lock()
	defer c.streamMu.Unlock()
	if c.byToken[token] != nil {
		return jsonrpc.ID{}, &Error{Kind: KindInvalid, SafeToRetry: true, Message: "Options.NewProgressToken returned a token that is in use: " + token.String()}
	}
	return token, nil
}

// receiveProgress hands one progress notification to the request that asked
// for it. Unknown tokens and progress that does not increase are dropped.
func (c *Client) receiveProgress(params jsontext.Value) {
	var wire struct {
		Token jsontext.Value `json:"progressToken"`
		Progress
	}
	if err := json.Unmarshal(params, &wire, jsonOptions); err != nil {
		c.log.Debug("a progress notification is malformed", "error", err)
		return
	}
	token, err := jsonrpc.ParseID(wire.Token)
	if err != nil {
		c.log.Debug("a progress notification has no usable token")
		return
	}
	c.streamMu.Lock()
	st := c.byToken[token]
	fresh := st != nil && (!st.started || wire.Progress.Progress > st.last)
	if fresh {
		st.started, st.last = true, wire.Progress.Progress
	}
	c.streamMu.Unlock()
	if !fresh {
		c.log.Debug("a progress notification was dropped: its token is unknown, or it does not increase", "token", token.String())
		return
	}
	if st.extend != nil {
		st.extend()
	}
	c.dispatch(st.lane, "notifications/progress", func() { st.progress(st.ctx, wire.Progress) })
}

// receiveLog hands a log message to the request on whose stream it came, else
// to the client's handler: on a shared stream nothing says whose it is.
func (c *Client) receiveLog(l *link, origin jsonrpc.ID, params jsontext.Value) {
	var message LogMessage
	if err := json.Unmarshal(params, &message, jsonOptions); err != nil {
		c.log.Debug("a log message is malformed", "error", err)
		return
	}
	message.Data = message.Data.Clone()
	if !origin.IsZero() {
		c.streamMu.Lock()
		st := c.byID[origin]
		c.streamMu.Unlock()
		if st != nil && st.log != nil {
			message.Shed = st.shed.Swap(0)
			if !c.dispatch(st.lane, "notifications/message", func() { st.log(st.ctx, message) }) {
				st.shed.Add(message.Shed + 1)
			}
			return
		}
	}
	if handler := c.opts.Handlers.Log; handler != nil {
		c.dispatch(l.lane, "notifications/message", func() { handler(c.lifetime, message) })
	}
}

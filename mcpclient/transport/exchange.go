package transport

import (
	"context"
	"fmt"
	"sync/atomic"
)

// exchange is one request of ours with whatever answers it.
type exchange struct {
	conn *httpConn
	//nolint:containedctx // the caller's; an exchange lives inside of one call
	parent context.Context
	//nolint:containedctx // it ends with parent, Close, or end
	ctx     context.Context
	cancel  context.CancelFunc
	stop    func() bool // undoes that Close ends ctx; nil = Close finds the exchange among the calls
	req     *Request
	session string       // the session id that was sent
	offered string       // the session id in the reply
	stage   atomic.Int32 // how far the message has come
	linger  bool         // a drain goroutine ends ctx
}

// Stages of a message.
const (
	stageUnknown    int32 = iota // nothing has been heard yet
	stageConnecting              // there is no connection for it
	stageConnected               // it may be on its way
	stageWritten                 // its head is on the wire
	stageAnswered                // the server has answered; nothing leads back from here
)

// reach notes how far the message has come.
func (x *exchange) reach(stage int32) {
	for {
		was := x.stage.Load()
		if was == stageAnswered || x.stage.CompareAndSwap(was, stage) {
			return
		}
	}
}

// unsent reports that surely nothing of the message has been written; once the
// request was cut off, that will not change.
func (x *exchange) unsent() bool { return x.stage.Load() == stageConnecting }

// begin registers an exchange; end must follow.
func (c *httpConn) begin(ctx context.Context, r *Request) (*exchange, error) {
	if err := ctx.Err(); err != nil {
		return nil, unsent(r, err)
	}
	if err := checkHeader(r.Header); err != nil {
		return nil, &Error{Kind: Invalid, Message: err.Error()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errConnClosed()
	}
	x := &exchange{conn: c, parent: ctx, req: r}
	switch {
	case r.Modern || r.Method == "initialize":
	case r.Method == "" && c.offered != "":
		x.session = c.offered // it answers a request on the stream of initialize
	default:
		if c.gone {
			return nil, errSessionGone(nil)
		}
		x.session = c.session
	}
	if !r.ID.IsZero() {
		if _, taken := c.calls[r.ID]; taken {
			return nil, errDuplicateID(r.ID)
		}
		c.calls[r.ID] = x
	}
	c.wg.Add(1)
	x.ctx, x.cancel = context.WithCancel(ctx)
	if r.ID.IsZero() {
		x.detach()
	}
	return x, nil
}

// detach makes Close end ctx although the exchange is not among the calls.
func (x *exchange) detach() {
	if x.stop == nil {
		x.stop = context.AfterFunc(x.conn.ctx, x.cancel)
	}
}

// free gives up ctx.
func (x *exchange) free() {
	if x.stop != nil {
		x.stop()
	}
	x.cancel()
}

func (x *exchange) end() {
	c := x.conn
	if !x.linger {
		x.free()
	}
	if !x.req.ID.IsZero() {
		c.mu.Lock()
		delete(c.calls, x.req.ID)
		c.mu.Unlock()
	}
	c.wg.Done()
}

// ended returns the error of a caller that left or a connection that was
// closed; nil while both are there.
func (x *exchange) ended() error {
	if err := x.parent.Err(); err != nil {
		return fmt.Errorf("%s got no response: %w", subject(x.req), err)
	}
	if x.conn.ctx.Err() != nil {
		return errConnClosed()
	}
	return nil
}

// deliver sends a message that needs no response.
func (x *exchange) deliver() error {
	resp, err := x.post()
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return x.statusError(resp)
	}
	if mediaType(resp.Header) == typeStream {
		_ = resp.Body.Close() // nothing to wait for
		return nil
	}
	x.release(resp.Body)
	return nil
}

package transport

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// SSEFallback says whether HTTP falls back to the HTTP+SSE transport.
type SSEFallback int

const (
	// SSEAuto falls back when initialize is answered 400, 404 or 405 without
	// an error that only newer servers give, and a GET brings an endpoint
	// event (2026-07-28 streamable HTTP, HTTP+SSE Transport).
	SSEAuto SSEFallback = iota
	// SSENever speaks streamable HTTP only.
	SSENever
)

// endpointWait bounds the wait for the endpoint event of a server of which it
// is not known whether it sends one: the stream of a newer server is silent.
const endpointWait = 5 * time.Second

// eitherConn is a streamable HTTP connection that becomes an HTTP+SSE one when
// its initialize shows that the server is that old.
type eitherConn struct {
	transport  *HTTP
	handler    Handler
	streamable *httpConn
	old        atomic.Pointer[sseConn]
	wg         sync.WaitGroup // attempts to switch, and the watch over old
	closing    sync.Once
	turn       chan struct{} // holds a value while a call tries to switch

	mu     sync.Mutex // guards what follows
	closed bool
}

func (h *HTTP) dialEither(ctx context.Context, handler Handler) (Conn, error) {
	streamable, err := h.dial(ctx, handler)
	if err != nil {
		return nil, err
	}
	c := &eitherConn{transport: h, handler: handler, streamable: streamable, turn: make(chan struct{}, 1)}
	if !h.onlySSE.Load() {
		return c, nil
	}
	old, err := h.trySSE(ctx, handler)
	if err == nil {
		c.become(old)
		return c, nil
	}
	if ctx.Err() != nil || !noEndpoint(err) {
		streamable.cancel()
		return nil, err
	}
	h.onlySSE.Store(false) // it is something else by now
	return c, nil
}

// trySSE opens an HTTP+SSE connection if the server offers one soon.
func (h *HTTP) trySSE(ctx context.Context, handler Handler) (*sseConn, error) {
	ctx, cancel := context.WithTimeout(ctx, endpointWait)
	defer cancel()
	return h.dialSSE(ctx, handler)
}

// noEndpoint reports whether a failed GET says that there is no HTTP+SSE
// server; that nothing answers, or asks for credentials, says nothing.
func noEndpoint(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case Malformed:
		return true
	case Status:
		return e.Status/100 == 4 && e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && !temporary(e.Status)
	default:
		return false
	}
}

// conn is the connection in use.
func (c *eitherConn) conn() Conn {
	if old := c.old.Load(); old != nil {
		return old
	}
	return c.streamable
}

// Call sends a request and waits for its response.
func (c *eitherConn) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	if old := c.old.Load(); old != nil {
		return old.Call(ctx, r)
	}
	m, err := c.streamable.Call(ctx, r)
	if err == nil || r.Method != "initialize" || r.Modern || !refusesStreamable(err) {
		return m, err
	}
	old, switchErr := c.switchOver(ctx)
	if switchErr != nil {
		if ctx.Err() == nil {
			c.streamable.log.DebugContext(ctx, "the server refuses initialize and offers no HTTP+SSE stream", "host", c.streamable.url.Host, "error", switchErr)
		}
		return nil, err
	}
	return old.Call(ctx, r)
}

// Codes of errors that only servers of the streamable transport give.
const (
	codeMethodNotFound     = -32601
	codeHeaderMismatch     = -32020
	codeCapability         = -32021
	codeUnsupportedVersion = -32022
)

// refusesStreamable reports whether an answer to initialize may come from a
// server that only speaks HTTP+SSE. Such a server has not acted on it.
func refusesStreamable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != Status {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
	default:
		return false
	}
	if e.RPC != nil {
		switch e.RPC.Code {
		case codeMethodNotFound, codeHeaderMismatch, codeCapability, codeUnsupportedVersion:
			return false
		}
	}
	return true
}

// switchOver opens the HTTP+SSE connection, one caller at a time.
func (c *eitherConn) switchOver(ctx context.Context) (*sseConn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errConnClosed()
	}
	c.wg.Add(1)
	c.mu.Unlock()
	defer c.wg.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.streamable.ctx, cancel)()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	if old := c.old.Load(); old != nil {
		return old, nil
	}
	old, err := c.transport.trySSE(ctx, c.handler)
	if err != nil {
		return nil, err
	}
	c.streamable.log.InfoContext(ctx, "the server speaks the deprecated HTTP+SSE transport", "host", c.streamable.url.Host)
	c.transport.onlySSE.Store(true)
	c.become(old)
	return old, nil
}

// become makes old the connection in use.
func (c *eitherConn) become(old *sseConn) {
	c.old.Store(old)
	c.wg.Go(func() {
		select {
		case <-old.Done():
			c.streamable.finish(old.Err())
		case <-c.streamable.Done():
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // Close may have looked before
		old.fail(errConnClosed())
	}
}

// Notify sends a notification.
func (c *eitherConn) Notify(ctx context.Context, r *Request) error { return c.conn().Notify(ctx, r) }

// Reply sends our response to a request of the server.
func (c *eitherConn) Reply(ctx context.Context, body []byte, version string) error {
	return c.conn().Reply(ctx, body, version)
}

// Ready opens the GET stream of a legacy server, if that is not open already.
func (c *eitherConn) Ready(n Negotiated) { c.conn().Ready(n) }

// PerRequestStreams is true until the server turns out to speak HTTP+SSE.
func (c *eitherConn) PerRequestStreams() bool { return c.conn().PerRequestStreams() }

// Done is closed by Close, and when the stream of HTTP+SSE ends.
func (c *eitherConn) Done() <-chan struct{} { return c.streamable.Done() }

// Err says why Done was closed.
func (c *eitherConn) Err() error { return c.streamable.Err() }

// Close closes the connection in use.
func (c *eitherConn) Close(ctx context.Context) error {
	var err error
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		err = c.streamable.Close(ctx) // which ends attempts to switch
		err = cmp.Or(err, wait(ctx, &c.wg))
		if old := c.old.Load(); old != nil {
			err = cmp.Or(err, old.Close(ctx))
		}
	})
	return err
}

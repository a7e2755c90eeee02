package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// SSE is the deprecated HTTP+SSE transport (2024-11-05 transports, HTTP with
// SSE): answers come on one shared stream, messages are posted to an endpoint
// that the stream names. It has no sessions and resumes nothing; when the
// stream ends, the connection has ended. URL is required; fields must not
// change after the first Dial.
type SSE struct {
	// URL is where the stream is opened, http or https.
	URL string
	// Header, Client and MaxReplyBytes are as in HTTP.
	Header        http.Header
	Client        *http.Client
	MaxReplyBytes int64
	// LenientIDs: see StreamOptions.
	LenientIDs bool
	// Redact: see HTTP.
	Redact func(string) string
	// Logger; nil = no logs.
	Logger *slog.Logger

	setup sync.Once
	http  *HTTP
}

// Name returns NameSSE.
func (s *SSE) Name() string { return NameSSE }

// Validate reports what is wrong with the configuration.
func (s *SSE) Validate() error { return s.over().Validate() }

// over returns the HTTP transport that carries the requests.
func (s *SSE) over() *HTTP {
	s.setup.Do(func() {
		s.http = &HTTP{
			URL: s.URL, Header: s.Header, Client: s.Client, MaxReplyBytes: s.MaxReplyBytes,
			LenientIDs: s.LenientIDs, Redact: s.Redact, Logger: s.Logger, NoGetStream: true, SSEFallback: SSENever,
		}
	})
	return s.http
}

// Dial opens the stream and waits, until ctx ends, for the server to name its
// endpoint.
func (s *SSE) Dial(ctx context.Context, h Handler) (Conn, error) {
	c, err := s.over().dialSSE(ctx, h)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// sseConn is one open stream and the endpoint that belongs to it.
type sseConn struct {
	mux
	peer   *httpConn // posts to the endpoint
	events *eventReader
	known  atomic.Bool // the endpoint has accepted a message
	gone   atomic.Bool // it does not know this stream any more
}

// dialSSE opens the stream.
func (h *HTTP) dialSSE(ctx context.Context, handler Handler) (*sseConn, error) {
	peer, err := h.dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	peer.bound = true
	c := &sseConn{mux: newMux(handler, h.Logger, h.MaxReplyBytes, h.LenientIDs, h.Redact), peer: peer}
	c.stop = peer.cancel
	body, err := c.open(ctx)
	if err != nil {
		peer.cancel()
		if h.sender.own {
			peer.sender.closeIdle()
		}
		return nil, err
	}
	peer.wg.Go(func() { c.read(body) })
	return c, nil
}

// open sends the GET and reads up to the endpoint. The stream it returns ends
// with peer's context.
func (c *sseConn) open(ctx context.Context) (body io.ReadCloser, err error) {
	p := c.peer
	x := &exchange{conn: p, parent: ctx, req: &Request{Method: methodOpen}}
	x.ctx, x.cancel = context.WithCancel(p.ctx)
	leave := context.AfterFunc(ctx, x.cancel)
	defer func() {
		if !leave() && err == nil { // ctx ended in the last moment
			_ = body.Close() // it has been cut off
			body, err = nil, x.ended()
		}
		if err != nil {
			x.cancel()
		}
	}()
	resp, err := x.get("")
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, x.statusError(resp)
	}
	if mediaType(resp.Header) != typeStream {
		return nil, x.unexpectedType(resp)
	}
	c.events = newEventReader(p.transport.newReader(resp.Body, false), c.limit, completeJSON)
	c.events.keep = true
	text, err := c.firstEvent(x)
	if err == nil {
		err = p.redirectTo(resp.Request.URL, text)
	}
	if err != nil {
		_ = resp.Body.Close()
		p.transport.freeReader(c.events.r)
		return nil, err
	}
	return resp.Body, nil
}

// firstEvent returns what the endpoint event says. Events that are no messages
// may come before it.
func (c *sseConn) firstEvent(x *exchange) (string, error) {
	for {
		ev, err := c.events.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			continue
		case err != nil:
			if ended := x.ended(); ended != nil {
				return "", ended
			}
			return "", &Error{Kind: Malformed, Message: "the event stream of " + c.peer.url.Host + " ended before an endpoint event; check that the URL is that of an HTTP+SSE server", Err: c.redact.cover(err)}
		case ev.name == "endpoint":
			return strings.TrimSpace(string(ev.data)), nil
		case ev.name == "" || ev.name == "message":
			return "", &Error{Kind: Malformed, Message: "the event stream began with a message, not with an endpoint event; check that the URL is that of an HTTP+SSE server"}
		}
	}
}

// redirectTo makes the connection post to the endpoint that a stream from base
// has named. Another origin would get the credentials meant for this one.
func (c *httpConn) redirectTo(base *url.URL, endpoint string) error {
	u, err := base.Parse(endpoint)
	switch {
	case err != nil || endpoint == "":
		return &Error{Kind: Malformed, Message: "the endpoint event holds no URL but: " + c.redact.text(endpoint)}
	case u.Scheme != base.Scheme || !sameOrigin(base, u):
		origin := u.Scheme + "://" + u.Host
		return &Error{Kind: Malformed, Message: fmt.Sprintf("the server names an endpoint on another origin, %s instead of %s://%s; messages are not sent there",
			c.redact.text(origin), base.Scheme, base.Host)}
	}
	u.Fragment, u.RawFragment, u.User = "", "", c.url.User
	if c.blank.Host == c.url.Host {
		c.blank.Host = u.Host
	}
	c.url = u
	return nil
}

// read follows the stream to its end.
func (c *sseConn) read(body io.ReadCloser) {
	defer c.peer.transport.freeReader(c.events.r)
	defer body.Close()
	for {
		ev, err := c.events.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			if ev.name == "" || ev.name == "message" {
				c.oversize(c.events.over)
			}
			continue
		case err != nil:
			c.fail(errLost("the event stream of "+c.peer.url.Host+" has ended", c.redact.cover(err)))
			return
		}
		if c.alive() {
			for _, data := range messages(ev, false) {
				c.message(data)
			}
		}
	}
}

// postLinger is for how long a POST may go on after its answer has come on the
// stream, so that the connection can be used again.
const postLinger = time.Second

// Call posts a request and waits for its response on the stream.
func (c *sseConn) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	if r.ID.IsZero() {
		return nil, errNoID()
	}
	if c.gone.Load() {
		return nil, errSessionGone(nil)
	}
	answer := make(chan reply, 1)
	if err := c.register(r, answer); err != nil {
		return nil, err
	}
	defer c.forget(r.ID)
	if err := ctx.Err(); err != nil {
		return nil, unsent(r, err)
	}
	// The POST ends with ctx, but not with the answer, which may be faster.
	posting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	x, posted := c.post(posting, cancel, r)
	for {
		select {
		case a := <-answer:
			if a.msg != nil {
				c.known.Store(true) // the word of the POST may come later
			}
			if posted != nil {
				time.AfterFunc(postLinger, cancel)
			}
			return a.msg, a.err
		case err := <-posted:
			if posted = nil; err == nil {
				continue
			}
			select {
			case a := <-answer: // it came in the same moment
				return a.msg, a.err
			default:
				return nil, err
			}
		case <-ctx.Done():
			cancel()
			select {
			case a := <-answer:
				return a.msg, a.err
			default:
			}
			if x != nil && x.unsent() && settled(posted) && x.unsent() {
				return nil, unsent(r, ctx.Err())
			}
			return nil, fmt.Errorf("%s got no response: %w", subject(r), ctx.Err())
		}
	}
}

// unsentWait bounds the wait for a POST without a connection to end, which it
// does at once when its context ends.
const unsentWait = 50 * time.Millisecond

// settled waits a moment for the end of a POST that was cut off: until then its
// connection could still come about.
func settled(posted <-chan error) bool {
	if posted == nil {
		return true
	}
	timer := time.NewTimer(unsentWait)
	defer timer.Stop()
	select {
	case err := <-posted:
		return err != nil // else it has been accepted
	case <-timer.C:
		return false
	}
}

// post sends a message behind the caller's back. The exchange is nil when none
// has begun.
func (c *sseConn) post(ctx context.Context, cancel context.CancelFunc, r *Request) (*exchange, <-chan error) {
	posted := make(chan error, 1)
	plain := *r
	plain.ID = jsonrpc.ID{} // the response does not come here
	x, err := c.peer.begin(ctx, &plain)
	if err != nil {
		cancel()
		posted <- c.outcome(err)
		return nil, posted
	}
	go func() { // x.end tells peer.wg
		defer cancel()
		defer x.end()
		posted <- c.outcome(x.deliver())
	}()
	return x, posted
}

// outcome says what the end of a POST means for its message.
func (c *sseConn) outcome(err error) error {
	if err == nil {
		c.known.Store(true)
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return err
	case e.Kind == Closed && c.Err() != nil: // it was cut off with the stream
		return c.Err()
	case c.known.Load() && e.Kind == Status && (e.Status == http.StatusNotFound || e.Status == http.StatusGone):
		c.gone.Store(true)
		gone := *e
		gone.Kind, gone.Message = SessionGone, "the server no longer knows this event stream; open a new one"
		return &gone
	}
	return err
}

// Notify sends a notification.
func (c *sseConn) Notify(ctx context.Context, r *Request) error {
	plain := *r
	plain.ID = jsonrpc.ID{}
	return c.deliver(ctx, &plain)
}

// Reply sends our response to a request of the server.
func (c *sseConn) Reply(ctx context.Context, body []byte, version string) error {
	return c.deliver(ctx, &Request{Body: body, Version: version})
}

func (c *sseConn) deliver(ctx context.Context, r *Request) error {
	if err := c.Err(); err != nil {
		return notSent(err)
	}
	if c.gone.Load() {
		return errSessionGone(nil)
	}
	return c.outcome(c.peer.send(ctx, r))
}

// Ready does nothing: the stream is open already.
func (c *sseConn) Ready(Negotiated) {}

// PerRequestStreams returns false.
func (c *sseConn) PerRequestStreams() bool { return false }

// Close ends the stream and what is being posted.
func (c *sseConn) Close(ctx context.Context) error {
	c.fail(errConnClosed())
	return c.peer.Close(ctx)
}

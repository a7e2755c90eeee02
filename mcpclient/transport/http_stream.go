package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

const (
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
	// leastRetry keeps a server that asks for no pause from being polled in a
	// tight loop.
	leastRetry = 50 * time.Millisecond
	// maxResumes bounds attempts to resume a request's stream in a row that
	// brought no event.
	maxResumes = 8
)

// stream reads a reply that is an event stream, and resumes it where a legacy
// server gave event ids, until the response came.
func (x *exchange) stream(resp *http.Response) (*jsonrpc.Message, error) {
	s := &replyStream{x: x, retry: -1}
	for {
		m, err := s.read(resp)
		if m != nil || !errors.Is(err, errStreamEnded) {
			return m, err
		}
		if resp, err = s.resume(err); err != nil { //nolint:bodyclose // read closes it
			return nil, err
		}
	}
}

// errStreamEnded means that a stream ended before the response.
var errStreamEnded = errors.New("the event stream ended")

// replyStream is what a request's stream keeps over resumptions.
type replyStream struct {
	x      *exchange
	lastID string
	retry  time.Duration // asked for by the server; negative = not
	misses int           // connections in a row without an event
	broken error         // the last unreadable event
	shown  []byte        // its data
}

// read follows one connection of the stream up to the response.
func (s *replyStream) read(resp *http.Response) (*jsonrpc.Message, error) {
	x, c := s.x, s.x.conn
	r := c.transport.newReader(resp.Body)
	defer c.transport.freeReader(r)
	if b, _ := peekStart(r); len(b) > 0 && (b[0] == '{' || b[0] == '[') {
		return x.document(resp, r) // the content type is wrong, the reply is not
	}
	events := newEventReader(r, c.limit, completeJSON)
	events.lastID, events.pending = s.lastID, s.lastID
	s.misses++
	for {
		ev, err := events.next()
		s.lastID = events.lastID
		if events.retry >= 0 {
			s.retry = events.retry
		}
		if err != nil {
			_ = resp.Body.Close()
			if ended := x.ended(); ended != nil {
				return nil, ended
			}
			if errors.Is(err, errEventTooLarge) {
				return nil, c.errTooLarge()
			}
			return nil, s.ended(resp, err)
		}
		s.misses = 0
		if m := s.message(ev); m != nil {
			if m.Kind == jsonrpc.Invalid {
				_ = resp.Body.Close()
				return nil, x.malformed(resp, ev.data, "the response is not valid JSON-RPC", s.broken)
			}
			x.release(resp.Body)
			return m, nil
		}
	}
}

// message handles one event; it returns the response once it is there.
func (s *replyStream) message(ev event) *jsonrpc.Message {
	x, c := s.x, s.x.conn
	for _, data := range messages(ev, x.req.Modern) {
		m, err := jsonrpc.Decode(data)
		switch {
		case err != nil:
			s.broken, s.shown = err, data
			if m != nil && x.adopt(m, false) {
				return m
			}
			c.junk.warn(x.ctx, c.log, "skipped an event that is no JSON-RPC message", "host", c.url.Host, "method", x.req.Method, "error", err, "data", excerpt(data))
		case m.Kind != jsonrpc.Response:
			c.handler(Inbound{Message: m, Origin: x.req.ID})
		case x.adopt(m, false):
			return m
		default:
			c.stray.warn(x.ctx, c.log, "skipped a response to another request", "host", c.url.Host, "method", x.req.Method, "id", x.req.ID.String(), "response_id", m.ID.String())
		}
	}
	return nil
}

// messages returns the JSON documents of one event: usually one, none for
// events that carry no message, several for a legacy batch.
func messages(ev event, modern bool) [][]byte {
	if ev.name != "" && ev.name != "message" {
		return nil
	}
	if len(bytes.TrimSpace(ev.data)) == 0 {
		return nil
	}
	if !modern {
		if elements, ok, err := jsonrpc.DecodeBatch(ev.data); ok && err == nil {
			return elements
		}
	}
	return [][]byte{ev.data}
}

// completeJSON reports whether an event that lacks its end is whole.
func completeJSON(data []byte) bool {
	m, err := jsonrpc.Decode(data)
	return err == nil && m.Kind != jsonrpc.Invalid
}

// peekStart skips a BOM and empty lines and returns the first byte.
func peekStart(r interface {
	Peek(int) ([]byte, error)
	Discard(int) (int, error)
}) ([]byte, error) {
	if b, _ := r.Peek(1); len(b) == 1 && b[0] == bom[0] {
		if b, _ = r.Peek(len(bom)); string(b) == bom {
			_, _ = r.Discard(len(bom)) // cannot fail: the bytes are buffered
		}
	}
	for {
		b, err := r.Peek(1)
		if err != nil || b[0] != '\r' && b[0] != '\n' {
			return b, err
		}
		_, _ = r.Discard(1) // cannot fail: the byte is buffered
	}
}

// ended says how a stream without a response failed, or that it can be
// resumed.
func (s *replyStream) ended(resp *http.Response, cause error) error {
	if s.lastID != "" && !s.x.req.Modern {
		return fmt.Errorf("%w: %w", errStreamEnded, cause)
	}
	if s.broken != nil && errors.Is(cause, io.EOF) {
		return s.x.malformed(resp, s.shown, "the event stream ended without a response but with an event that is no JSON-RPC message", s.broken)
	}
	return errLost("the event stream of "+s.x.req.Method+" ended without a response", cause)
}

// resume opens the stream again behind the last event (2025-11-25 transports,
// Resumability and Redelivery).
func (s *replyStream) resume(cause error) (*http.Response, error) {
	x := s.x
	for {
		if s.misses > maxResumes {
			return nil, errLost("the event stream of "+x.req.Method+" ended and could not be resumed", cause)
		}
		if !pause(x.ctx, reconnectWait(s.retry, s.misses)) {
			if ended := x.ended(); ended != nil {
				return nil, ended
			}
			return nil, errLost("the event stream of "+x.req.Method+" ended and could not be resumed", cause)
		}
		resp, err := x.get(s.lastID)
		if err != nil {
			if x.ended() != nil {
				return nil, err
			}
			s.misses, cause = s.misses+1, err
			continue
		}
		if resp.StatusCode == http.StatusOK && mediaType(resp.Header) == typeStream {
			return resp, nil
		}
		status := resp.StatusCode
		if status/100 == 2 {
			_ = resp.Body.Close()
			return nil, errLost("the event stream of "+x.req.Method+" ended and the server offers no other", cause)
		}
		err = x.statusError(resp)
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind == SessionGone {
			return nil, err
		}
		if !temporary(status) {
			return nil, errLost(fmt.Sprintf("the event stream of %s ended and resuming it was answered HTTP %d", x.req.Method, status), err)
		}
		s.misses, cause = s.misses+1, err
	}
}

// reconnectWait is the pause before attempt number misses+1: what the server
// asked for, or a second, growing with every miss. Half of our own part is
// random so that clients do not come back in step.
func reconnectWait(retry time.Duration, misses int) time.Duration {
	if retry >= 0 && misses <= 1 {
		return max(retry, leastRetry)
	}
	d := lastBackoff
	if n := max(misses-1, 0); n < 5 {
		d = min(firstBackoff<<n, lastBackoff)
	}
	d = d/2 + rand.N(d/2)
	return max(d, retry)
}

// temporary reports whether a stream that was refused with status may be
// offered later.
func temporary(status int) bool {
	switch status {
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return status/100 == 5
}

// pause waits for d; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen keeps the GET stream of a legacy server open until Close. It never
// touches the requests: a server without such a stream, or one that loses it,
// still answers them.
func (c *httpConn) listen() {
	s := &sharedStream{retry: -1}
	for c.listenOnce(s) {
		if !pause(c.ctx, max(reconnectWait(s.retry, s.misses), s.after)) {
			return
		}
	}
}

// sharedStream is what the GET stream keeps over reconnects.
type sharedStream struct {
	lastID string
	retry  time.Duration
	after  time.Duration // from Retry-After
	misses int
}

// listenOnce opens the GET stream and follows it; false means that another
// attempt makes no sense.
func (c *httpConn) listenOnce(s *sharedStream) bool {
	c.mu.Lock()
	session, version, gone := c.session, c.version, c.gone
	c.mu.Unlock()
	if gone {
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	x := &exchange{conn: c, parent: ctx, ctx: ctx, cancel: cancel, req: &Request{Version: version}, session: session}
	s.misses, s.after = s.misses+1, 0
	resp, err := x.get(s.lastID)
	if err != nil {
		c.log.DebugContext(ctx, "the GET stream could not be opened", "host", c.url.Host, "error", err)
		return c.ctx.Err() == nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || mediaType(resp.Header) != typeStream {
		s.after = retryAfter(resp.Header.Get("Retry-After"), time.Now())
		c.log.DebugContext(ctx, "the server offers no GET stream", "host", c.url.Host, "status", resp.StatusCode)
		return temporary(resp.StatusCode)
	}
	r := c.transport.newReader(resp.Body)
	defer c.transport.freeReader(r)
	events := newEventReader(r, c.limit, completeJSON)
	events.lastID, events.pending = s.lastID, s.lastID
	for {
		ev, err := events.next()
		s.lastID = events.lastID
		if events.retry >= 0 {
			s.retry = events.retry
		}
		switch {
		case errors.Is(err, errEventTooLarge):
			c.large.warn(ctx, c.log, "skipped an event beyond the reply limit on the GET stream", "host", c.url.Host, "limit", c.limit)
			continue
		case err != nil:
			return c.ctx.Err() == nil
		}
		s.misses = 0
		c.shared(ctx, ev)
	}
}

// shared handles one event of the GET stream.
func (c *httpConn) shared(ctx context.Context, ev event) {
	for _, data := range messages(ev, false) {
		m, err := jsonrpc.Decode(data)
		switch {
		case err != nil:
			c.junk.warn(ctx, c.log, "skipped an event that is no JSON-RPC message on the GET stream", "host", c.url.Host, "error", err, "data", excerpt(data))
		case m.Kind == jsonrpc.Response:
			c.stray.warn(ctx, c.log, "skipped a response on the GET stream", "host", c.url.Host, "id", m.ID.String())
		default:
			c.handler(Inbound{Message: m})
		}
	}
}

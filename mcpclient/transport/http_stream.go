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

	"golang.org/x/net/http/httpguts"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

const (
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
	// leastRetry keeps a server that asks for no pause from being polled in a
	// tight loop.
	leastRetry = 50 * time.Millisecond
	// heldOpen is how long a shared stream without messages is open before it
	// counts as one that works.
	heldOpen = 5 * time.Second
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
	misses int           // connections in a row without a message
	stuck  int           // connections in a row without even an event
	broken error         // the last unreadable event
	shown  []byte        // its data
}

// read follows one connection of the stream up to the response.
func (s *replyStream) read(resp *http.Response) (*jsonrpc.Message, error) {
	x, c := s.x, s.x.conn
	r := c.transport.newReader(resp.Body, x.req.Method == methodListen)
	defer c.transport.freeReader(r)
	if b, _ := peekStart(r); len(b) > 0 && (b[0] == '{' || b[0] == '[') {
		return x.document(resp, r) // the content type is wrong, the reply is not
	}
	events := newEventReader(r, c.limit, completeJSON)
	events.lastID, events.pending = s.lastID, s.lastID
	s.misses++
	s.stuck++
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
		// An event without data only lends its id to the next connection.
		if s.stuck = 0; len(bytes.TrimSpace(ev.data)) > 0 {
			s.misses = 0
		}
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
			c.junk.warn(x.ctx, c.log, "skipped an event that is no JSON-RPC message", "host", c.url.Host, "method", x.req.Method, "error", c.redact.cover(err), "data", c.redact.show(data))
		case m.Kind != jsonrpc.Response:
			c.handler(Inbound{Message: m, Origin: x.req.ID})
		case x.adopt(m, false):
			return m
		default:
			c.stray.warn(x.ctx, c.log, "skipped a response to another request", "host", c.url.Host, "method", x.req.Method, "id", x.req.ID.String(), "response_id", c.redact.show([]byte(m.ID.String())))
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
	if s.lastID != "" && httpguts.ValidHeaderFieldValue(s.lastID) && !s.x.req.Modern {
		return fmt.Errorf("%w: %w", errStreamEnded, cause)
	}
	if s.broken != nil && errors.Is(cause, io.EOF) {
		return s.x.malformed(resp, s.shown, "the event stream ended without a response but with an event that is no JSON-RPC message", s.broken)
	}
	return errLost("the event stream of "+s.x.req.Method+" ended without a response", s.x.conn.redact.cover(cause))
}

// resume opens the stream again behind the last event (2025-11-25 transports,
// Resumability and Redelivery). The server has accepted the request: whatever
// it answers now, the request is lost, never unsent.
func (s *replyStream) resume(cause error) (*http.Response, error) {
	x := s.x
	lost := func(how string) error {
		if ended := x.ended(); ended != nil {
			return ended
		}
		return errLost("the event stream of "+x.req.Method+" ended "+how, cause)
	}
	for {
		if s.stuck > maxResumes {
			return nil, lost("and could not be resumed")
		}
		if !pause(x.ctx, reconnectWait(s.retry, s.misses, s.stuck)) {
			return nil, lost("and could not be resumed")
		}
		resp, err := x.get(s.lastID)
		if err != nil {
			if ended := x.ended(); ended != nil {
				return nil, ended
			}
			s.misses, s.stuck, cause = s.misses+1, s.stuck+1, errors.New(err.Error())
			continue
		}
		if resp.StatusCode == http.StatusOK && mediaType(resp.Header) == typeStream {
			return resp, nil
		}
		status := resp.StatusCode
		if status/100 == 2 {
			_ = resp.Body.Close()
			return nil, lost("and the server offers no other")
		}
		// It notes the end of a session, for later requests. Of this one its kind
		// would say something wrong.
		cause = errors.New(x.statusError(resp).Error())
		if !temporary(status) {
			return nil, lost(fmt.Sprintf("and resuming it was answered HTTP %d", status))
		}
		s.misses, s.stuck = s.misses+1, s.stuck+1
	}
}

// reconnectWait is the pause before a stream is opened again, after misses
// connections in a row without a message, of which the last stuck ones had no
// event at all: what the server asked for, or a second, growing with every
// miss. Half of our own part is random so that clients do not come back in
// step. A server that lets us ask again and again for something that takes long
// is asked in time, but not without end in short steps.
func reconnectWait(retry time.Duration, misses, stuck int) time.Duration {
	if retry >= 0 && stuck <= 1 {
		return max(retry, min(leastRetry<<min(max(misses-1, 0), 10), firstBackoff))
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
// still answers them. opened is called once the first attempt has been answered,
// or is over.
func (c *httpConn) listen(opened func()) {
	defer opened()
	s := &sharedStream{retry: -1, opened: opened}
	for c.listenOnce(s) {
		if !pause(c.ctx, max(reconnectWait(s.retry, s.misses, s.misses), s.after)) {
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
	opened func() // may be nil
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
	if s.opened != nil {
		s.opened()
	}
	if err != nil {
		c.log.DebugContext(ctx, "the GET stream could not be opened", "host", c.url.Host, "error", err)
		return c.ctx.Err() == nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || mediaType(resp.Header) != typeStream || contentCoding(resp.Header) != "" {
		s.after = retryAfter(resp.Header.Get("Retry-After"), time.Now())
		c.log.DebugContext(ctx, "the server offers no GET stream", "host", c.url.Host, "status", resp.StatusCode)
		return temporary(resp.StatusCode)
	}
	r := c.transport.newReader(resp.Body, true)
	defer c.transport.freeReader(r)
	events := newEventReader(r, c.limit, completeJSON)
	events.lastID, events.pending = s.lastID, s.lastID
	opened := time.Now()
	for {
		ev, err := events.next()
		if s.lastID = events.lastID; !httpguts.ValidHeaderFieldValue(s.lastID) {
			s.lastID = "" // it cannot be sent back
		}
		if events.retry >= 0 {
			s.retry = events.retry
		}
		switch {
		case errors.Is(err, errEventTooLarge):
			c.large.warn(ctx, c.log, "skipped an event beyond the reply limit on the GET stream", "host", c.url.Host, "limit", c.limit)
			continue
		case err != nil:
			if time.Since(opened) >= heldOpen {
				s.misses = 0 // it was there, if silent
			}
			return c.ctx.Err() == nil
		}
		// An event without data only lends its id to the next connection.
		if len(bytes.TrimSpace(ev.data)) > 0 {
			s.misses = 0
		}
		c.shared(ctx, ev)
	}
}

// shared handles one event of the GET stream.
func (c *httpConn) shared(ctx context.Context, ev event) {
	for _, data := range messages(ev, false) {
		m, err := jsonrpc.Decode(data)
		switch {
		case err != nil:
			c.junk.warn(ctx, c.log, "skipped an event that is no JSON-RPC message on the GET stream", "host", c.url.Host, "error", c.redact.cover(err), "data", c.redact.show(data))
		case m.Kind == jsonrpc.Response:
			c.stray.warn(ctx, c.log, "skipped a response on the GET stream", "host", c.url.Host, "id", c.redact.show([]byte(m.ID.String())))
		default:
			c.handler(Inbound{Message: m})
		}
	}
}

package transport

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// mux matches what arrives on a shared stream with the calls that wait for it.
type mux struct {
	handler Handler
	log     *slog.Logger
	limit   int64 // of one message; <0 = none
	lenient bool  // see StreamOptions.LenientIDs
	redact  redactor
	stop    func()
	done    chan struct{}
	junk    limiter
	stray   limiter

	mu      sync.Mutex // guards what follows
	pending map[jsonrpc.ID]waiter
	err     error
}

// waiter is a call that waits for its response.
type waiter struct {
	answer   chan<- reply // buffered
	answered func()       // Request.Answered; may be nil
	open     bool         // it stays open for as long as the server has news
	written  bool         // the server has all of the request
}

// methodListen is the request that stays open (2026-07-28 subscriptions).
const methodListen = "subscriptions/listen"

type reply struct {
	msg *jsonrpc.Message
	err error
}

// newMux fills in the defaults. stop is to be set before the first message; it
// is called once when the connection has failed.
func newMux(h Handler, log *slog.Logger, limit int64, lenient bool, redact redactor) mux {
	if h == nil {
		h = func(Inbound) {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if limit == 0 {
		limit = DefaultMaxReplyBytes
	}
	return mux{handler: h, log: log, limit: limit, lenient: lenient, redact: redact, done: make(chan struct{}), pending: make(map[jsonrpc.ID]waiter)}
}

// register makes the response to r come to answer, which must be buffered.
func (s *mux) register(r *Request, answer chan<- reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return notSent(s.err)
	}
	if _, taken := s.pending[r.ID]; taken {
		return errDuplicateID(r.ID)
	}
	s.pending[r.ID] = waiter{answer: answer, answered: r.Answered, open: r.Method == methodListen}
	return nil
}

func (s *mux) forget(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// wrote notes that the request with this id is at the server.
func (s *mux) wrote(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.pending[id]; ok {
		w.written = true
		s.pending[id] = w
	}
}

// busy reports whether somebody waits for a response that the server owes.
func (s *mux) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.pending {
		if w.written {
			return true
		}
	}
	return false
}

// settle gives the outcome to the call with this id; false = nobody waits.
func (s *mux) settle(id jsonrpc.ID, a reply) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.pending[id]
	if !ok && s.lenient {
		if id, ok = id.Retyped(); ok {
			w, ok = s.pending[id]
		}
	}
	if !ok {
		return false
	}
	if a.msg != nil {
		a.msg.ID = id
	}
	delete(s.pending, id)
	if w.answered != nil {
		w.answered()
	}
	w.answer <- a // written once only: the entry is gone
	return true
}

// settleOnly gives an error without an id to the one call that is pending, if
// there is just one: servers that cannot read a request answer so. One that
// stays open does not count beside others.
func (s *mux) settleOnly(m *jsonrpc.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var only jsonrpc.ID
	found, open := 0, true // open: those found so far stay open
	for id, w := range s.pending {
		switch {
		case w.open && !open:
		case w.open == open:
			only, found = id, found+1
		default:
			only, found, open = id, 1, false
		}
	}
	if found != 1 {
		return false
	}
	m.ID = only
	s.pending[only].answer <- reply{msg: m}
	delete(s.pending, only)
	return true
}

// document handles one JSON document, which may be a batch of 2025-03-26 and
// older. It reports whether any JSON-RPC message was in it.
func (s *mux) document(data []byte) (understood bool) {
	if data[0] == '[' {
		if elements, ok, err := jsonrpc.DecodeBatch(data); ok && err == nil && len(elements) > 0 && elements[0][0] == '{' {
			for _, element := range elements {
				understood = s.message(element) || understood
			}
			return understood
		}
	}
	return s.message(data)
}

// message handles one message; it reports whether it was one.
func (s *mux) message(data []byte) bool {
	m, err := jsonrpc.Decode(data)
	switch {
	case err != nil:
		message, deep := "the response is not valid JSON-RPC", tooDeep(err)
		if deep {
			message = tooDeepText
		}
		if m == nil && deep { // the id may stand behind what is too deep
			if id, ok := jsonrpc.PeekID(data, data[max(0, len(data)-keptTail):]); ok {
				m = &jsonrpc.Message{ID: id}
			}
		}
		if m != nil && s.settle(m.ID, reply{err: &Error{Kind: Malformed, Err: s.redact.cover(err),
			Message: message + "; it starts with: " + s.redact.excerpt(data)}}) {
			return true
		}
		s.junk.warn(context.Background(), s.log, "skipped output of the server that is no JSON-RPC message", "error", s.redact.cover(err), "data", s.redact.show(data))
		return false
	case m.Kind != jsonrpc.Response:
		s.handler(Inbound{Message: m})
	case m.ID.IsZero() && m.Error != nil && s.settleOnly(m):
	case m.ID.IsZero() || !s.settle(m.ID, reply{msg: m}):
		s.stray.warn(context.Background(), s.log, "skipped a response that no request waits for; it is late, or its id is wrong", "id", s.redact.show([]byte(m.ID.String())))
	}
	return true
}

// oversized is what is kept of a message beyond the limit.
type oversized struct {
	head, tail []byte
	size       int64 // of all of it
}

const (
	keptHead = 64 << 10
	keptTail = 256
)

// newOversized keeps the start and the end of what was read so far.
func newOversized(b []byte) *oversized {
	o := &oversized{}
	o.add(b)
	return o
}

// add goes on reading.
func (o *oversized) add(b []byte) {
	if o.size == int64(len(o.head)) {
		o.head = append(o.head, b[:min(len(b), keptHead-len(o.head))]...)
	}
	o.size += int64(len(b))
	o.tail = append(o.tail, b[max(0, len(b)-keptTail):]...)
	if n := len(o.tail) - keptTail; n > 0 {
		o.tail = append(o.tail[:0], o.tail[n:]...)
	}
}

// addLine goes on with a line of an event; more says that it is not the first.
func (o *oversized) addLine(line []byte, more bool) {
	if more {
		o.add([]byte{'\n'})
	}
	o.add(line)
}

// oversize fails the call that a message beyond the limit answers. It reports
// whether it was one: a late answer may be as large as it likes.
func (s *mux) oversize(o *oversized) bool {
	id, ok := jsonrpc.PeekID(o.head, o.tail)
	err := &Error{Kind: TooLarge, Limit: s.limit, Message: errTooLargeText(s.limit)}
	if ok && s.settle(id, reply{err: err}) {
		return true
	}
	s.junk.warn(context.Background(), s.log, "skipped output of the server that exceeds the reply limit", "limit", s.limit, "data", s.redact.show(o.head))
	return len(o.head) > 0 && o.head[0] == '{'
}

// fail ends the connection. The first reason counts; every pending call gets
// it.
func (s *mux) fail(reason error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = reason
	for id, w := range s.pending {
		w.answer <- reply{err: reason}
		delete(s.pending, id)
	}
	close(s.done)
	s.mu.Unlock()
	s.stop()
}

func (s *mux) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Done is closed when the stream has ended.
func (s *mux) Done() <-chan struct{} { return s.done }

// Err says why the stream has ended.
func (s *mux) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// notSent says the same as err, of a message that came too late and was not sent.
func notSent(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind == Closed || e.Kind == NotSent {
		return err
	}
	return &Error{Kind: NotSent, Message: e.Message, Err: e.Err}
}

// limiter keeps one kind of warning from flooding the log.
type limiter struct {
	mu      sync.Mutex // guards what follows
	last    time.Time
	skipped int
}

// warnEvery is the least time between two warnings of one kind.
const warnEvery = 10 * time.Second

func (l *limiter) warn(ctx context.Context, log *slog.Logger, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < warnEvery {
		l.skipped++
		return
	}
	//nolint:sloglint // the callers' messages are literals
	log.WarnContext(ctx, message, append(args, "suppressed_before", l.skipped)...)
	l.last, l.skipped = now, 0
}

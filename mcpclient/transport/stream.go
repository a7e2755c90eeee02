package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// StreamOptions configures a [Stream]. The zero value works.
type StreamOptions struct {
	// MaxReplyBytes bounds one line; 0 = DefaultMaxReplyBytes, negative = none.
	MaxReplyBytes int64
	// MaxJunk bounds output that is no JSON-RPC message.
	MaxJunk JunkLimit
	// LenientIDs lets a response with the id "7" answer our request 7, and the
	// other way round, when no request has exactly that id.
	LenientIDs bool
	// Redact: see HTTP.
	Redact func(string) string
	// Logger; nil = no logs.
	Logger *slog.Logger
}

// JunkLimit bounds lines in a row that are no JSON-RPC message; empty lines do
// not count. A server beyond it is not speaking the protocol, and its
// connection is ended.
type JunkLimit struct {
	Lines int   // 0 = 10,000, negative = none
	Bytes int64 // 0 = 16 MiB, negative = none
}

// Defaults of [JunkLimit].
const (
	DefaultJunkLines = 10_000
	DefaultJunkBytes = 16 << 20
)

// Stream is a connection over one byte stream: one JSON-RPC message per line
// in both directions (2026-07-28 stdio).
type Stream struct {
	mux
	rwc io.ReadWriteCloser
	// explain turns the error that ended reading into the connection's.
	explain func(error) error
	// ending waits a moment for the reason why writing has failed; nil = none.
	ending  func() error
	maxJunk JunkLimit
	inRow   JunkLimit // junk since the last message; the reader's own
	// lastJunk is what the newest line of it starts with; nil = the newest line was
	// a message.
	lastJunk atomic.Pointer[string]

	writes   chan *outgoing
	progress atomic.Int64   // bytes that the server has taken
	unusable chan struct{}  // closed when writing has failed
	broken   error          // why; set before that
	wg       sync.WaitGroup // reader, writer and those who watch a line
}

// outgoing is one line on its way.
type outgoing struct {
	line  []byte
	id    jsonrpc.ID
	done  chan error  // the outcome of the write; buffered
	ended atomic.Bool // the write has returned
}

// NewStream returns a connection over rwc, which it owns from now on. Inbound
// requests and notifications go to h (nil = dropped). Closing rwc must end
// reads and writes in progress.
func NewStream(rwc io.ReadWriteCloser, h Handler, o StreamOptions) *Stream {
	s := newStream(rwc, h, o)
	s.stop = func() { _ = rwc.Close() } // the stream has failed already
	s.start()
	return s
}

func newStream(rwc io.ReadWriteCloser, h Handler, o StreamOptions) *Stream {
	s := &Stream{
		mux: newMux(h, o.Logger, o.MaxReplyBytes, o.LenientIDs, o.Redact), rwc: rwc, maxJunk: o.MaxJunk,
		writes: make(chan *outgoing), unusable: make(chan struct{}),
		explain: func(err error) error { return errLost("the server closed the stream", err) },
	}
	s.ending = func() error {
		timer := time.NewTimer(endWait)
		defer timer.Stop()
		select {
		case <-s.done:
			return s.Err()
		case <-timer.C:
			return nil
		}
	}
	if s.maxJunk.Lines == 0 {
		s.maxJunk.Lines = DefaultJunkLines
	}
	if s.maxJunk.Bytes == 0 {
		s.maxJunk.Bytes = DefaultJunkBytes
	}
	return s
}

func (s *Stream) start() {
	s.wg.Go(s.read)
	s.wg.Go(s.write)
}

// Call sends a request and waits for its response.
func (s *Stream) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	if r.ID.IsZero() {
		return nil, errNoID()
	}
	answer := make(chan reply, 1)
	if err := s.register(r, answer); err != nil {
		return nil, err
	}
	defer s.forget(r.ID)
	out := &outgoing{line: r.Body, id: r.ID, done: make(chan error, 1)}
	if err := s.submit(ctx, r, out); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a.msg, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answer: // it came in the same moment
		return a.msg, a.err
	default:
	}
	s.abandon(out)
	return nil, fmt.Errorf("%s got no response: %w", subject(r), ctx.Err())
}

// Notify sends a notification and waits until it is written.
func (s *Stream) Notify(ctx context.Context, r *Request) error {
	out := &outgoing{line: r.Body, done: make(chan error, 1)}
	if err := s.submit(ctx, r, out); err != nil {
		return err
	}
	select {
	case err := <-out.done:
		return err
	case <-ctx.Done():
		s.abandon(out)
		return fmt.Errorf("%s is not written yet: %w", subject(r), ctx.Err())
	}
}

// Reply sends our response to a request of the server.
func (s *Stream) Reply(ctx context.Context, body []byte, _ string) error {
	return s.Notify(ctx, &Request{Body: body})
}

// submit hands a line to the writer. Once it returns nil, the line is being
// written and will be written whole, whatever becomes of ctx.
func (s *Stream) submit(ctx context.Context, r *Request, out *outgoing) error {
	if bytes.IndexByte(out.line, '\n') >= 0 {
		return errLineBreak()
	}
	if err := ctx.Err(); err != nil {
		return unsent(r, err)
	}
	select {
	case s.writes <- out:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s was not sent, the server is slow to read: %w (%w)", subject(r), ctx.Err(), ErrUnsent)
	case <-s.done:
		return notSent(s.Err())
	case <-s.unusable:
		if err := s.Err(); err != nil {
			return notSent(err)
		}
		return notSent(s.broken)
	}
}

const (
	// stallAfter is for how long a line whose sender has left may stay half
	// written. After it the connection is given up: nothing can follow a broken
	// line.
	stallAfter = 5 * time.Second
	// stallBusy is how long that is while the server owes a response to somebody
	// else: it may read no further before that is done. What it has read since
	// starts the time anew.
	stallBusy = 60 * time.Second
)

// abandon is called when a sender leaves; the line may still be on its way.
func (s *Stream) abandon(out *outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !out.ended.Load() { // the reader is there, so that nobody has done waiting
		s.wg.Go(func() { s.watch(out) })
	}
}

// watch gives the connection up when nobody reads the line.
func (s *Stream) watch(out *outgoing) {
	const step = stallAfter / 10
	tick := time.NewTicker(step)
	defer tick.Stop()
	taken := s.progress.Load()
	var still, idle time.Duration // without progress; and without work
	for !out.ended.Load() {
		select {
		case <-tick.C:
		case <-s.done:
			return
		}
		if n := s.progress.Load(); n != taken {
			taken, still, idle = n, 0, 0
			continue
		}
		if idle += step; s.busy() {
			idle = 0
		}
		if still += step; still >= stallBusy || idle >= stallAfter {
			s.fail(errLost("the server has stopped reading its input", nil))
			return
		}
	}
}

const (
	// brokenGrace is for how long replies are still read after a write has
	// failed: a server that answers and exits leaves them behind.
	brokenGrace = time.Second
	// endWait is for how long a failed write waits for the end of the server,
	// which says more.
	endWait = time.Second
	// pieceBytes is how much is written at once, to see progress.
	pieceBytes = 32 << 10
)

// write is the writer goroutine: one line at a time, so that lines never mix.
func (s *Stream) write() {
	var buf []byte
	for {
		var out *outgoing
		select {
		case out = <-s.writes:
		case <-s.done:
			return
		}
		buf = append(append(buf[:0], out.line...), '\n')
		n, err := s.writeAll(buf)
		if err == nil && !out.id.IsZero() {
			s.wrote(out.id)
		}
		out.ended.Store(true)
		if cap(buf) > 1<<20 {
			buf = nil // do not keep the largest message ever sent
		}
		if err == nil {
			out.done <- nil
			continue
		}
		s.giveUp(out, n, err)
		return
	}
}

// writeAll writes b in pieces and counts them.
func (s *Stream) writeAll(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = s.rwc.Write(b[n:min(len(b), n+pieceBytes)])
		n += m
		s.progress.Add(int64(m))
	}
	return n, err
}

// afterJunk says what the newest output was if that was no message; else "".
func (s *Stream) afterJunk() string {
	junk := s.lastJunk.Load()
	if junk == nil {
		return ""
	}
	return " after it wrote to stdout what is no JSON-RPC message: " + *junk + "; check that the command starts an MCP server"
}

// giveUp ends the connection after the write of a line has failed behind n
// bytes. What the server was sent before may still be answered, or be lost.
func (s *Stream) giveUp(out *outgoing, n int, cause error) {
	reason := s.Err() // closed or failed meanwhile; that is why the write ended
	if reason == nil {
		reason = s.ending()
	}
	if reason == nil {
		reason = errLost("the server has closed its input"+s.afterJunk(), cause)
	}
	ours := reason
	if n == 0 {
		ours = notSent(reason)
	}
	s.broken = reason
	close(s.unusable)
	out.done <- ours
	s.settle(out.id, reply{err: ours})
	grace := time.AfterFunc(brokenGrace, func() { s.fail(reason) })
	<-s.done
	grace.Stop()
}

// Ready does nothing.
func (s *Stream) Ready(Negotiated) {}

// PerRequestStreams returns false.
func (s *Stream) PerRequestStreams() bool { return false }

// Close closes the stream.
func (s *Stream) Close(ctx context.Context) error {
	s.fail(errConnClosed())
	return wait(ctx, &s.wg)
}

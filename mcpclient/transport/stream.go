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
	maxJunk JunkLimit
	inRow   JunkLimit // junk since the last message; the reader's own

	writes   chan *outgoing
	unusable chan struct{}  // closed when writing has failed
	wg       sync.WaitGroup // reader and writer
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
		mux: newMux(h, o.Logger, o.MaxReplyBytes, o.LenientIDs), rwc: rwc, maxJunk: o.MaxJunk,
		writes: make(chan *outgoing), unusable: make(chan struct{}),
		explain: func(err error) error { return errLost("the server closed the stream", err) },
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
		return fmt.Errorf("%s was not sent: %w", subject(r), err)
	}
	select {
	case s.writes <- out:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s was not sent, the server is slow to read: %w", subject(r), ctx.Err())
	case <-s.done:
		return notSent(s.Err())
	case <-s.unusable:
		return &Error{Kind: NotSent, Message: "the server has closed its input; it is ending"}
	}
}

// stallAfter is for how long a line whose sender has left may stay half
// written. After it the connection is given up: nothing can follow a broken
// line.
const stallAfter = 5 * time.Second

// abandon is called when a sender leaves; the line may still be on its way.
func (s *Stream) abandon(out *outgoing) {
	if out.ended.Load() {
		return
	}
	time.AfterFunc(stallAfter, func() {
		if !out.ended.Load() {
			s.fail(errLost("the server has stopped reading its input", nil))
		}
	})
}

// brokenGrace is for how long replies are still read after a write has failed:
// a server that answers and exits leaves them behind.
const brokenGrace = time.Second

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
		n, err := s.rwc.Write(buf)
		out.ended.Store(true)
		if cap(buf) > 1<<20 {
			buf = nil // do not keep the largest message ever sent
		}
		if err == nil {
			out.done <- nil
			continue
		}
		if err = writeError(n, err); s.Err() != nil {
			err = s.Err() // closed or failed meanwhile; that is why the write ended
		}
		close(s.unusable)
		out.done <- err
		s.settle(out.id, reply{err: err})
		grace := time.AfterFunc(brokenGrace, func() { s.fail(err) })
		<-s.done
		grace.Stop()
		return
	}
}

func writeError(n int, err error) error {
	if n == 0 {
		return &Error{Kind: NotSent, Message: "the server has closed its input", Err: err}
	}
	return errLost("the connection broke while the message was written", err)
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

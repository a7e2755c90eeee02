package server

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// limits are the times that one HTTP exchange may take at the caller's end.
type limits struct {
	body   time.Duration // for the whole request body of a call with one message
	write  time.Duration // for the caller to take the next writeChunk of an answer
	stream time.Duration // the same for an answer that is a stream
	grace  time.Duration // for an answer to go out after the caller's own deadline
	drain  time.Duration // for the rest of a body that nobody reads

	keepAlive time.Duration // without an event on a stream before one that says nothing is sent
}

// writeChunk is what a caller has to take within limits.write.
const writeChunk = 64 << 10

// exchange bounds how long one caller may hold a request and its answer:
// net/http itself has such limits only for all requests of a server, where
// they would cut long calls and streams. Nothing is limited while neither side
// has something to send.
//
// A clock of its own, instead of deadlines set in advance, spares HTTP/2 a round
// through its connection's loop and leaves the listener's deadlines alone until
// one is needed.
type exchange struct {
	http.ResponseWriter

	control http.ResponseController
	http1   bool      // a body left unread blocks the connection
	until   time.Time // the answer is of no use later; zero = no such time
	bodyBy  time.Time // end of the time for the body; zero = none

	clock    clock // its lock guards the rest, and orders the timer with the end
	limits   limits
	bodyDone bool // there is no body, or it was read to its end
	bodyLate bool // its time has passed
	untaken  bool // the time for a write has passed
	bare     int  // status of an answer without text, held back; 0 = none
	answered bool
	buffered bool // net/http may hold back a part of the answer
}

var (
	errRequestOver = errors.New("the request is over")

	_ http.Flusher = (*exchange)(nil)
)

// newExchange begins an exchange. deadline is the caller's, zero = none; a
// streaming body may take any time before it.
func newExchange(w http.ResponseWriter, req *http.Request, l limits, deadline time.Time, streaming bool) *exchange {
	x := &exchange{ResponseWriter: w, control: *http.NewResponseController(w), limits: l, http1: req.ProtoMajor < 2}
	x.clock.owner = x
	x.bodyDone = req.Body == nil || req.Body == http.NoBody
	x.bodyBy = deadline
	if !streaming {
		x.bodyBy = earlier(deadline, time.Now().Add(l.body))
	}
	if !deadline.IsZero() {
		x.until = deadline.Add(l.grace)
	}
	return x
}

// body wraps the request's body.
func (x *exchange) body(body io.ReadCloser) io.ReadCloser {
	if x.bodyDone {
		return body
	}
	return &guardedBody{ReadCloser: body, x: x}
}

// guardedBody is a request body that ends with os.ErrDeadlineExceeded when its
// time has passed.
type guardedBody struct {
	io.ReadCloser

	x *exchange
}

func (b *guardedBody) Read(p []byte) (int, error) {
	b.x.awaitBody()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.x.bodyRead()
	}
	return n, err
}

// Close gives up the rest. net/http reads on for a while, so that the
// connection can be used again; that has a limit, too.
func (b *guardedBody) Close() error {
	b.x.clock.mu.Lock()
	b.x.limitDrain()
	b.x.clock.mu.Unlock()
	return b.ReadCloser.Close()
}

// awaitBody starts the time for the body when it is first read.
func (x *exchange) awaitBody() {
	x.clock.mu.Lock()
	defer x.clock.mu.Unlock()
	if !x.bodyDone && !x.bodyLate {
		x.clock.limitRead(x.bodyBy)
	}
}

// readExpired ends reading the body.
func (x *exchange) readExpired() {
	x.bodyLate = true
	_ = x.control.SetReadDeadline(longAgo()) // without support the listener has to limit it
}

// bodyRead ends the time for the body. On HTTP/1.1 net/http now reads on to
// notice a caller that leaves, which must have no deadline.
func (x *exchange) bodyRead() {
	x.clock.mu.Lock()
	defer x.clock.mu.Unlock()
	x.bodyDone = true
	x.clock.limitRead(time.Time{})
	if x.bodyLate && !x.clock.over {
		_ = x.control.SetReadDeadline(time.Time{})
	}
}

// limitDrain bounds what net/http reads of a body by itself: before it writes
// the header of an HTTP/1.1 answer, and when the body is closed. A body that
// does not end in time costs the connection. The lock is held.
func (x *exchange) limitDrain() {
	if x.http1 && !x.bodyDone && !x.bodyLate && !x.clock.over {
		_ = x.control.SetReadDeadline(time.Now().Add(x.limits.drain))
	}
}

// setReadDeadline is for the peer: it ends a read that waits for the caller.
func (x *exchange) setReadDeadline(t time.Time) error {
	x.clock.mu.Lock()
	defer x.clock.mu.Unlock()
	if x.clock.over {
		return errRequestOver
	}
	return x.control.SetReadDeadline(t)
}

// longAgo is a deadline that has passed.
func longAgo() time.Time { return time.Unix(1, 0) }

// begin notes that the header goes out. The lock is held.
func (x *exchange) begin() {
	if !x.answered {
		x.answered, x.buffered = true, true
		x.limitDrain()
	}
}

// WriteHeader sends the status. Statuses that connecthttp sends without any
// text are held back for [router.explain].
func (x *exchange) WriteHeader(status int) {
	if !x.answered {
		switch status {
		case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusHTTPVersionNotSupported:
			if x.Header().Get("Content-Type") == "" {
				x.bare = status
				return
			}
		}
	}
	x.clock.mu.Lock()
	x.begin()
	x.clock.mu.Unlock()
	x.ResponseWriter.WriteHeader(status)
}

// Write writes in chunks, each with its own time.
func (x *exchange) Write(p []byte) (written int, err error) {
	for {
		end := min(len(p), written+writeChunk)
		x.startWrite()
		n, err := x.ResponseWriter.Write(p[written:end])
		x.clock.wrote()
		if written += n; err != nil || written == len(p) {
			return written, err
		}
	}
}

// Flush sends what is buffered. connecthttp flushes an answer of one message twice.
func (x *exchange) Flush() {
	if x.answered && !x.buffered {
		return
	}
	x.startWrite()
	_ = x.control.Flush() // an error shows at the next write
	x.clock.wrote()
	x.clock.mu.Lock()
	x.buffered = false
	x.clock.mu.Unlock()
}

// Unwrap is for [http.ResponseController].
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// writeLimit is when a write that begins now has to be done.
func (x *exchange) writeLimit() time.Time {
	return earlier(x.until, time.Now().Add(x.limits.write))
}

func (x *exchange) startWrite() {
	x.clock.mu.Lock()
	defer x.clock.mu.Unlock()
	x.begin()
	x.buffered = true
	x.clock.limitWrite(x.writeLimit())
}

// hurry gives a stream that has to end less time for what its caller leaves
// untaken.
func (x *exchange) hurry() {
	x.clock.mu.Lock()
	defer x.clock.mu.Unlock()
	x.limits.write = min(x.limits.write, x.limits.grace)
	x.clock.hurryWrite(x.writeLimit())
}

// writeExpired ends a write that the caller does not take: the connection on
// HTTP/1.1, the stream on HTTP/2.
func (x *exchange) writeExpired() {
	if !x.untaken {
		x.untaken = true
		_ = x.control.SetWriteDeadline(longAgo()) // without support the listener has to limit it
	}
}

// end is called when the handler returns. What net/http does after that, to
// write what it buffered and to read the rest of the body, gets deadlines.
func (x *exchange) end() {
	x.clock.mu.Lock()
	defer x.clock.mu.Unlock()
	x.limitDrain()
	if !x.untaken && (x.http1 || x.buffered || !x.answered) { // on HTTP/2 trailers alone wait for nobody
		_ = x.control.SetWriteDeadline(x.writeLimit())
	}
	x.clock.end()
}

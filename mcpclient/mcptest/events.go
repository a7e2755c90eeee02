package mcptest

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

var (
	errEnded  = errors.New("stream ended")
	errBroken = errors.New("stream broken")
)

// event is one outgoing message.
type event struct {
	data   []byte
	answer bool   // a response to a request
	status int    // HTTP status for a plain JSON answer; 0 = 200
	reply  *Reply // a whole HTTP answer instead of data
}

// events is an outgoing stream: one HTTP exchange, the legacy GET stream, or
// everything that a stdio connection writes. Senders never block.
type events struct {
	name string // "" = cannot be resumed
	keep bool   // keep what was read, for resumption

	mu      sync.Mutex // protects the fields below
	queue   []event
	base    int // index of queue[0]
	over    error
	changed chan struct{} // closed and replaced at every change
	header  http.Header   // HTTP headers of the answer
	readers int           // exchanges that carried the stream so far
}

func newEvents() *events { return &events{changed: make(chan struct{}), header: http.Header{}} }

func (e *events) wakeLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *events) send(data []byte) { e.push(event{data: data}) }

func (e *events) push(ev event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over == nil {
		e.queue = append(e.queue, ev)
		e.wakeLocked()
	}
}

// finish ends the stream with errEnded or errBroken once it is read.
func (e *events) finish(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over == nil {
		e.over = err
		e.wakeLocked()
	}
}

// next waits for event i. Events before i are forgotten unless they are kept.
func (e *events) next(ctx context.Context, i int) (event, error) {
	for {
		e.mu.Lock()
		if !e.keep && i > e.base && i <= e.base+len(e.queue) {
			clear(e.queue[:i-e.base])
			e.queue, e.base = e.queue[i-e.base:], i
		}
		if i < e.base {
			i = e.base
		}
		if i < e.base+len(e.queue) {
			ev := e.queue[i-e.base]
			e.mu.Unlock()
			return ev, nil
		}
		end, changed := e.over, e.changed
		e.mu.Unlock()
		if end != nil {
			return event{}, end
		}
		select {
		case <-changed:
		case <-ctx.Done():
			e.mu.Lock()
			end := e.over
			e.mu.Unlock()
			if end != nil {
				return event{}, end
			}
			return event{}, context.Cause(ctx)
		}
	}
}

// first returns the index at which a new reader without a position starts.
func (e *events) first() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.base
}

func (e *events) setHeader(key, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.header.Set(key, value)
}

func (e *events) reader() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readers++
	return e.readers
}

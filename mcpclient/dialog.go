package mcpclient

import (
	"context"
	"errors"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// dialog is a call whose caller answers the server's questions itself, see
// [CallOptions].Answer. While a question waits for its answer, the times that
// this client set for the call stand still.
type dialog struct {
	answer func(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error)
	ctx    context.Context         //nolint:containedctx // the call's, for its questions
	fail   context.CancelCauseFunc // ends the call, with an *endedCall

	mu     sync.Mutex // guards the following; locked after link.mu
	link   *link      // the legacy connection whose questions are this call's
	over   bool       // the call has ended
	clocks map[*clock]struct{}
	open   int                     // questions that wait for their answer
	under  map[jsonrpc.ID]struct{} // requests under way
	gate   chan struct{}           // closed while there are some
}

// endedCall is the context cause of a call that its own dialog ended.
type endedCall struct{ err *Error }

func (e *endedCall) Error() string { return e.err.Error() }

// begin starts the overall time of a call, and its dialog if its caller answers
// questions. end ends both.
func (c *Client) begin(ctx context.Context, r *request) (bounded context.Context, end func()) {
	if r.options.Answer == nil {
		return c.overall(ctx, nil)
	}
	d := &dialog{answer: r.options.Answer, clocks: map[*clock]struct{}{}, under: map[jsonrpc.ID]struct{}{}, gate: make(chan struct{})}
	ctx, d.fail = context.WithCancelCause(ctx)
	ctx, cancel := c.overall(ctx, d)
	d.ctx, r.dialog = ctx, d
	return ctx, func() {
		d.mu.Lock()
		d.over = true
		d.mu.Unlock()
		d.leave(c)
		cancel()
		d.fail(context.Canceled)
	}
}

// keep lets a clock stand still with the others until forget is called; d may
// be nil.
func (d *dialog) keep(k *clock) (forget func()) {
	if d == nil {
		return func() {}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clocks[k] = struct{}{}
	if d.open > 0 {
		k.pause()
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.clocks, k)
	}
}

// pause notes that a question waits for its answer, until resume is called.
func (d *dialog) pause() (resume func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open++; d.open == 1 {
		for k := range d.clocks {
			k.pause()
		}
	}
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.open--; d.open == 0 {
			for k := range d.clocks {
				k.resume()
			}
		}
	})
}

// waiting says whether a question waits for its answer.
func (d *dialog) waiting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open > 0
}

// join makes the questions of a legacy connection those of the call, until
// leave. A question names no call, so that a second one is refused. d may be nil.
func (d *dialog) join(c *Client, s *session) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	joined, over := d.link, d.over
	d.mu.Unlock()
	if over || joined != nil && joined == s.link {
		return nil
	}
	d.leave(c) // a connection that was replaced
	if s.era != EraLegacy {
		return nil
	}
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialog != nil && l.dialog != d {
		return &Error{Kind: KindInvalid, SafeToRetry: true, Message: "another call that answers the server's questions is under way on this connection, " +
			"and a legacy server does not say which call a question belongs to; wait for its end, or use another client"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over { // a request about a task may outlive its call
		l.dialog, d.link = d, l
	}
	return nil
}

// leave gives a connection up. What it asked and got no answer to is refused.
func (d *dialog) leave(c *Client) {
	d.mu.Lock()
	l := d.link
	d.link = nil
	d.mu.Unlock()
	if l == nil {
		return
	}
	var open []*question
	l.mu.Lock()
	if l.dialog == d {
		l.dialog = nil
	}
	for id, q := range l.asked {
		if q.dialog != d {
			continue
		}
		q.cancel()
		delete(l.asked, id) // so that nothing else answers it
		if !q.cancelled {
			open = append(open, q)
		}
	}
	l.mu.Unlock()
	for _, q := range open {
		result, err := refusalOf(q.method)
		body := c.encodeReply(q, result, err)
		c.answerFreely(func() { c.reply(l, l.version(), body) })
	}
}

// underWay notes a request of the call until it was answered or done is called.
// What a server asks while there is none waits for the next: behind the last
// answer no question is shown to anybody. d may be nil.
func (d *dialog) underWay(call *Call) (done func()) {
	if d == nil {
		return func() {}
	}
	return d.enter(call)
}

func (d *dialog) enter(call *Call) (done func()) {
	id := call.ID
	d.mu.Lock()
	if len(d.under) == 0 {
		close(d.gate)
	}
	d.under[id] = struct{}{}
	d.mu.Unlock()
	done = sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if delete(d.under, id); len(d.under) == 0 {
			d.gate = make(chan struct{})
		}
	})
	first := call.answered
	call.answered = func() {
		if first != nil {
			first()
		}
		done()
	}
	return done
}

// takes says whether a question is for the call, and returns its gate. One that
// came on the stream of another request is that one's, except about a task,
// which may come on any (2025-11-25 basic/utilities/tasks, Input Required Status).
func (d *dialog) takes(q *question, origin jsonrpc.ID) (gate <-chan struct{}, ok bool) {
	switch q.method {
	case methodElicit, methodSample, methodListRoots:
	default:
		return nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ours := d.under[origin]
	if !ours && !origin.IsZero() {
		_, ours = relatedTask(q.params)
	}
	return d.gate, ours || origin.IsZero()
}

// question is one request of a legacy server that is being answered.
type question struct {
	id        jsonrpc.ID
	method    string
	params    jsontext.Value
	version   string          // of the connection
	ctx       context.Context //nolint:containedctx // the question's own
	cancel    context.CancelFunc
	cancelled bool // the server withdrew it: no answer goes out; guarded by link.mu

	dialog *dialog         // the call whose caller answers it; nil = the handlers do
	gate   <-chan struct{} // closed when a request of that call is under way
}

// ask opens a question. It is false when one with its id is open already.
func (l *link) ask(c *Client, q *question, origin jsonrpc.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, duplicate := l.asked[q.id]; duplicate {
		return false
	}
	l.asked[q.id] = q
	if d := l.dialog; d != nil {
		if gate, ok := d.takes(q, origin); ok {
			q.dialog, q.gate = d, gate
			q.ctx, q.cancel = context.WithCancel(d.ctx)
			return true
		}
	}
	q.ctx, q.cancel = context.WithCancel(c.lifetime)
	return true
}

// settle closes a question; true when its answer is to go out.
func (l *link) settle(q *question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[q.id] != q {
		return false
	}
	delete(l.asked, q.id)
	return !q.cancelled
}

// version is the one that was negotiated; "" before that.
func (l *link) version() string {
	if s := l.session.Load(); s != nil {
		return s.version
	}
	return ""
}

// refusalOf is what a server is told that nobody answers (2025-11-25
// client/elicitation, client/sampling and client/roots, Error Handling).
func refusalOf(method string) (jsontext.Value, error) {
	switch method {
	case methodElicit:
		return jsontext.Value(elicitCancel), nil
	case methodSample:
		return nil, &jsonrpc.Error{Code: codeRejected, Message: "User rejected sampling request"}
	}
	return nil, &jsonrpc.Error{Code: CodeMethodNotFound, Message: "Roots not supported"}
}

// errCallEnds has leave refuse a question: were that done before the call has
// ended and been cancelled, the server might still bring it to a result.
var errCallEnds = errors.New("the call ends")

// unanswered is the answer to a question whose context has ended.
func (q *question) unanswered() (jsontext.Value, error) {
	if q.dialog.ctx.Err() != nil {
		return nil, errCallEnds
	}
	return refusalOf(q.method) // it was withdrawn, and this goes nowhere
}

// askCaller has the caller of a call answer a question of a legacy server.
func (c *Client) askCaller(q *question) (jsontext.Value, error) {
	d := q.dialog
	defer context.AfterFunc(c.lifetime, q.cancel)()
	select {
	case <-q.gate:
	case <-q.ctx.Done():
		return q.unanswered()
	}
	resume := d.pause()
	defer resume()
	defer context.AfterFunc(q.ctx, resume)() // an Answer that does not heed its context holds nothing up
	if err := checkQuestion(q.method, q.params); err != nil {
		return nil, err
	}
	result, err := d.ask(q.ctx, q.method, q.params)
	if q.ctx.Err() != nil {
		return q.unanswered()
	}
	if bad, ok := errors.AsType[*badAnswer](err); ok {
		d.fail(&endedCall{bad.failure("the server's " + q.method)})
		return nil, errCallEnds
	}
	return result, err
}

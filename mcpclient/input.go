package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Methods by which servers ask.
const (
	methodElicit       = "elicitation/create"
	methodSample       = "sampling/createMessage"
	methodRootsChanged = "notifications/roots/list_changed"
)

// codeRejected is the answer to a sampling request that the user rejects
// (2025-11-25 client/sampling, Error Handling).
const codeRejected = -1

// maxParallelAnswers bounds the handlers that one call runs at once.
const maxParallelAnswers = 8

// ErrInputRequired is wrapped by the error of a call whose server asked a
// question that this client does not answer.
var ErrInputRequired = errors.New("the server requires input")

// answerInput answers one question of the server: a request of a legacy one,
// or an input request of a modern one. A [*jsonrpc.Error] is meant for the
// server; any other error is the handler's own.
func (c *Client) answerInput(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	switch method {
	case methodElicit:
		return c.elicit(ctx, params)
	case methodSample:
		return c.sample(ctx, params)
	case methodListRoots:
		return c.listRoots(ctx)
	}
	return nil, &jsonrpc.Error{Code: CodeMethodNotFound, Message: "method not found: this client declared no capability for it"}
}

// sample answers sampling/createMessage (2026-07-28 client/sampling).
func (c *Client) sample(ctx context.Context, params jsontext.Value) (jsontext.Value, error) {
	handler, declared := c.opts.Handlers.Sample, &c.opts.Capabilities
	switch {
	case handler == nil && !declared.Sampling && !declared.SamplingTools && !declared.SamplingContext:
		return nil, &jsonrpc.Error{Code: CodeMethodNotFound, Message: "Sampling not supported"}
	case params.Kind() != '{':
		return nil, &jsonrpc.Error{Code: CodeInvalidParams, Message: "the params of " + methodSample + " are not an object"}
	case !c.takesTools(params):
		return nil, &jsonrpc.Error{Code: CodeInvalidParams, Message: "this client did not declare sampling.tools"}
	case handler == nil:
		return nil, &jsonrpc.Error{Code: codeRejected, Message: "User rejected sampling request"}
	}
	result, err := handler(ctx, params)
	if err != nil {
		return nil, err
	}
	if result.Kind() != '{' || !result.IsValid() {
		return nil, errors.New("the result of the sampling handler is not a JSON object")
	}
	return result, nil
}

// takesTools says whether sampling params bring tools only if that was declared
// (2026-07-28 schema, CreateMessageRequestParams).
func (c *Client) takesTools(params jsontext.Value) bool {
	return c.opts.Capabilities.SamplingTools || !declares(params, "tools") && !declares(params, "toolChoice")
}

// listRoots answers roots/list (2026-07-28 client/roots).
func (c *Client) listRoots(ctx context.Context) (jsontext.Value, error) {
	if !c.hasRoots() && !c.opts.Capabilities.Roots && len(c.opts.Roots) == 0 {
		return nil, &jsonrpc.Error{Code: CodeMethodNotFound, Message: "Roots not supported"}
	}
	roots := c.currentRoots()
	if handler := c.opts.Handlers.Roots; handler != nil {
		var err error
		if roots, err = handler(ctx); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string][]Root{"roots": roots})
}

func (c *Client) currentRoots() []Root {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roots
}

// hasRoots says whether there are roots to tell.
func (c *Client) hasRoots() bool {
	return c.opts.Handlers.Roots != nil || len(c.currentRoots()) > 0
}

// SetRoots replaces Options.Roots and tells a legacy server that is connected
// (2025-11-25 client/roots); modern servers ask when they need them. The error
// is about the roots or about telling the server; in the latter case they are
// stored all the same. The roots capability is declared when connecting: set
// Options.Roots or Capabilities.Roots for that.
func (c *Client) SetRoots(ctx context.Context, roots []Root) error {
	var k checker
	k.roots("Roots", roots)
	if err := errors.Join(k.errs...); err != nil {
		return &Error{Kind: KindInvalid, SafeToRetry: true, Message: "the roots are not usable: each needs a file:// URI", Err: err}
	}
	roots = slices.Clone(roots)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed()
	}
	c.roots = roots
	s := c.session
	if s != nil {
		s.users++
	}
	c.mu.Unlock()
	for i := range c.opts.Listeners {
		if f := c.opts.Listeners[i].RootsChanged; f != nil {
			c.guard("listener", func() { f(slices.Clone(roots)) })
		}
	}
	if s == nil {
		return nil
	}
	defer c.release(s)
	declared := c.opts.Capabilities.Roots || c.opts.Handlers.Roots != nil || len(c.opts.Roots) > 0
	if s.era != EraLegacy || !declared {
		return nil
	}
	return about(c.notify(ctx, s, methodRootsChanged, nil), methodRootsChanged, "")
}

// inputRequest is one question in an input_required result or task.
type inputRequest struct {
	key    string
	method string
	params jsontext.Value // nil = none
}

// readInputRequests reads an InputRequests object (2026-07-28 patterns/mrtr).
// Of questions with the same key the last one counts.
func readInputRequests(raw jsontext.Value) ([]inputRequest, error) {
	if raw.Kind() != '{' {
		return nil, errors.New("inputRequests is not an object")
	}
	var questions []inputRequest
	at := map[string]int{}
	err := eachMember(raw, func(key string, value jsontext.Value) error {
		q := inputRequest{key: key}
		if value.Kind() != '{' {
			return fmt.Errorf("input request %.40q is not an object", key)
		}
		err := eachMember(value, func(name string, value jsontext.Value) error {
			switch name {
			case "method":
				q.method, _ = unquote(value)
			case "params":
				if q.params = value; value.Kind() == 'n' {
					q.params = nil
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if q.method == "" {
			return fmt.Errorf("input request %.40q has no method", key)
		}
		if i, again := at[key]; again {
			questions[i] = q
			return nil
		}
		at[key] = len(questions)
		questions = append(questions, q)
		return nil
	})
	return questions, err
}

// unanswered returns the first question that is not for this client to answer:
// nothing here answers it, or the caller declared capabilities of its own.
func (c *Client) unanswered(questions []inputRequest, o *CallOptions) *inputRequest {
	if o.Answer != nil {
		return nil
	}
	for i, q := range questions {
		if !c.answers(q, len(o.Capabilities) == 0) {
			return &questions[i]
		}
	}
	return nil
}

// answers says whether this client answers a question; own is true when the
// request declared the client's own capabilities.
func (c *Client) answers(q inputRequest, own bool) bool {
	h := &c.opts.Handlers
	switch q.method {
	case methodListRoots:
		return c.hasRoots() || own && (c.opts.Capabilities.Roots || len(c.opts.Roots) > 0)
	case methodElicit:
		mode := elicitMode(q.params)
		return own && h.Elicit != nil && (mode == modeForm || mode == modeURL && h.ElicitURLs)
	case methodSample:
		return own && h.Sample != nil && c.takesTools(q.params)
	}
	return false
}

// cannotAnswer is the failure of a call whose server asks what nothing answers.
func cannotAnswer(r *request, q *inputRequest) error {
	return &Error{
		Kind: KindProtocol, Method: r.method, Name: r.name, Sent: true, Err: ErrInputRequired,
		Message: fmt.Sprintf("the server asks for %.40s (question %.40q), which this client does not answer; set the handler for it, or ReturnInput to answer it yourself", q.method, q.key),
	}
}

// answerAll answers all questions of one result, several at a time, and returns
// the InputResponses object. It ends with the first failure, or when ctx does,
// without waiting for handlers that do not.
func (c *Client) answerAll(ctx context.Context, r *request, questions []inputRequest) (jsontext.Value, error) {
	type answer struct {
		i   int
		raw jsontext.Value
		err error
	}
	if r.dialog != nil {
		defer r.dialog.pause()()
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.lifetime, cancel)()
	var next atomic.Int64
	answered := make(chan answer, len(questions)) // room for all: a late handler never blocks
	for range min(len(questions), maxParallelAnswers) {
		started := c.background(func() {
			for i := int(next.Add(1)) - 1; i < len(questions) && inner.Err() == nil; i = int(next.Add(1)) - 1 {
				a := answer{i: i, err: errors.New("the handler panicked")}
				c.guard(questions[i].method, func() { a.raw, a.err = c.answerOne(inner, r, &questions[i]) })
				answered <- a
			}
		})
		if !started {
			return nil, about(errClosed(), r.method, r.name)
		}
	}
	answers := make([]jsontext.Value, len(questions))
	for range questions {
		select {
		case a := <-answered:
			switch {
			case a.err == nil:
				answers[a.i] = a.raw
			case inner.Err() != nil:
				return nil, c.interrupted(ctx, r, "the server's questions were not answered before")
			default:
				return nil, notAnswered(r, questions[a.i], a.err)
			}
		case <-inner.Done():
			return nil, c.interrupted(ctx, r, "the server's questions were not answered before")
		}
	}
	out := []byte{'{'}
	for i, q := range questions {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, q.key), ':')
		out = append(out, answers[i]...)
	}
	return append(out, '}'), nil
}

// notAnswered is the failure of a call one of whose questions got no answer.
func notAnswered(r *request, q inputRequest, cause error) error {
	if refused, ok := errors.AsType[*refusedAnswer](cause); ok {
		return refused.failure(r, &q)
	}
	if bad, ok := errors.AsType[*badAnswer](cause); ok {
		return about(bad.failure(fmt.Sprintf("the server's question %.40q (%s)", q.key, q.method)), r.method, r.name)
	}
	e := &Error{
		Kind: KindInternal, Method: r.method, Name: r.name, Sent: true, Err: cause,
		Message: fmt.Sprintf("the server's question %.40q (%s) was not answered, so the call was not continued", q.key, q.method),
	}
	if rpc, ok := errors.AsType[*jsonrpc.Error](cause); ok && rpc.Code == CodeInvalidParams {
		e.Kind = KindProtocol // the question itself is at fault
	}
	return e
}

// interrupted is the failure of a call that waited when ctx or the client ended.
func (c *Client) interrupted(ctx context.Context, r *request, waited string) error {
	if ctx.Err() == nil {
		return begun(r, about(errClosed(), r.method, r.name))
	}
	e := contextError(ctx, waited)
	e.Method, e.Name, e.Sent = r.method, r.name, true
	return e
}

// begun marks the failure of a later message of a call. The call as a whole has
// reached the server, so unless that does no harm it must not look as if it
// had not.
func begun(r *request, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || safeMethods[r.method] || r.method == methodGetTask {
		return err
	}
	late := *e
	late.SafeToRetry, late.Sent = false, true
	if late.Kind == KindUnavailable {
		late.Kind = KindLost
	}
	return &late
}

// pause waits between two requests of one call.
func (c *Client) pause(ctx context.Context, r *request, d time.Duration, waited string) error {
	if d <= 0 && ctx.Err() == nil {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	case <-c.lifetime.Done():
	}
	return c.interrupted(ctx, r, waited)
}

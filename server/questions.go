package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

const (
	// maxQuestions bounds the questions of one call that are open at once.
	maxQuestions = 64
	// maxQuestionBytes bounds one question, so that it fits into the 4 MiB that
	// clients commonly accept, and maxOpenBytes all that are open at once.
	maxQuestionBytes = 3 << 20
	maxOpenBytes     = 16 << 20
	// maxAnswered bounds the answered questions that are remembered, to tell a
	// second answer from one that crossed the question's withdrawal.
	maxAnswered = 1024
)

// Codes and text of refusals that MCP or the client library define.
const (
	codeRejected   = -1     // 2025-11-25 client/sampling, Error Handling
	codeOverloaded = -32000 // as mcpclient.DispatchOptions
	elicitCancel   = `{"action":"cancel"}`
)

// questions are those of one interactive call, between the server, which asks
// through [mcpclient.CallOptions].Answer, and the caller, which hears of them by
// the feed.
type questions struct {
	events   *feed
	format   pb.JsonFormat
	declared mcpclient.Capabilities
	roots    []mcpclient.Root // of the configuration

	hungUp chan struct{} // closed when the caller sends no more

	// The following are set before the call begins.
	modern bool            // the server is
	ended  <-chan struct{} // closed when the call is cancelled

	mu       sync.Mutex // protects the fields below
	last     int        // question; ids count from 1
	open     map[string]chan reply
	bytes    int      // of the open questions
	answered []string // ids, oldest first
	silent   bool     // hungUp is closed
	refused  *failure // why the first question was refused that a call cannot go on without
	rejected *failure // what was wrong with a message of the caller
}

// question is one question of a server as it came, to be converted when the
// caller takes it.
type question struct {
	id, method string
	params     jsontext.Value
}

// message converts the question. Params that are not valid are left out.
func (q *question) message(format pb.JsonFormat) *pb.InputRequest {
	m, err := convert.Question(q.method, q.params, format)
	if err == nil && proto.Size(m) > maxQuestionBytes { // small values grow in a Struct, text does not
		m, err = convert.Question(q.method, q.params, pb.JsonFormat_JSON_FORMAT_TEXT)
	}
	if err != nil {
		m = &pb.InputRequest{Method: strings.ToValidUTF8(q.method, "\uFFFD")}
	}
	m.Id = q.id
	return m
}

// reply is the caller's answer; exactly one field is set.
type reply struct {
	result jsontext.Value
	refuse *jsonrpc.Error
}

func newQuestions(events *feed, format pb.JsonFormat, c *pb.ClientCapabilities, roots []mcpclient.Root) *questions {
	q := &questions{events: events, format: format, roots: roots, open: map[string]chan reply{}, hungUp: make(chan struct{})}
	if e := c.GetElicitation(); e != nil {
		q.declared.ElicitationForm, q.declared.ElicitationURL = e.GetForm() || !e.GetUrl(), e.GetUrl()
	}
	if s := c.GetSampling(); s != nil {
		q.declared.Sampling, q.declared.SamplingTools, q.declared.SamplingContext = true, s.GetTools(), s.GetContext()
	}
	q.declared.Roots = c.GetRoots() != nil
	return q
}

// asksForAny reports whether the caller answers anything.
func (q *questions) asksForAny() bool {
	d := &q.declared
	return d.ElicitationForm || d.ElicitationURL || d.Sampling || d.Roots
}

// answer is [mcpclient.CallOptions].Answer.
func (q *questions) answer(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	if method == methodRoots && !q.declared.Roots && len(q.roots) > 0 {
		return q.ownRoots()
	}
	if rpc := q.undeclared(method, params); rpc != nil {
		q.note(method, reasonCapabilityRequired, "the server asks the caller for "+quote(method)+", which client_capabilities does not declare; declare it and answer the question, or call without it")
		return nil, rpc
	}
	return q.put(ctx, &question{method: method, params: params})
}

// undeclared refuses what the caller did not declare, as the client does for
// itself.
func (q *questions) undeclared(method string, params jsontext.Value) *jsonrpc.Error {
	d := &q.declared
	switch method {
	case methodElicit:
		mode := "form"
		if value := memberOf(params, "mode"); value != nil {
			mode, _ = unquote(value)
		}
		if mode == "form" && d.ElicitationForm || mode == "url" && d.ElicitationURL {
			return nil
		}
		return &jsonrpc.Error{Code: mcpclient.CodeInvalidParams, Message: fmt.Sprintf("this client did not declare elicitation of mode %.20q", mode)}
	case methodSample:
		switch {
		case !d.Sampling:
			return &jsonrpc.Error{Code: mcpclient.CodeMethodNotFound, Message: "Sampling not supported"}
		case !d.SamplingTools && (memberOf(params, "tools") != nil || memberOf(params, "toolChoice") != nil):
			return &jsonrpc.Error{Code: mcpclient.CodeInvalidParams, Message: "this client did not declare sampling.tools"}
		}
		return nil
	case methodRoots:
		if d.Roots {
			return nil
		}
		return noRoots()
	}
	return &jsonrpc.Error{Code: mcpclient.CodeMethodNotFound, Message: "method not found: this client declared no capability for it"}
}

func (q *questions) ownRoots() (jsontext.Value, error) {
	return json.Marshal(map[string][]mcpclient.Root{"roots": q.roots})
}

// put hands a question to the caller and waits for the answer.
func (q *questions) put(ctx context.Context, asked *question) (jsontext.Value, error) {
	q.mu.Lock()
	if q.silent {
		q.mu.Unlock()
		return q.unheard(asked.method)
	}
	if f := q.tooMuchLocked(len(asked.params)); f != nil {
		q.mu.Unlock()
		q.note(asked.method, f.reason, f.message)
		return nil, &jsonrpc.Error{Code: codeOverloaded, Message: "Client overloaded"}
	}
	q.last++
	asked.id = strconv.Itoa(q.last)
	answered := make(chan reply, 1)
	q.open[asked.id] = answered
	q.bytes += len(asked.params)
	q.events.ask(asked)
	q.mu.Unlock()
	defer q.closed(asked)
	select {
	case r := <-answered:
		return r.both()
	case <-q.hungUp: // what was sent before that counts
		select {
		case r := <-answered:
			return r.both()
		default:
			return q.unheard(asked.method)
		}
	case <-ctx.Done():
		select {
		case <-q.ended: // which the caller hears of
		default:
			if !q.modern { // whose questions end with the call alone
				q.withdraw(asked.id)
			}
		}
		return nil, ctx.Err()
	}
}

// tooMuchLocked refuses a question of the given size beyond the bounds.
func (q *questions) tooMuchLocked(size int) *failure {
	switch {
	case len(q.open) >= maxQuestions:
		return refuse(reasonOverloaded, fmt.Sprintf("the server has %d questions open at once, and one call may have no more", maxQuestions))
	case size > maxQuestionBytes:
		return refuse(reasonTooLarge, fmt.Sprintf("a question of the server has more than %d MiB", maxQuestionBytes>>20))
	case size > maxOpenBytes-q.bytes:
		return refuse(reasonTooLarge, fmt.Sprintf("the server's open questions would have more than %d MiB together", maxOpenBytes>>20))
	}
	return nil
}

// closed notes that a question needs no room any more.
func (q *questions) closed(asked *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= len(asked.params)
}

func (r reply) both() (jsontext.Value, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	return r.result, nil
}

// unheard is the refusal on behalf of a caller that sends no more.
func (q *questions) unheard(method string) (jsontext.Value, error) {
	switch method {
	case methodElicit:
		return jsontext.Value(elicitCancel), nil
	case methodRoots:
		if len(q.roots) > 0 {
			return q.ownRoots()
		}
	}
	q.note(method, reasonInputRequired, "the server asked for "+quote(method)+" after the caller had closed its side of the stream, and cannot go on without an answer; keep it open until the outcome")
	if method == methodSample {
		return nil, &jsonrpc.Error{Code: codeRejected, Message: "User rejected sampling request"}
	}
	return nil, noRoots()
}

func noRoots() *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcpclient.CodeMethodNotFound, Message: "Roots not supported"}
}

// note keeps the first reason for which a modern server's call has to end: all
// but an elicitation cannot be refused there.
func (q *questions) note(method string, r reason, text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused == nil && method != methodElicit {
		q.refused = refuse(r, text)
	}
}

// explain replaces a failure of the call that the caller brought about by what
// the caller did.
func (q *questions) explain(about scope, f *failure) *failure {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case f == nil:
	case q.rejected != nil && f.reason == reasonCanceled:
		return q.rejected
	case q.refused != nil && errors.Is(f.cause, mcpclient.ErrInputRefused):
		return &failure{reason: q.refused.reason, message: about.about(q.refused.message), cause: f.cause}
	}
	return f
}

// reject keeps what was wrong with a message of the caller.
func (q *questions) reject(f *failure) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rejected = f
}

// withdraw ends a question that needs no answer any more.
func (q *questions) withdraw(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, open := q.open[id]; !open {
		return
	}
	delete(q.open, id)
	q.events.withdraw(id)
}

// hangUp notes that the caller sends no more: what is open is refused.
func (q *questions) hangUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.silent {
		q.silent = true
		close(q.hungUp)
	}
}

// take hands an answer of the caller to its question. The error is the caller's
// mistake.
func (q *questions) take(r *pb.InputResponse) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := r.GetId()
	answered, open := q.open[id]
	if !open {
		if slices.Contains(q.answered, id) {
			return refuseField(reasonInvalidParams, fieldAnswer+".id", "names a question that was answered already; answer each question once")
		}
		if n, err := strconv.Atoi(id); err == nil && n > 0 && n <= q.last {
			return nil // it crossed the withdrawal
		}
		return refuseField(reasonInvalidParams, fieldAnswer+".id", "names no question of this call; use the id of an input_request of this stream")
	}
	answer, err := readAnswer(r)
	if err != nil {
		return err
	}
	delete(q.open, id)
	if len(q.answered) == maxAnswered {
		q.answered = slices.Delete(q.answered, 0, 1)
	}
	q.answered = append(q.answered, id)
	answered <- answer
	return nil
}

// readAnswer reads the answer in a response.
func readAnswer(r *pb.InputResponse) (reply, error) {
	e := r.GetError()
	if e == nil {
		result, err := convert.Arguments(r.GetResult(), r.ResultJson, fieldAnswer+".result")
		if err == nil && result == nil {
			err = refuseField(reasonInvalidParams, fieldAnswer, "holds no answer; set result, result_json or error")
		}
		return reply{result: result}, err
	}
	if r.GetResult() != nil || r.ResultJson != nil {
		return reply{}, refuseField(reasonInvalidParams, fieldAnswer, "holds both a result and an error; set one of them")
	}
	out := &jsonrpc.Error{Code: e.GetCode(), Message: e.GetMessage()}
	if e.DataJson != nil {
		out.Data = jsontext.Value(e.GetDataJson())
		if out.Data.Compact() != nil {
			return reply{}, refuseField(reasonJSONInvalid, fieldAnswer+".error.data_json", "is not valid JSON; give one JSON value, or leave it unset")
		}
	}
	return reply{refuse: out}, nil
}

// visit asks the caller to have a user visit URLs, all of them at once. accepted
// is false when one of them was declined. The error is the caller's mistake, or
// ctx's.
func (q *questions) visit(ctx context.Context, demanded visits) (accepted bool, err error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		action string
		err    error
	}
	ends := make(chan end, len(demanded))
	for _, one := range demanded {
		go func() {
			raw, err := q.answer(asking, methodElicit, one.params)
			action, _ := unquote(memberOf(raw, "action"))
			ends <- end{action, err}
		}()
	}
	accepted = true
	for range demanded {
		one := <-ends
		if one.err == nil && err == nil && !slices.Contains([]string{"accept", "decline", "cancel"}, one.action) {
			err = refuseField(reasonInvalidParams, fieldAnswer, fmt.Sprintf("has the action %.40q, which an elicitation does not have; use accept, decline or cancel", one.action))
		}
		if accepted = accepted && one.action == "accept"; !accepted {
			cancel() // the call cannot go on, so that the others need no answer
		}
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return accepted, err
}

package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// ErrInputRefused is wrapped by the KindInput error of a call whose
// [CallOptions].Answer refused a question in a way that cannot be told to a
// modern server, which ended the call.
var ErrInputRefused = errors.New("the question was refused")

// refusedAnswer is the refusal of a question for which the protocol has none.
type refusedAnswer struct{ rpc *jsonrpc.Error }

func (e *refusedAnswer) Error() string { return e.rpc.Error() }

func (e *refusedAnswer) failure(r *request, q *inputRequest) error {
	return &Error{
		Kind: KindInput, Method: r.method, Name: r.name, Sent: true, Err: fmt.Errorf("%w: %w", ErrInputRefused, e.rpc),
		Message: fmt.Sprintf("the caller refused the server's question %.40q (%s), and without an answer to it the call cannot go on", q.key, q.method),
	}
}

// badAnswer is an answer of a caller that cannot be sent.
type badAnswer struct{ problem string }

func (e *badAnswer) Error() string { return e.problem }

// failure is that of the call; what names the question.
func (e *badAnswer) failure(what string) *Error {
	return &Error{Kind: KindInvalid, Sent: true, Err: e, Message: fmt.Sprintf("the answer to %s is not usable: %s; the call was not continued", what, e.problem)}
}

// answerOne answers one question of a modern server.
func (c *Client) answerOne(ctx context.Context, r *request, q *inputRequest) (jsontext.Value, error) {
	if r.dialog == nil {
		return c.answerInput(ctx, q.method, q.params)
	}
	if err := checkQuestion(q.method, q.params); err != nil {
		return nil, err
	}
	answer, err := r.dialog.ask(ctx, q.method, q.params)
	rpc, refused := errors.AsType[*jsonrpc.Error](err)
	switch {
	case !refused:
		return answer, err
	case q.method == methodElicit:
		return jsontext.Value(elicitCancel), nil
	}
	return nil, &refusedAnswer{rpc}
}

// checkQuestion refuses what no caller can make sense of, as a [*jsonrpc.Error].
func checkQuestion(method string, params jsontext.Value) error {
	switch method {
	case methodElicit:
		_, err := readElicit(params)
		return err
	case methodSample:
		if params.Kind() != '{' {
			return &jsonrpc.Error{Code: CodeInvalidParams, Message: "the params of " + methodSample + " are not an object"}
		}
	}
	return nil
}

// ask has the caller answer one question and checks the answer, a [*badAnswer]
// if it cannot be sent.
func (d *dialog) ask(ctx context.Context, method string, params jsontext.Value) (jsontext.Value, error) {
	answer, err := d.answer(ctx, method, params)
	if err != nil {
		return nil, err
	}
	answer = answer.Clone() // it is the caller's
	if answer.Kind() != '{' || answer.Compact(jsonOptions) != nil {
		return nil, &badAnswer{"it is not a JSON object"}
	}
	var members Meta // any ordered object will do
	err = eachMember(answer, func(key string, value jsontext.Value) error {
		members.Set(key, value)
		return nil
	})
	if err != nil {
		return nil, &badAnswer{"it is not a JSON object"}
	}
	switch method {
	case methodElicit:
		err = members.checkElicit(elicitMode(params))
	case methodListRoots:
		err = members.checkRoots()
	}
	if err != nil {
		return nil, err
	}
	return append(members.appendMembers([]byte{'{'}), '}'), nil
}

// checkElicit checks an ElicitResult; content leaves only with an accepted form
// (2026-07-28 client/elicitation).
func (m *Meta) checkElicit(mode string) error {
	action := m.GetString("action")
	if !slices.Contains([]string{"accept", "decline", "cancel"}, action) {
		return &badAnswer{fmt.Sprintf("its action is %.40q; use accept, decline or cancel", action)}
	}
	content, ok := m.Get("content")
	switch {
	case !ok:
	case action != "accept" || mode != modeForm || content.Kind() == 'n':
		m.Delete("content")
	case content.Kind() != '{':
		return &badAnswer{"its content is not a JSON object"}
	}
	return nil
}

// checkRoots checks a ListRootsResult (2026-07-28 client/roots).
func (m *Meta) checkRoots() error {
	var roots []Root
	if raw, _ := m.Get("roots"); raw.Kind() != '[' || json.Unmarshal(raw, &roots, jsonOptions) != nil {
		return &badAnswer{"its roots are not an array of objects, each with a uri"}
	}
	var k checker
	if k.roots("roots", roots); len(k.errs) > 0 {
		return &badAnswer{"each of its roots needs a file:// uri"}
	}
	return nil
}

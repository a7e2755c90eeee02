package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrRoundLimit is wrapped by the error of a call whose server kept asking for
// input beyond [RoundOptions].MaxRetries.
var ErrRoundLimit = errors.New("too many rounds")

// Waits between retries that answer nothing: the first is immediate.
const (
	roundPause    = 100 * time.Millisecond
	maxRoundPause = 5 * time.Second
)

// answerRounds continues a request whose result asks for input, until the
// result is another one (2026-07-28 patterns/mrtr, Client Requirements). Each
// retry is a request of its own with a new id and the whole timeout; the time
// that handlers take counts only against the call's overall time, and not even
// against that if the caller answers.
func (c *Client) answerRounds(ctx context.Context, r *request, result *Result) (*Result, error) {
	limit := max(c.opts.Rounds.MaxRetries, 0)
	var wait time.Duration
	for retries := 0; result.Type == ResultInputRequired; retries++ {
		asked, err := readInputRequired(result.Raw)
		if err != nil {
			return nil, &Error{Kind: KindProtocol, Method: r.method, Name: r.name, Sent: true, Message: "the server's input_required result is malformed", Err: err}
		}
		if q := c.unanswered(asked.questions, r.options); q != nil {
			if r.options.ReturnInput {
				return result, nil
			}
			return nil, cannotAnswer(r, q)
		}
		over := retries >= limit && (r.dialog == nil || len(asked.questions) == 0)
		if over && r.options.ReturnInput {
			return result, nil // the caller may go on where the client stops
		}
		if over {
			return nil, &Error{Kind: KindProtocol, Method: r.method, Name: r.name, Sent: true, Err: ErrRoundLimit, Message: fmt.Sprintf(
				"the server still asks for input after %d retries of %s, which is the limit (setting input.max_rounds)", retries, r.method)}
		}
		retry := *r
		retry.continuation = nil // the first request may itself be one
		if len(asked.questions) > 0 {
			wait = 0
			answers, err := c.answerAll(ctx, r, asked.questions)
			if err != nil {
				return nil, err
			}
			retry.continuation = append([]byte(`,"inputResponses":`), answers...)
			if r.dialog != nil {
				retries = -1 // the caller may go on as long as it likes
			}
		} else {
			if err := c.pause(ctx, r, wait, "the server had not finished before"); err != nil {
				return nil, err
			}
			wait = min(max(2*wait, roundPause), maxRoundPause)
		}
		if asked.state != nil {
			retry.continuation = append(append(retry.continuation, `,"requestState":`...), asked.state...)
		}
		if result, err = c.request(ctx, &retry); err != nil {
			return nil, begun(r, err)
		}
	}
	return result, nil
}

// inputRequired is an InputRequiredResult.
type inputRequired struct {
	questions []inputRequest
	// state is requestState as the server wrote it, a JSON string; nil = none,
	// which is not the same as "".
	state jsontext.Value
}

func readInputRequired(raw jsontext.Value) (*inputRequired, error) {
	out := &inputRequired{}
	asks := false
	err := eachMember(raw, func(key string, value jsontext.Value) (err error) {
		if value.Kind() == 'n' {
			return nil
		}
		switch key {
		case "inputRequests":
			asks = true
			out.questions, err = readInputRequests(value)
		case "requestState":
			if value.Kind() != '"' {
				return errors.New("requestState is not a string")
			}
			if out.state = value; !utf8.Valid(value) { // which no message of ours may hold
				text, _ := unquote(value)
				out.state = appendString(nil, text)
			}
		}
		return err
	})
	if err == nil && !asks && out.state == nil {
		err = errors.New("it has neither inputRequests nor requestState")
	}
	return out, err
}

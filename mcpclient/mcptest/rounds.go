package mcptest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// Round is one input_required answer (2026-07-28 patterns/mrtr).
type Round struct {
	// Requests is the inputRequests object; "" = none.
	Requests string
	// State is the requestState, a JSON string as it is to be sent, escapes and
	// all; "" = none.
	State string
}

func (r Round) result() Raw {
	raw := `{"resultType":"input_required"`
	if r.Requests != "" {
		raw += `,"inputRequests":` + r.Requests
	}
	if r.State != "" {
		raw += `,"requestState":` + r.State
	}
	return Raw(raw + "}")
}

// Rounds asks for input, round by round, before h answers (nil = the last
// round is repeated for ever). Each retry must echo the state of the round it
// answers and bring answers to exactly its questions; anything else is a
// violation. One handler serves one caller at a time.
func Rounds(h Handler, rounds ...Round) Handler {
	var mu sync.Mutex
	asked := -1 // the round whose answers are awaited
	return func(ctx context.Context, r *Request) (any, error) {
		mu.Lock()
		answers, state := r.Param("inputResponses"), r.Param("requestState")
		switch {
		case asked < 0 && (answers != nil || state != nil):
			r.server.violate("%s: a continuation of nothing", r.Method)
		case asked >= 0 && answers == nil && state == nil && (rounds[asked].Requests != "" || rounds[asked].State != ""):
			asked = -1 // the caller begins anew
		case asked >= 0:
			r.checkRound(rounds[asked], answers, state)
		}
		asked++
		if asked >= len(rounds) {
			if h != nil {
				asked = -1
				mu.Unlock()
				return run(ctx, h, r)
			}
			asked = len(rounds) - 1
		}
		round := rounds[asked]
		mu.Unlock()
		return round.result(), nil
	}
}

// checkRound compares a retry with what it answers.
func (r *Request) checkRound(round Round, answers, state json.RawMessage) {
	want, got := json.RawMessage(round.State), state
	wantText, wanted := unquote(want)
	gotText, given := unquote(got)
	if wanted != given || wantText != gotText {
		r.server.violate("%s: requestState is %.200s, it was %.200s", r.Method, got, want)
	}
	if questions, replies := keys(json.RawMessage(round.Requests)), keys(answers); !slices.Equal(questions, replies) {
		r.server.violate("%s: inputResponses answer %q, the questions were %q", r.Method, replies, questions)
	}
}

// keys returns the names of an object's members, sorted.
func keys(object json.RawMessage) []string {
	var members map[string]json.RawMessage
	if len(object) == 0 || json.Unmarshal(object, &members) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(members))
}

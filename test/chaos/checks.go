package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// evidence is all that a run has found out. The checks are functions of it alone.
type evidence struct {
	targets      []*target
	table        errorTable
	boot         map[kind]time.Duration
	reconnect    time.Duration // the first wait of the bridge after a failure
	calls        []call
	lag          time.Duration
	executions   map[string][]string // ids in the order of execution, by the target whose server recorded them
	disturbances []disturbance
	before       reading
	after        reading
	settled      settled
	end          ending
}

// result is the outcome of one check.
type result struct {
	name    string
	figures string
	wrong   []string // empty = passed
}

// checks makes all of them.
func (e *evidence) checks() []result {
	return []result{
		e.noCallRunsTwice(), e.outcomesAreDocumented(), e.unknownOutcomesHaveACause(),
		e.untouchedTargetsServe(), e.disturbedTargetsServeAgain(), e.nothingIsLeft(), e.theBridgeEndsWell(),
	}
}

func (e *evidence) target(name string) *target {
	for _, t := range e.targets {
		if t.name == name {
			return t
		}
	}
	return nil
}

// ran counts the executions of each id.
func (e *evidence) ran() map[string]int {
	times := map[string]int{}
	for _, ids := range e.executions {
		for _, id := range ids {
			times[id]++
		}
	}
	return times
}

// noCallRunsTwice: no id was executed twice, and each by the server that it was for.
func (e *evidence) noCallRunsTwice() result {
	r := result{name: "no call runs twice"}
	made := map[string]bool{}
	for _, c := range e.calls {
		made[c.id] = true
	}
	total := 0
	for name, ids := range e.executions {
		total += len(ids)
		for _, id := range ids {
			if !made[id] {
				r.wrong = append(r.wrong, fmt.Sprintf("%s ran %q, which nobody called", name, id))
			}
			if !strings.HasPrefix(id, name+"/") {
				r.wrong = append(r.wrong, fmt.Sprintf("%s ran %s, which was for another target", name, id))
			}
		}
	}
	twice := 0
	for id, n := range e.ran() {
		if n > 1 {
			twice++
			r.wrong = append(r.wrong, fmt.Sprintf("%s ran %d times", id, n))
		}
	}
	r.figures = fmt.Sprintf("%d executions of %d calls, %d of them more than once", total, len(e.calls), twice)
	slices.Sort(r.wrong)
	return r
}

// surelyNotStarted are the reasons that promise that a call did not run.
var surelyNotStarted = []string{"TARGET_UNAVAILABLE", "OVERLOADED"}

// outcomesAreDocumented: a failure has a code and a reason of docs/errors.md, and what is said of the execution holds:
// a success ran once, and what surely did not start did not.
func (e *evidence) outcomesAreDocumented() result {
	r := result{name: "each failure is documented and each outcome is true"}
	ran := e.ran()
	failed, unknown, untrue := 0, 0, 0
	for _, c := range e.calls {
		if c.ok() {
			if ran[c.id] != 1 {
				untrue++
				r.wrong = append(r.wrong, fmt.Sprintf("ran %d times: %s", ran[c.id], c))
			}
			continue
		}
		failed++
		if !e.table[verdict{c.code, c.reason}] {
			unknown++
			r.wrong = append(r.wrong, "not in docs/errors.md: "+c.String())
		}
		if slices.Contains(surelyNotStarted, c.reason) && ran[c.id] > 0 {
			untrue++
			r.wrong = append(r.wrong, "surely not started, but it ran: "+c.String())
		}
	}
	r.figures = fmt.Sprintf("%d of %d failures are not documented, %d outcomes are not true", unknown, failed, untrue)
	return r
}

// cutGrace is how long after a cut its consequences may show.
const cutGrace = time.Second

// unknownOutcomesHaveACause: OUTCOME_UNKNOWN only for a call that was under way while its server or connection was cut.
func (e *evidence) unknownOutcomesHaveACause() result {
	r := result{name: "an unknown outcome has a cause"}
	total := 0
	for _, c := range e.calls {
		if c.reason != "OUTCOME_UNKNOWN" {
			continue
		}
		total++
		if !slices.ContainsFunc(e.disturbances, func(d disturbance) bool { return d.step.fault.cuts() && d.covers(c) }) {
			r.wrong = append(r.wrong, "nothing was cut: "+c.String()+e.lastFault(c))
		}
	}
	r.figures = fmt.Sprintf("%d calls with OUTCOME_UNKNOWN, %d of them without a cut", total, len(r.wrong))
	return r
}

// covers says whether a call was under way during a disturbance.
func (d disturbance) covers(c call) bool {
	return d.target == c.target && !c.start.After(d.back.Add(cutGrace)) && !c.end.Before(d.start) && !c.end.After(d.back.Add(cutGrace))
}

// lastFault names what was last done to the target of a call, for people.
func (e *evidence) lastFault(c call) string {
	var last disturbance
	for _, d := range e.disturbances {
		if d.target == c.target && !d.start.After(c.end) && d.start.After(last.start) {
			last = d
		}
	}
	if last.target == "" {
		return ""
	}
	return fmt.Sprintf("; last disturbance: %s, %v before its end and over %v before", last.step.fault,
		c.end.Sub(last.start).Round(time.Millisecond), c.end.Sub(last.back).Round(time.Millisecond))
}

// untouchedShare is the share of the calls to targets that were left alone that must succeed.
const untouchedShare = 0.999

// untouchedTargetsServe: who is not concerned notices nothing.
func (e *evidence) untouchedTargetsServe() result {
	r := result{name: "untouched targets serve"}
	total, good := 0, 0
	for _, c := range e.calls {
		if c.warm || e.target(c.target).touched {
			continue
		}
		total++
		if c.ok() {
			good++
		} else {
			r.wrong = append(r.wrong, c.String())
		}
	}
	r.figures = fmt.Sprintf("%d of %d calls succeeded (%.3f %%, needed %.1f %%)", good, total, 100*float64(good)/float64(max(total, 1)), 100*untouchedShare)
	if total > 0 && float64(good) >= untouchedShare*float64(total) {
		r.wrong = nil
	} else if total == 0 {
		r.wrong = []string{"there were no calls"}
	}
	return r
}

// nothingIsLeft: after the run the bridge holds what it held before, no more and, but for the heap, no less.
func (e *evidence) nothingIsLeft() result {
	r := result{name: "the bridge holds what it held before the load"}
	if !e.settled.ok {
		r.wrong = append([]string{"not as before:"}, e.settled.wrong...)
	}
	r.figures = fmt.Sprintf("after %v at rest: %s; before: %s", e.settled.took.Round(100*time.Millisecond), e.after, e.before)
	return r
}

// theBridgeEndsWell: it lives through the run, ends when asked, and takes its children along.
func (e *evidence) theBridgeEndsWell() result {
	r := result{name: "the bridge ends well", figures: fmt.Sprintf("%v after SIGTERM, %d processes left", e.end.took.Round(time.Millisecond), len(e.end.left))}
	if e.end.err != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("it ended with: %v", e.end.err))
	}
	if e.end.panic {
		r.wrong = append(r.wrong, "its log has a panic")
	}
	for _, p := range e.end.left {
		r.wrong = append(r.wrong, "process "+p+" outlived it")
	}
	return r
}

// isRefusal says whether a call was turned away because the target has no connection.
func isRefusal(c call) bool {
	return c.code == codes.Unavailable && c.reason == "TARGET_UNAVAILABLE" && c.retry >= 0
}

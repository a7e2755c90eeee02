package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	// recoveryMargin is what a target may take beyond the backoff and the boot time.
	recoveryMargin = time.Second
	// refusalSpan is how soon after its return the first probe tells the backoff that is in force at that time.
	refusalSpan = 250 * time.Millisecond
)

// recovery is how a target came back after one disturbance.
type recovery struct {
	disturbance
	took    time.Duration // from back until served
	backoff time.Duration // in force when the server was back
	told    bool          // by a RetryInfo; otherwise it is the first wait that is configured
	allowed time.Duration
}

// recoveries follows every disturbance. calls must be of the whole run.
func (e *evidence) recoveries() []recovery {
	byTarget := map[string][]call{}
	for _, c := range e.calls {
		byTarget[c.target] = append(byTarget[c.target], c)
	}
	for _, calls := range byTarget {
		slices.SortFunc(calls, func(a, b call) int { return a.end.Compare(b.end) })
	}
	var all []recovery
	for _, d := range e.disturbances {
		r := recovery{disturbance: d, took: d.served.Sub(d.back)}
		r.backoff, r.told = backoff(d, byTarget[d.target])
		if !r.told {
			r.backoff = e.reconnect
		}
		r.allowed = r.backoff + e.boot[e.target(d.target).kind] + recoveryMargin
		all = append(all, r)
	}
	return all
}

// backoff is what the last call that was refused during a disturbance was told to wait, or the first one right after
// it, if that was told to wait for longer. calls are those of the target by the time of their end.
func backoff(d disturbance, calls []call) (wait time.Duration, told bool) {
	for _, c := range calls {
		if c.end.Before(d.start) || !isRefusal(c) {
			continue
		}
		if !c.end.After(d.back) {
			wait, told = c.retry, true
			continue
		}
		if c.end.Before(d.back.Add(refusalSpan)) {
			wait, told = max(wait, c.retry), true
		}
		return wait, told
	}
	return wait, told
}

// disturbedTargetsServeAgain: in time once their server is back.
func (e *evidence) disturbedTargetsServeAgain() result {
	r := result{name: "disturbed targets serve again in time"}
	var slowest recovery
	for _, c := range e.recoveries() {
		if c.served.IsZero() {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: after %s at %s it did not serve within %v", c.target, c.step.fault, c.start.Format("15:04:05.000"), patience))
			continue
		}
		if c.took > slowest.took {
			slowest = c
		}
		if c.took > c.allowed {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: after %s at %s it took %v, allowed %v (backoff %v, %s)", c.target, c.step.fault, c.start.Format("15:04:05.000"),
				c.took.Round(time.Millisecond), c.allowed.Round(time.Millisecond), c.backoff.Round(time.Millisecond), map[bool]string{true: "told", false: "configured"}[c.told]))
		}
	}
	if len(e.disturbances) == 0 {
		r.wrong = []string{"nothing was disturbed"}
	}
	r.figures = fmt.Sprintf("%d of %d in time; the slowest took %v of %v, %s after %s", len(e.disturbances)-len(r.wrong), len(e.disturbances),
		slowest.took.Round(time.Millisecond), slowest.allowed.Round(time.Millisecond), slowest.target, slowest.step.fault)
	return r
}

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at is a time of the run, in seconds.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// made is a call to the target that its id names.
func made(id string, start, end float64, code codes.Code, reason string, retry time.Duration) call {
	name, _, _ := strings.Cut(id, "/")
	return call{id: id, target: name, start: at(start), end: at(end), code: code, reason: reason, retry: retry}
}

func good(id string) call { return made(id, 1, 2, codes.OK, "", -1) }

// a run in which all is well, with one target of each fate.
func wellRun() *evidence {
	return &evidence{
		targets:   []*target{{name: "calm", kind: kindStdio}, {name: "busy", kind: kindModern, touched: true}, {name: "other", kind: kindLegacy, touched: true}},
		table:     errorTable{{codes.Unknown, "OUTCOME_UNKNOWN"}: true, {codes.Unavailable, "TARGET_UNAVAILABLE"}: true},
		boot:      map[kind]time.Duration{kindModern: 500 * time.Millisecond},
		reconnect: time.Second,
		calls: []call{
			good("calm/1"), good("busy/2"),
			made("busy/3", 9.9, 10.1, codes.Unknown, "OUTCOME_UNKNOWN", -1),
			made("busy/4", 11, 11.1, codes.Unavailable, "TARGET_UNAVAILABLE", 2*time.Second),
		},
		executions:   map[string][]string{"calm": {"calm/1"}, "busy": {"busy/2", "busy/3"}},
		disturbances: []disturbance{{target: "busy", step: step{fault: faultKill}, start: at(10), back: at(12), served: at(13)}},
		settled:      settled{ok: true},
	}
}

func failed(e *evidence) []string {
	var names []string
	for _, r := range e.checks() {
		if len(r.wrong) > 0 {
			names = append(names, r.name)
		}
	}
	return names
}

func TestAWellRunPassesEveryCheck(t *testing.T) {
	for _, r := range wellRun().checks() {
		if len(r.wrong) > 0 {
			t.Errorf("%s: %q", r.name, r.wrong)
		}
		if r.figures == "" {
			t.Errorf("%s has no figures", r.name)
		}
	}
}

func TestEachCheckFindsWhatItIsFor(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*evidence)
		check string
		says  string
	}{
		"a call ran twice on one server": {func(e *evidence) { e.executions["busy"] = append(e.executions["busy"], "busy/3") }, "no call runs twice", "busy/3 ran 2 times"},
		"a call of another target": {func(e *evidence) {
			e.executions["busy"], e.executions["calm"] = append(e.executions["busy"], "calm/1"), nil
		}, "no call runs twice", "another target"},
		"a call that nobody made":    {func(e *evidence) { e.executions["busy"] = append(e.executions["busy"], "busy/99") }, "no call runs twice", "nobody called"},
		"a success that did not run": {func(e *evidence) { e.executions["calm"] = nil }, "each failure is documented", "ran 0 times"},
		"a reason that is not documented": {func(e *evidence) {
			e.calls = append(e.calls, made("busy/5", 1, 2, codes.Unknown, "ODD", -1))
		}, "each failure is documented", "not in docs/errors.md"},
		"a documented reason with another code": {func(e *evidence) {
			e.calls = append(e.calls, made("busy/5", 1, 2, codes.Internal, "TARGET_UNAVAILABLE", -1))
		}, "each failure is documented", "not in docs/errors.md"},
		"a failure without a reason": {func(e *evidence) {
			e.calls = append(e.calls, made("busy/5", 1, 2, codes.DeadlineExceeded, "", -1))
		}, "each failure is documented", "without a reason"},
		"a wrong result": {func(e *evidence) {
			e.calls = append(e.calls, made("busy/5", 1, 2, codes.OK, "WRONG_RESULT", -1))
		}, "each failure is documented", "WRONG_RESULT"},
		"a refused call that ran": {func(e *evidence) { e.executions["busy"] = append(e.executions["busy"], "busy/4") }, "each failure is documented", "surely not started"},
		"an unknown outcome before the cut": {func(e *evidence) {
			e.calls = append(e.calls, made("busy/5", 9, 9.9, codes.Unknown, "OUTCOME_UNKNOWN", -1))
		}, "an unknown outcome has a cause", "nothing was cut"},
		"an unknown outcome long after the cut": {func(e *evidence) {
			e.calls = append(e.calls, made("busy/5", 11, 13.1, codes.Unknown, "OUTCOME_UNKNOWN", -1))
		}, "an unknown outcome has a cause", "last disturbance: kill"},
		"an unknown outcome of another target": {func(e *evidence) {
			e.calls = append(e.calls, made("other/5", 10, 11, codes.Unknown, "OUTCOME_UNKNOWN", -1))
		}, "an unknown outcome has a cause", "nothing was cut"},
		"an unknown outcome without a cut": {func(e *evidence) { e.disturbances[0].step.fault = fault500 }, "an unknown outcome has a cause", "nothing was cut"},
		"an untouched target that fails": {func(e *evidence) {
			e.calls[0].code, e.calls[0].reason = codes.Unavailable, "TARGET_UNAVAILABLE"
			e.executions["calm"] = nil
		}, "untouched targets serve", "TARGET_UNAVAILABLE"},
		"no call to an untouched target": {func(e *evidence) { e.calls[0].warm = true }, "untouched targets serve", "no calls"},
		"a late return":                  {func(e *evidence) { e.disturbances[0].served = at(15.6) }, "disturbed targets serve again", "it took 3.6s, allowed 3.5s (backoff 2s, told)"},
		"a late return without any refusal": {func(e *evidence) {
			e.calls[3].reason, e.table = "ODD", errorTable{{codes.Unavailable, "ODD"}: true, {codes.Unknown, "OUTCOME_UNKNOWN"}: true}
			e.disturbances[0].served = at(14.6)
		}, "disturbed targets serve again", "allowed 2.5s (backoff 1s, configured)"},
		"no return": {func(e *evidence) { e.disturbances[0].served = time.Time{} }, "disturbed targets serve again", "did not serve"},
		"a run without a disturbance": {func(e *evidence) {
			e.disturbances, e.calls = nil, e.calls[:2]
			e.executions["busy"] = []string{"busy/2"}
		}, "disturbed targets serve again", "nothing was disturbed"},
		"more goroutines than before":      {func(e *evidence) { e.settled = settled{wrong: []string{"goroutines 5 → 6"}} }, "the bridge holds what it held", "goroutines 5"},
		"an exit code other than 0":        {func(e *evidence) { e.end.err = errors.New("exit status 1") }, "the bridge ends well", "exit status 1"},
		"a child that outlives the bridge": {func(e *evidence) { e.end.left = []string{"7 (x)"} }, "the bridge ends well", "7 (x)"},
		"a panic in the log":               {func(e *evidence) { e.end.panic = true }, "the bridge ends well", "panic"},
	} {
		e := wellRun()
		tt.spoil(e)
		if names := failed(e); len(names) != 1 || !strings.HasPrefix(names[0], tt.check) {
			t.Errorf("%s: failed %q, want only %q", name, names, tt.check)
			continue
		}
		for _, r := range e.checks() {
			if all := strings.Join(r.wrong, "\n"); all != "" && !strings.Contains(all, tt.says) {
				t.Errorf("%s: %q, want %q", name, all, tt.says)
			}
		}
	}
}

func TestOneFailureInAThousandIsForgivenAndTwoAreNot(t *testing.T) {
	e := wellRun()
	e.calls = nil
	for range 999 {
		e.calls = append(e.calls, good("calm/1"))
	}
	bad := made("calm/2", 1, 2, codes.Unavailable, "TARGET_UNAVAILABLE", -1)
	if r := (&evidence{targets: e.targets, calls: append(e.calls, bad)}).untouchedTargetsServe(); len(r.wrong) > 0 {
		t.Errorf("one of 1000: %s %q", r.figures, r.wrong)
	}
	if r := (&evidence{targets: e.targets, calls: append(e.calls[1:], bad, bad)}).untouchedTargetsServe(); len(r.wrong) != 2 {
		t.Errorf("two of 1000: %s %q", r.figures, r.wrong)
	}
}

func TestTheBackoffIsThatOfTheLastRefusalAroundTheReturn(t *testing.T) {
	d := disturbance{target: "busy", start: at(10), back: at(20)}
	refused := func(end float64, wait time.Duration) call {
		return made("busy/1", end, end, codes.Unavailable, "TARGET_UNAVAILABLE", wait)
	}
	for name, tt := range map[string]struct {
		calls []call
		wait  time.Duration
		told  bool
	}{
		"no refusal":                       {[]call{good("busy/1")}, 0, false},
		"a refusal before the disturbance": {[]call{refused(9, 7*time.Second)}, 0, false},
		"the last of several":              {[]call{refused(11, 5*time.Second), refused(19, 3*time.Second)}, 3 * time.Second, true},
		"a longer one right after":         {[]call{refused(19, 1*time.Second), refused(20.1, 4*time.Second), refused(20.2, 9*time.Second)}, 4 * time.Second, true},
		"a shorter one right after":        {[]call{refused(19, 4*time.Second), refused(20.1, 1*time.Second)}, 4 * time.Second, true},
		"only one right after":             {[]call{refused(20.1, 2*time.Second)}, 2 * time.Second, true},
		"one that comes too late to tell":  {[]call{refused(19, 1*time.Second), refused(21, 4*time.Second)}, time.Second, true},
		"an error of another kind":         {[]call{made("busy/1", 19, 19, codes.Unavailable, "UPSTREAM_HTTP", time.Hour)}, 0, false},
		"a refusal without a time":         {[]call{made("busy/1", 19, 19, codes.Unavailable, "TARGET_UNAVAILABLE", -1)}, 0, false},
	} {
		if wait, told := backoff(d, tt.calls); wait != tt.wait || told != tt.told {
			t.Errorf("%s: %v %v, want %v %v", name, wait, told, tt.wait, tt.told)
		}
	}
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// saveEvidence writes what was done and every call that failed to files, for people.
func saveEvidence(dir string, e *evidence) error {
	var done, failures strings.Builder
	for _, r := range e.recoveries() {
		fmt.Fprintf(&done, "%s %-9s %s, over after %v, served after another %v, allowed %v\n", r.start.Format("15:04:05.000"), r.target, r.step.fault,
			r.back.Sub(r.start).Round(time.Millisecond), r.took.Round(time.Millisecond), r.allowed.Round(time.Millisecond))
	}
	for _, c := range e.calls {
		if !c.ok() {
			fmt.Fprintln(&failures, c)
		}
	}
	return cmp.Or(
		os.WriteFile(filepath.Join(dir, "disturbances.txt"), []byte(done.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "failures.txt"), []byte(failures.String()), 0o600),
	)
}

// examples is how many details of a failed check are shown.
const examples = 10

// report prints what happened and the verdict, which it returns.
func report(out io.Writer, e *evidence) bool {
	fmt.Fprintf(out, "\nthe driver was late by at most %v\n\n", e.lag.Round(time.Millisecond))
	e.outcomeTable(out)
	fmt.Fprintln(out)
	e.recoveryTable(out)
	fmt.Fprintln(out)
	e.calmFailures(out)
	fmt.Fprintln(out)
	return printChecks(out, e.checks())
}

func printChecks(out io.Writer, results []result) bool {
	passed := true
	for i, r := range results {
		word := "PASS"
		if len(r.wrong) > 0 {
			word, passed = "FAIL", false
		}
		fmt.Fprintf(out, "%s  %d. %s: %s\n", word, i+1, r.name, r.figures)
		for _, wrong := range r.wrong[:min(len(r.wrong), examples)] {
			fmt.Fprintf(out, "        %s\n", wrong)
		}
		if more := len(r.wrong) - examples; more > 0 {
			fmt.Fprintf(out, "        and %d more\n", more)
		}
	}
	return passed
}

// group is a row of the first table.
type group struct {
	kind    kind
	touched bool
}

func (g group) String() string {
	return g.kind.String() + map[bool]string{true: ", disturbed", false: ", untouched"}[g.touched]
}

// outcomeTable shows per kind of target what became of its calls.
func (e *evidence) outcomeTable(out io.Writer) {
	type row struct {
		calls, probes, good, ran int
		failures                 map[string]int
	}
	rows := map[group]*row{}
	groups := map[string]group{}
	var order []group
	for _, t := range e.targets {
		g := group{t.kind, t.touched}
		groups[t.name] = g
		if rows[g] == nil {
			rows[g] = &row{failures: map[string]int{}}
			order = append(order, g)
		}
	}
	ran := e.ran()
	for _, c := range e.calls {
		if c.warm {
			continue
		}
		r := rows[groups[c.target]]
		r.calls++
		r.ran += ran[c.id]
		if c.probe {
			r.probes++
		}
		if c.ok() {
			r.good++
		} else {
			r.failures[c.outcome()]++
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "targets\tcalls\tof them probes\tsuccesses\texecutions\tfailures")
	for _, g := range order {
		r := rows[g]
		failures := fmt.Sprint(r.calls - r.good)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", g, r.calls, r.probes, r.good, r.ran, failures)
		for _, outcome := range slices.SortedFunc(maps.Keys(r.failures), func(a, b string) int {
			return r.failures[b] - r.failures[a]
		}) {
			fmt.Fprintf(w, "\t\t\t\t\t%6d  %s\n", r.failures[outcome], outcome)
		}
	}
	_ = w.Flush() // as above: what cannot be printed cannot be reported either
}

// recoveryTable shows per fault how targets came back.
func (e *evidence) recoveryTable(out io.Writer) {
	byFault := map[string][]recovery{}
	var order []string
	for _, r := range e.recoveries() {
		key := fmt.Sprintf("%s\t%s", e.target(r.target).kind, r.step.fault)
		if byFault[key] == nil {
			order = append(order, key)
		}
		byFault[key] = append(byFault[key], r)
	}
	slices.Sort(order)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "targets\tfault\ttimes\tmedian recovery\tslowest\tallowed then")
	for _, key := range order {
		all := byFault[key]
		slices.SortFunc(all, func(a, b recovery) int { return int(a.took - b.took) })
		slowest := all[len(all)-1]
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\n", key, len(all), all[len(all)/2].took.Round(time.Millisecond), slowest.took.Round(time.Millisecond), slowest.allowed.Round(time.Millisecond))
	}
	_ = w.Flush()
}

// calmFailures shows failures of disturbed targets at times when nothing was wrong with them: after a first success and
// before the next disturbance. No check asks for them, but each is worth a look.
func (e *evidence) calmFailures(out io.Writer) {
	var failures []string
	for _, c := range e.calls {
		if t := e.target(c.target); c.ok() || c.warm || !t.touched {
			continue
		}
		if !slices.ContainsFunc(e.disturbances, func(d disturbance) bool {
			return d.target == c.target && c.end.After(d.start) && (d.served.IsZero() || c.start.Before(d.served))
		}) {
			failures = append(failures, c.String()+e.lastFault(c))
		}
	}
	fmt.Fprintf(out, "%d calls to disturbed targets failed between a recovery and the next disturbance\n", len(failures))
	for _, f := range failures[:min(len(failures), examples)] {
		fmt.Fprintf(out, "        %s\n", strings.TrimSpace(f))
	}
}

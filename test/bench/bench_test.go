package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test's own binary be the processes that take part.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if run, ok := role(os.Args); ok {
		if err := run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	stop()
	flag.Parse()
	os.Exit(m.Run())
}

// TestEveryCellYieldsNumbersAndRightAnswers runs the whole of bench-full, with next to no load. Each answer is checked
// by the load itself. No ratio is: a machine that runs tests has other things to do.
func TestEveryCellYieldsNumbersAndRightAnswers(t *testing.T) {
	r := runner{rounds: 1, duration: 20 * time.Millisecond, settle: 50 * time.Millisecond, targets: 20, watches: 50, connections: 5, most: 2}
	if err := r.prepare(true); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(r.dir)
	var err error
	t.Chdir("..") // where bench runs
	if r.bridge, err = buildBridge(t.Context(), r.dir); err != nil {
		t.Fatal(err)
	}
	results := r.run(t.Context(), cells(), t.Output())
	for _, result := range results {
		if result.err != nil {
			t.Error(result.err)
			continue
		}
		for _, row := range result.rows {
			for _, metric := range result.columns {
				values := row.values[metric]
				if len(values) != 1 || values[0] <= 0 && metric != multiple && metric != idleCPU || math.IsNaN(values[0]) || math.IsInf(values[0], 0) {
					t.Errorf("%s, %s: %s is %v", result.name, row.name, metric, values)
				}
			}
		}
	}
	if t.Failed() {
		return
	}
	for _, goal := range medians(results).goals() {
		if math.IsNaN(goal.measured) && !strings.Contains(goal.what, "listen.grpc") {
			t.Errorf("there is no figure for the goal %q", goal.what)
		}
	}
	report := newReport(r.head(), results)
	doc := filepath.Join(r.dir, "doc.md")
	if err := os.WriteFile(doc, []byte("before\n"+beginMark+"old\n"+endMark+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the report takes its own place
		if err := report.replace(doc); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n" + beginMark, endMark + "after\n", "| " + bridgeText + " | ", "### Goals"} {
		if strings.Count(string(text), want) < 1 || strings.Contains(string(text), "old\n") {
			t.Errorf("the document lacks %q, or has what was there before:\n%s", want, text)
		}
	}
	if err := report.text(t.Output()); err != nil {
		t.Error(err)
	}
}

func TestTheCPUClockCountsThreadsThatHaveEnded(t *testing.T) {
	before, err := cpuTime(0)
	if err != nil {
		t.Fatal(err)
	}
	const work = 50 * time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // it is not unlocked, so the thread ends with the goroutine
		for began := time.Now(); time.Since(began) < work; {
			if now, err := cpuTime(0); err != nil || now-before >= work {
				return
			}
		}
	}()
	<-done
	after, err := cpuTime(0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := cpuTime(os.Getpid()) // as another process's
	if err != nil {
		t.Fatal(err)
	}
	if after <= before || other < after {
		t.Errorf("the clock went from %s to %s, and by the number of the process to %s", before, after, other)
	}
}

func TestACommandIsPinned(t *testing.T) {
	cpus, err := processors()
	if err != nil {
		t.Fatal(err)
	}
	last := strconv.Itoa(cpus[len(cpus)-1])
	out, err := exec.CommandContext(t.Context(), os.Args[0], "pin", last, "grep", "Cpus_allowed_list", "/proc/self/status").CombinedOutput()
	if err != nil || strings.TrimSpace(strings.TrimPrefix(string(out), "Cpus_allowed_list:")) != last {
		t.Errorf("pinned to processor %s: %q, %v", last, out, err)
	}
}

func TestAPeakBeginsWithWhatIsHeld(t *testing.T) {
	if err := resetPeak(0); err != nil {
		t.Fatal(err)
	}
	now, low, err := memory(0)
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 64<<20)
	for i := 0; i < len(big); i += 4096 {
		big[i] = 1
	}
	_, high, err := memory(0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(big)
	if now == 0 || high-low < len(big)*9/10 {
		t.Errorf("holds %d, the peak was %d, and %d with 64 MB more", now, low, high)
	}
}

func TestWrongAnswersAreNoticed(t *testing.T) {
	for _, w := range []work{{Kind: "echo", Size: 100}, {Kind: "text", Size: 1 << 10}, {Kind: "rows", Size: 1 << 10}} {
		j, err := w.prepare()
		if err != nil {
			t.Fatal(err)
		}
		other, err := work{Kind: w.Kind, Size: w.Size + 500}.prepare()
		if err != nil {
			t.Fatal(err)
		}
		if err := j.check(verbatim(`{"result":` + j.raw + `}`)); err != nil {
			t.Errorf("%v: the right answer is refused: %v", w, err)
		}
		for _, wrong := range []string{"", `{"error":{"code":-32603}}`, j.raw[1:]} {
			if err := j.check(verbatim(wrong)); err == nil {
				t.Errorf("%v: %.100q is accepted", w, wrong)
			}
		}
		if err := other.check(verbatim(j.raw)); err == nil {
			t.Errorf("%v: the answer of less work is accepted", w)
		}
	}
}

func TestCellsAndGoalsFitTogether(t *testing.T) {
	core, names := 0, []string{}
	for _, c := range cells() {
		if slices.Contains(names, c.name) {
			t.Errorf("two cells are named %q", c.name)
		}
		names = append(names, c.name)
		if c.core {
			core++
		}
	}
	if core != 8 {
		t.Errorf("%d core cells", core)
	}
	if _, err := choose(false, "http-16,nope"); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("an unknown cell: %v", err)
	}
	one, err := choose(false, "watches")
	if err != nil || len(one) != 1 {
		t.Errorf("-only watches chooses %d cells, %v", len(one), err)
	}
}

func TestMedians(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}, {[]float64{7}, 7}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v: %v", tt.values, got)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		goal goal
		want string
	}{
		{goal{limit: 1.2, measured: 1.2}, "met"},
		{goal{limit: 1.2, measured: 1.21}, "not met"},
		{goal{limit: 1.2, least: 0.8, measured: 0.7}, "not met"},
		{goal{measured: 5}, ""},
	} {
		if got := tt.goal.verdict(); got != tt.want {
			t.Errorf("%+v: %q", tt.goal, got)
		}
	}
}

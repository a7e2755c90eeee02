package main

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestTheReportShowsTablesAndVerdicts(t *testing.T) {
	e := wellRun()
	var out strings.Builder
	if !report(&out, e) {
		t.Errorf("a run in which all is well does not pass:\n%s", out.String())
	}
	for _, want := range []string{"stdio, untouched", "modern HTTP, disturbed", "Unknown OUTCOME_UNKNOWN", "kill", "PASS  7."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	for i := range 20 {
		e.calls = append(e.calls, made(fmt.Sprintf("busy/%d", 100+i), 20, 21, codes.Internal, "ODD", -1))
	}
	out.Reset()
	if report(&out, e) {
		t.Error("a run with undocumented errors passes")
	}
	for _, want := range []string{"FAIL  2.", "and 10 more", "20 calls to disturbed targets failed between a recovery and the next disturbance"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

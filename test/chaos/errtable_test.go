package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

func TestTheErrorTableIsReadWithSeveralReasonsOrCodesInARow(t *testing.T) {
	got, err := parseErrorTable("# Errors\n\n" +
		"| reason | code | what |\n|---|---|---|\n" +
		"| `A_ONE`, `A_TWO` | NOT_FOUND | see `OTHER_NAME` |\n" +
		"| `B` | INTERNAL or UNAVAILABLE | |\n" +
		"| `BB` | INTERNAL or UNAVAILABLE | |\n" +
		"| `C_C` | CANCELED | |\n" +
		"| `C_C` | UNKNOWN | |\n")
	if err != nil {
		t.Fatal(err)
	}
	want := errorTable{
		{codes.NotFound, "A_ONE"}: true, {codes.NotFound, "A_TWO"}: true,
		{codes.Internal, "BB"}: true, {codes.Unavailable, "BB"}: true,
		{codes.Canceled, "C_C"}: true, {codes.Unknown, "C_C"}: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnErrorTableThatCannotBeReadIsAnError(t *testing.T) {
	for _, page := range []string{"", "| `A_ONE` | not a code | |\n", "| `A_ONE` | NOT_A_CODE | |\n", "text\n| a | b |\n"} {
		if table, err := parseErrorTable(page); err == nil {
			t.Errorf("%q gives %v", page, table)
		}
	}
}

func TestTheDocumentedErrorsAreRead(t *testing.T) {
	table, err := readErrorTable("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []verdict{{codes.Unknown, "OUTCOME_UNKNOWN"}, {codes.Unavailable, "TARGET_UNAVAILABLE"}, {codes.Internal, "UPSTREAM_HTTP"}, {codes.Unavailable, "UPSTREAM_HTTP"}, {codes.DeadlineExceeded, "TIMEOUT"}} {
		if !table[v] {
			t.Errorf("%v is missing", v)
		}
	}
	if table[verdict{codes.OK, ""}] || table[verdict{codes.DeadlineExceeded, ""}] {
		t.Error("an error without a reason is no documented one")
	}
}

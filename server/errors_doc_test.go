package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// unreachable are reasons of features that do not exist yet.
var unreachable = map[string]bool{
	"RATE_LIMITED": true, "POLICY_DENIED": true,
}

func TestTheErrorPageHasEveryReasonACallerCanSee(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		kind, ok := spec.Type.(*ast.Ident)
		if !ok || kind.Name != "reason" {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		name, err := strconv.Unquote(value.Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons++
		if documented := strings.Contains(string(page), "`"+name+"`"); documented == unreachable[name] {
			t.Errorf("%s: documented is %v", name, documented)
		}
		return true
	})
	if reasons < 20 {
		t.Errorf("found only %d reasons", reasons)
	}
}

package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// faults are the numbers of what users of MCP gateways ran into, about sessions, isolation, bad targets, timeouts, child
// processes and streams, and, from 91 on, of what goes wrong between MCP clients and servers while calls run, in lists
// and subscriptions, and in rounds and tasks; those are the numbers of package mcpclient. Each has a test whose name
// begins with TestFaultNN. 97 is only there, because callers of the bridge bring no handlers.
var faults = []int{
	1, 3, 5, 6, 8, 10, 11, 13, 15, 16, 18, 20, 21, 23, 25, 26, 28, 30, 31, 33, 35, 36, 63, 65, 66, 71, 73, 75, 78,
	91, 92, 94, 95, 98, 100, 101, 112, 113, 115, 116, 118, 119, 121, 122, 124, 125, 127, 128, 130,
}

// inServer are those whose test is in package server, because no listener can produce them yet.
var inServer = []int{11}

func TestEveryKnownFaultHasATest(t *testing.T) {
	here, server := faultTests(t, "."), faultTests(t, filepath.Join("..", "..", "server"))
	for _, n := range faults {
		found, where := here, "here"
		if slices.Contains(inServer, n) {
			found, where = server, "in package server"
		}
		if len(found[n]) == 0 {
			t.Errorf("fault %d has no test named TestFault%d… %s", n, n, where)
		}
	}
}

// faultTests returns the names of the tests in a folder by the number of their fault.
func faultTests(t *testing.T, dir string) map[int][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`^TestFault([0-9]+)`)
	tests := map[int][]string{}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			if match := number.FindStringSubmatch(f.Name.Name); match != nil {
				n, err := strconv.Atoi(match[1])
				if err != nil {
					t.Fatal(err)
				}
				tests[n] = append(tests[n], f.Name.Name)
			}
		}
	}
	return tests
}

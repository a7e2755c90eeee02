package mcpclient_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// faults are the numbers of the known faults of MCP clients. Each has a test
// whose name holds FaultNN, here or in package transport.
var faults = []int{
	1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41,
	43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74, 76, 77, 79, 80, 82, 83,
	85, 86, 88, 89, 91, 92, 94, 95, 97, 98, 100, 101, 103, 104, 106, 107, 109, 110, 112, 113, 115, 116, 118, 119,
	121, 122, 124, 125, 127, 128, 130,
}

func TestEveryKnownFaultHasATest(t *testing.T) {
	number := regexp.MustCompile(`Fault([0-9]+)`)
	tests := map[int][]string{}
	root := os.DirFS(".")
	for _, dir := range []string{".", "transport"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), "_test.go") {
				continue
			}
			name := path.Join(dir, entry.Name())
			src, err := root.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
			_ = src.Close()
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
					continue
				}
				for _, match := range number.FindAllStringSubmatch(f.Name.Name, -1) {
					n, err := strconv.Atoi(match[1])
					if err != nil {
						t.Fatal(err)
					}
					tests[n] = append(tests[n], f.Name.Name)
				}
			}
		}
	}
	known := map[int]bool{}
	for _, n := range faults {
		known[n] = true
		if len(tests[n]) == 0 {
			t.Errorf("fault %d has no test named TestFault%d…", n, n)
		}
	}
	for n, names := range tests {
		if !known[n] {
			t.Errorf("%v: there is no fault %d", names, n)
		}
	}
}

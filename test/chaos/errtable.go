package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
)

// verdict is what a caller sees of an error.
type verdict struct {
	code   codes.Code
	reason string
}

// errorTable has the pairs of code and reason that are documented.
type errorTable map[verdict]bool

func readErrorTable(path string) (errorTable, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	table, err := parseErrorTable(string(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return table, nil
}

var (
	reasonName = regexp.MustCompile("`([A-Z][A-Z_]+)`")
	codeName   = regexp.MustCompile(`[A-Z][A-Z_]+`)
)

// parseErrorTable finds the table whose rows begin with reasons and codes; a cell may have several of them.
func parseErrorTable(page string) (errorTable, error) {
	table := errorTable{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || cells[0] != "" {
			continue
		}
		reasons := reasonName.FindAllStringSubmatch(cells[1], -1)
		if reasons == nil {
			continue
		}
		names := codeName.FindAllString(cells[2], -1)
		if names == nil {
			return nil, fmt.Errorf("the row of %s names no code", reasons[0][1])
		}
		for _, name := range names {
			code, err := parseCode(name)
			if err != nil {
				return nil, fmt.Errorf("the row of %s: %w", reasons[0][1], err)
			}
			for _, reason := range reasons {
				table[verdict{code, reason[1]}] = true
			}
		}
	}
	if len(table) == 0 {
		return nil, fmt.Errorf("there is no table of reasons and codes")
	}
	return table, nil
}

// parseCode knows the names of the gRPC documents.
func parseCode(name string) (codes.Code, error) {
	if name == "CANCELED" {
		name = "CANCELLED" // as grpc-go spells it
	}
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		return 0, fmt.Errorf("%q is no code of gRPC", name)
	}
	return code, nil
}

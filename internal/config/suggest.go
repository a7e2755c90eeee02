package config

import (
	"fmt"
	"reflect"
	"strings"
)

// maxSuggestLength keeps a pasted blob from being compared letter by letter.
const maxSuggestLength = 64

// suggest names the known word that was probably meant, else all of them.
func suggest(word string, known []string) string {
	best, distance := "", max(len(word)/3, 1)+1
	if len(word) > maxSuggestLength {
		word, distance = "", 0
	}
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// editDistance counts the letters to insert, remove, replace or swap with
// their neighbour to turn a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// foreign says what to do with a key of the mcpServers format; "" for others.
func foreign(in reflect.Type, name string) string {
	switch {
	case in == reflect.TypeFor[Config]() && name == "mcpServers":
		return "a file in that format is read by --mcp-json FILE; here the servers stand under targets"
	case in == reflect.TypeFor[Target]() && name == "args":
		return "arguments belong into command: [PROGRAM, ARGUMENT, ...]"
	}
	return ""
}

// yamlHint says what is behind some errors of the YAML parser, whose texts are
// about its grammar; line is the one that it names.
func yamlHint(line string) string {
	switch {
	case strings.Contains(line, "${") && strings.ContainsAny(line, "[{"):
		return "; inside of [...] and {...} put quotes around a value that holds ${...}"
	case strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		return "; indent with spaces, not with tabs"
	}
	return ""
}

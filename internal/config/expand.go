package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Env is what ${...} in a value reads from. Nil functions read the process
// environment and the file system, so that the zero value is the usual one.
type Env struct {
	// Lookup returns an environment variable and whether it is set.
	Lookup func(name string) (string, bool)

	// ReadFile returns the content of an absolute path.
	ReadFile func(path string) ([]byte, error)
}

func (e Env) lookup(name string) (string, bool) {
	if e.Lookup != nil {
		return e.Lookup(name)
	}
	return os.LookupEnv(name)
}

func (e Env) readFile(path string) ([]byte, error) {
	if e.ReadFile != nil {
		return e.ReadFile(path)
	}
	return os.ReadFile(path)
}

// expand replaces the references in text: ${NAME} and ${env:NAME} by a
// variable that must be set, ${NAME:-default} by a default when it is unset or
// empty, ${file:/path} by a file's content without its last line break. $${
// stands for ${ itself; any other $ is plain text. Results are not expanded
// again.
func (e Env) expand(text string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			b.WriteString(text)
			return b.String(), nil
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(escaped + "${")
			text = rest
			continue
		}
		b.WriteString(before)
		ref, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf("a ${ is not closed; add the }, or write $${ for a plain ${")
		}
		value, err := e.resolve(ref)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = after
	}
}

func (e Env) resolve(ref string) (string, error) {
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		return e.file(path)
	}
	name, fallback, optional := strings.Cut(strings.TrimPrefix(ref, "env:"), ":-")
	if !isVariableName(name) {
		return "", fmt.Errorf("${%s} is not a reference; write ${NAME}, ${NAME:-default} or ${file:/path}, or $${ for a plain ${", ref)
	}
	value, set := e.lookup(name)
	switch {
	case optional && (!set || value == ""):
		return fallback, nil
	case !set:
		return "", fmt.Errorf("the environment variable %s is not set; set it, or give a default with ${%s:-default}", name, name)
	}
	return value, nil
}

func (e Env) file(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("${file:%s} needs an absolute path", path)
	}
	data, err := e.readFile(path)
	if err != nil {
		return "", fmt.Errorf("${file:%s} cannot be read: %w", path, err)
	}
	text := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}

func isVariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

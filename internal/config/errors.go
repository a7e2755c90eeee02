package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one problem of a configuration.
type Error struct {
	// File is the name given to the parser, empty for values set in code.
	File string

	// Line and Column count from 1; zero means unknown.
	Line, Column int

	// Key is the dotted path of the setting, empty for the file as a whole.
	Key string

	// Message says what is wrong and what to do.
	Message string
}

// Error writes FILE:LINE:COLUMN: KEY: MESSAGE without the parts that are unknown.
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors are all problems of a configuration, in the order of the file.
type Errors []Error

// Error writes a single problem as it is. Of several it first writes how many
// there are and where, so that whatever stands before the text belongs to
// none of them, then one a line.
func (e Errors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	where := "the configuration"
	if len(e) > 0 && e[0].File != "" {
		where = e[0].File
	}
	lines := []string{fmt.Sprintf("%d problems in %s:", len(e), where)}
	for i := range e {
		lines = append(lines, e[i].Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes the single problems reachable for [errors.AsType].
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// position is a place in a file; the zero value is unknown.
type position struct{ line, column int }

// report collects the problems of one file and remembers where its keys are.
type report struct {
	file string
	at   map[string]position // dotted path → place of its value
	errs Errors
}

func newReport(file string) *report {
	return &report{file: file, at: map[string]position{}}
}

// add records a problem of key at the place where the file sets it, or sets
// the nearest thing around it.
func (r *report) add(key, format string, args ...any) {
	r.addAt(r.place(key), key, format, args...)
}

func (r *report) addAt(p position, key, format string, args ...any) {
	r.errs = append(r.errs, Error{
		File: r.file, Line: p.line, Column: p.column, Key: key, Message: fmt.Sprintf(format, args...),
	})
}

func (r *report) place(key string) position {
	for key != "" {
		if p, ok := r.at[key]; ok {
			return p
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return position{}
}

// isSet reports whether the file has key.
func (r *report) isSet(key string) bool {
	_, ok := r.at[key]
	return ok
}

// err returns what was collected, nil for nothing.
func (r *report) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(r.errs, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.errs
}

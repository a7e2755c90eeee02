package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is a measured cell.
type result struct {
	cell
	rows []row
	err  error
}

// report is everything that a run has to say: paragraphs and tables, in order.
type report struct {
	head   []string
	tables []table
}

type table struct {
	title  string
	header []string
	rows   [][]string
	note   string
}

// medians of all results.
func medians(results []result) figures {
	f := figures{}
	for _, result := range results {
		f[result.name] = map[string]map[metric]float64{}
		for _, row := range result.rows {
			f[result.name][row.name] = map[metric]float64{}
			for metric, values := range row.values {
				f[result.name][row.name][metric] = median(values)
			}
		}
	}
	return f
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func newReport(head []string, results []result) report {
	r, f := report{head: head}, medians(results)
	goals := table{title: "Goals", header: []string{"what", "measured", "goal", ""}}
	for _, g := range f.goals() {
		if math.IsNaN(g.measured) {
			continue
		}
		limit := ""
		switch {
		case g.least > 0:
			limit = fmt.Sprintf("%s to %s", number(g.least), number(g.limit))
		case g.limit > 0:
			limit = "≤ " + number(g.limit)
		}
		goals.rows = append(goals.rows, []string{g.what, number(g.measured) + " " + g.unit, limit, g.verdict()})
	}
	if len(goals.rows) > 0 {
		r.tables = append(r.tables, goals)
	}
	for _, result := range results {
		r.tables = append(r.tables, result.table(f))
	}
	return r
}

// table has a line for each row. Its first metric is shown with its spread and beside that of the base.
func (r *result) table(f figures) table {
	t := table{title: r.title, header: []string{""}}
	if r.err != nil {
		t.note = "failed: " + r.err.Error()
		return t
	}
	for i, metric := range r.columns {
		t.header = append(t.header, string(metric))
		if i == 0 {
			t.header = append(t.header, "spread")
			if r.base != "" {
				t.header = append(t.header, "× "+r.base)
			}
		}
	}
	for _, row := range r.rows {
		line := []string{row.name}
		for i, metric := range r.columns {
			line = append(line, number(f.get(r.name, row.name, metric)))
			if i > 0 {
				continue
			}
			values := row.values[metric]
			line = append(line, number(slices.Min(values))+" to "+number(slices.Max(values)))
			if r.base != "" {
				line = append(line, number(f.ratio(r.name, metric, row.name, r.base)))
			}
		}
		t.rows = append(t.rows, line)
	}
	return t
}

// number has three digits, or all of its integer part.
func number(v float64) string {
	switch size := math.Abs(v); {
	case size >= 100:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// text writes the report for a terminal.
func (r *report) text(out io.Writer) error {
	var b bytes.Buffer
	for _, line := range r.head {
		fmt.Fprintln(&b, line)
	}
	for _, t := range r.tables {
		fmt.Fprintf(&b, "\n%s\n", t.title)
		if t.note != "" {
			fmt.Fprintln(&b, t.note)
			continue
		}
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.header}, t.rows...) {
			fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// markdown is the report for the documentation.
func (r *report) markdown() string {
	var b strings.Builder
	for _, line := range r.head {
		fmt.Fprintf(&b, "%s\n\n", line)
	}
	for _, t := range r.tables {
		fmt.Fprintf(&b, "### %s\n\n", t.title)
		if t.note != "" {
			fmt.Fprintf(&b, "%s\n\n", t.note)
			continue
		}
		fmt.Fprintf(&b, "| %s |\n|---%s|\n", strings.Join(t.header, " | "), strings.Repeat("|---:", len(t.header)-1))
		for _, row := range t.rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The part of a document that is the report.
const (
	beginMark = "<!-- begin: written by make bench -->\n"
	endMark   = "<!-- end: written by make bench -->\n"
)

// replace puts the report into a document.
func (r *report) replace(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !ok || !ended {
		return fmt.Errorf("%s has no place for the report: it needs the lines %q and %q", file, beginMark, endMark)
	}
	return os.WriteFile(file, []byte(before+beginMark+"\n"+r.markdown()+endMark+after), 0o644)
}

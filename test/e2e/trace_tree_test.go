package e2e

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// tracer is a place where spans end up.
type tracer interface {
	// environment makes a process export there soon after each span.
	environment() []string
	// trace returns the spans of a trace as far as they have arrived.
	trace(t *testing.T, traceID string) []span
	// traces returns the ids of the traces that have a span of this name.
	traces(t *testing.T, name string) []string
}

// span is what the tests look at.
type span struct {
	id, parent  string
	name, kind  string
	failed      bool
	description string
	tags        map[string]string
	links       []string // ids of spans
	start       uint64
}

// newSpan converts from OTLP.
func newSpan(s *tracepb.Span) span {
	out := span{
		id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()), name: s.GetName(),
		kind:   strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, description: s.GetStatus().GetMessage(),
		tags: map[string]string{}, start: s.GetStartTimeUnixNano(),
	}
	for _, kv := range s.GetAttributes() {
		if v := kv.GetValue(); v.GetStringValue() != "" {
			out.tags[kv.GetKey()] = v.GetStringValue()
		} else {
			out.tags[kv.GetKey()] = fmt.Sprint(v.GetIntValue())
		}
	}
	for _, link := range s.GetLinks() {
		out.links = append(out.links, hex.EncodeToString(link.GetSpanId()))
	}
	return out
}

// tree writes a trace as indented lines, in the order in which spans began: name, kind, error.type, whether the status is
// an error, and the line of the span that it is linked to.
func tree(spans []span) string {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	known := map[string]bool{}
	for _, s := range spans {
		known[s.id] = true
	}
	var lines []string
	at := map[string]int{}
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, s := range spans {
			if s.parent != parent && (parent != "" || known[s.parent]) {
				continue
			}
			words := []string{s.name, s.kind}
			if kind := s.tags["error.type"]; kind != "" {
				words = append(words, "error="+kind)
			}
			if s.failed {
				words = append(words, "FAILED")
			}
			for _, id := range s.links {
				if n, ok := at[id]; ok {
					words = append(words, fmt.Sprint("after line ", n))
				} else {
					words = append(words, "after another trace")
				}
			}
			lines = append(lines, indent+strings.Join(words, " "))
			at[s.id] = len(lines)
			write(s.id, indent+"  ")
		}
	}
	write("", "")
	return strings.Join(lines, "\n")
}

// wantTree waits until a trace looks like this.
func wantTree(t *testing.T, to tracer, traceID string, lines ...string) []span {
	t.Helper()
	var spans []span
	eventually(t, "trace "+traceID, func() string {
		spans = to.trace(t, traceID)
		want := strings.Join(lines, "\n")
		if got := tree(spans); got != want {
			return fmt.Sprintf("it is\n%s\nwant\n%s", got, want)
		}
		return ""
	})
	return spans
}

// named returns the spans of a name.
func named(spans []span, name string) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.name != name })
}

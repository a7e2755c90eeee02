package e2e

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// tracer is a place where spans end up.
type tracer interface {
	// endpoint is the URL to which spans go by OTLP over HTTP.
	endpoint() string
	// environment makes a process export there soon after each span.
	environment() []string
	// trace returns the spans of a trace as far as they have arrived.
	trace(t *testing.T, traceID string) []span
	// traces returns the ids of the traces that have a span of this name.
	traces(t *testing.T, name string) []string
}

// span is what the tests look at.
type span struct {
	service     string
	trace       string
	id, parent  string
	name, kind  string
	failed      bool
	description string
	tags        map[string]string
	links       []string // ids of spans
	start       uint64
	took        time.Duration
}

// newSpan converts from OTLP.
func newSpan(service string, s *tracepb.Span) span {
	out := span{
		service: service, trace: hex.EncodeToString(s.GetTraceId()),
		id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()), name: s.GetName(),
		kind:   strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, description: s.GetStatus().GetMessage(),
		tags: map[string]string{}, start: s.GetStartTimeUnixNano(), took: time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()),
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

// walk goes through a trace from its roots, siblings in the order in which they began, and tells how deep each span is.
func walk(spans []span) iter.Seq2[int, span] {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	known := map[string]bool{}
	for _, s := range spans {
		known[s.id] = true
	}
	return func(yield func(int, span) bool) {
		var below func(parent string, depth int) bool
		below = func(parent string, depth int) bool {
			for _, s := range spans {
				if s.parent != parent && (parent != "" || known[s.parent]) {
					continue
				}
				if !yield(depth, s) || !below(s.id, depth+1) {
					return false
				}
			}
			return true
		}
		below("", 0)
	}
}

// words are what is said of a span in a tree: name, kind, error.type, and whether the status is an error.
func (s span) words() []string {
	words := []string{s.name, s.kind}
	if kind := s.tags["error.type"]; kind != "" {
		words = append(words, "error="+kind)
	}
	if s.failed {
		words = append(words, "FAILED")
	}
	return words
}

// tree writes a trace as indented lines: the words of each span, its service if that is not the bridge, and the line of
// the span that it is linked to.
func tree(spans []span) string {
	var lines []string
	at := map[string]int{}
	for depth, s := range walk(spans) {
		words := s.words()
		if s.service != "mcpbridge" {
			words = append(words, "of "+s.service)
		}
		for _, id := range s.links {
			if n, ok := at[id]; ok {
				words = append(words, fmt.Sprint("after line ", n))
			} else {
				words = append(words, "after another trace")
			}
		}
		lines = append(lines, strings.Repeat("  ", depth)+strings.Join(words, " "))
		at[s.id] = len(lines)
	}
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

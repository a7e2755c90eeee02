package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// documentedTrace is the first block of text of the section "One trace".
var documentedTrace = regexp.MustCompile("(?s)\n## One trace\n.*?```text\n(.*?)```")

// duration is a duration of a rendered trace, with the blanks that align it.
var duration = regexp.MustCompile(` +[0-9]+\.[0-9]+ ms`)

func TestTheTraceInTheDocsIsARealOne(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedTrace.FindSubmatch(page)
	if documented == nil {
		t.Fatal("docs/observability.md has no section \"One trace\" with a block of text")
	}
	to := collect(t)
	config, _ := gosdkHTTPWith(t, append(to.environment(), "OTEL_SERVICE_NAME=calculator"), "-stateless")
	b := serve(t, map[string]target{"calculator": config}, environment(to.environment()...))
	s := b.stubs(t)
	s.must(t, "calculator", "echo", `{"text":"connects"}`)
	if _, err := s.tools.ListTools(t.Context(), &pb.ListToolsRequest{}); err != nil { // now they are known
		t.Fatal(explain(err))
	}
	a := newAgent(t, to)
	client := a.overGRPC(t, b)
	id := a.turn(t, func(ctx context.Context) {
		for _, call := range []*pb.CallToolRequest{{Name: "add", ArgumentsJson: new(`{"a":1,"b":2}`)}, {Name: "fail"}} {
			if _, err := client.call(ctx, call); err != nil {
				t.Error(explain(err))
			}
		}
	})
	want := duration.ReplaceAllString(string(documented[1]), " … ms")
	eventually(t, "the trace in the docs", func() string {
		got := drawn(to.trace(t, id))
		if duration.ReplaceAllString(got, " … ms") != want {
			return fmt.Sprintf("the documented one is\n%sa real one is\n%s", documented[1], got)
		}
		return ""
	})
}

// drawn is a trace as the docs show it: the service, name and kind of each span, how long it took, and how it failed.
func drawn(spans []span) string {
	var out strings.Builder
	for depth, s := range walk(spans) {
		line := fmt.Sprintf("%-10s  %-44s  %-8s  %7.2f ms  %s", s.service, strings.Repeat("  ", depth)+s.name, s.kind, 1000*s.took.Seconds(), s.tags["error.type"])
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

const (
	// warmUpFor is the length of the load before the first reading: connections, caches and buffers are there afterwards.
	warmUpFor = 12 * time.Second
	// warmUpDelay is what its calls take. As many as under the faults are then under way at once: what a Go program
	// keeps of its busiest time, such as the descriptors of ended goroutines, is there before the first reading, too.
	warmUpDelay = toolTimeout - time.Second
)

// warmUp waits until every target serves, checks that each is of the kind that it stands for, and calls all for a
// while.
func warmUp(ctx context.Context, l *load, b *bridgeProcess, all []*target, out io.Writer) error {
	for _, t := range all {
		if l.probe(ctx, t).IsZero() {
			if b.ended.Err() != nil {
				return b.earlyEnd()
			}
			calls, _ := l.calls()
			return fmt.Errorf("%s does not serve before anything was disturbed; the last call: %s", t.name, calls[len(calls)-1])
		}
	}
	health := mcpbridgegrpc.NewHealthServiceClient(l.conns[0])
	versions := map[string]int{}
	for _, t := range all {
		response, err := health.GetTarget(ctx, &pb.GetTargetRequest{Target: t.name})
		if err != nil {
			return fmt.Errorf("GetTarget %s: %w", t.name, err)
		}
		version := response.GetTarget().GetProtocolVersion()
		if modern := version >= "2026-07-28"; t.kind != kindStdio && modern != (t.kind == kindModern) {
			return fmt.Errorf("%s, a target for %s, has the protocol version %q", t.name, t.kind, version)
		}
		versions[t.kind.String()+" "+version]++
	}
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		parts = append(parts, fmt.Sprintf("%d %s", versions[version], version))
	}
	fmt.Fprintf(out, "the bridge serves %s\n", strings.Join(parts, ", "))
	warm, cancel := context.WithTimeout(ctx, warmUpFor)
	defer cancel()
	l.run(warm, func() time.Duration { return warmUpDelay })
	return ctx.Err()
}

package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// lines writes what calls of an access log would, and returns what is visible.
func lines(level slog.Level, write func(a func(mode AccessLog) *access)) string {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	write(func(mode AccessLog) *access { return newAccess(mode, log, map[string]bool{"/quiet.Y/Z": true}) })
	return out.String()
}

func (a *access) call(ctx context.Context, procedure string, failed bool) {
	a.write(ctx, a.level(procedure, failed), []slog.Attr{slog.Bool("failed", failed)})
}

func TestTheAccessLogSaysHowManyLinesItLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := lines(slog.LevelInfo, func(made func(AccessLog) *access) {
			a := made(AccessSampled)
			for range sampledPerSecond + 5 {
				a.call(t.Context(), "/x.Y/Z", false)
			}
			a.call(t.Context(), "/x.Y/Z", true)
			a.call(t.Context(), "/x.Y/Z", false)
			time.Sleep(time.Second)
			a.call(t.Context(), "/x.Y/Z", false)
			for range sampledPerSecond + 2 {
				a.call(t.Context(), "/x.Y/Z", false)
			}
			a.close(t.Context())
			a.close(t.Context())
		})
		line := "level=INFO msg=call failed=false\n"
		want := strings.Repeat(line, sampledPerSecond) +
			"level=INFO msg=call failed=true left_out=5\n" +
			"level=INFO msg=call failed=false left_out=1\n" +
			strings.Repeat(line, sampledPerSecond-1) +
			"level=INFO msg=\"calls since the last line\" left_out=3\n"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestEveryFailedCallHasALineOfASampledLog(t *testing.T) {
	got := lines(slog.LevelInfo, func(made func(AccessLog) *access) {
		a := made(AccessSampled)
		for range 1000 {
			a.call(t.Context(), "/x.Y/Z", true)
		}
	})
	if n := strings.Count(got, "failed=true\n"); n != 1000 {
		t.Errorf("%d lines", n)
	}
}

func TestModesOfTheAccessLog(t *testing.T) {
	for _, tt := range []struct {
		mode      AccessLog
		procedure string
		want      string
	}{
		{AccessOff, "/x.Y/Z", "DEBUG"},
		{AccessOn, "/x.Y/Z", "INFO"},
		{AccessSampled, "/x.Y/Z", "INFO"},
		{AccessOn, "/quiet.Y/Z", "DEBUG"},
		{AccessOn, "/grpc.health.v1.Health/Chosen", "INFO"},
	} {
		got := lines(slog.LevelDebug, func(made func(AccessLog) *access) { made(tt.mode).call(t.Context(), tt.procedure, false) })
		if want := fmt.Sprintf("level=%s msg=call failed=false\n", tt.want); got != want {
			t.Errorf("mode %v, %s: %q, want %q", tt.mode, tt.procedure, got, want)
		}
	}
	if got := lines(slog.LevelWarn, func(made func(AccessLog) *access) { made(AccessOn).call(t.Context(), "/x.Y/Z", true) }); got != "" {
		t.Errorf("with the level warn there is %q", got)
	}
}

func TestEveryCallIsToldOf(t *testing.T) {
	var mu sync.Mutex
	var told []Outcome
	server := shop(mcptest.Modern)
	b := start(t, Options{Access: AccessOn, Observe: func(_ context.Context, o Outcome) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, o)
	}}, map[string]targetConfig{"shop": {server: server}})
	b.ready()
	if _, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "nope"}); err == nil {
		t.Error("a tool that does not exist was called")
	}
	if _, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{Target: "shop"}); err != nil {
		t.Error(err)
	}
	if _, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{Target: "another"}); err == nil {
		t.Error("a target that does not exist was asked")
	}
	const unknown = "/mcpbridge.v1.ToolsService/Unknown"
	spec := connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: unknown}
	if err := b.client(overConnect).CallUnary(t.Context(), spec, &emptypb.Empty{}, &emptypb.Empty{}); err == nil {
		t.Error("a method that does not exist was called")
	}
	res, err := http.Post(b.url+callTool, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	mu.Lock()
	defer mu.Unlock()
	want := []Outcome{
		{Procedure: callTool, Target: "shop", Reason: "TOOL_NOT_FOUND"},
		{Procedure: "/mcpbridge.v1.ToolsService/ListTools", Target: "shop"},
		{Procedure: "/mcpbridge.v1.ToolsService/ListTools", Reason: "TARGET_NOT_FOUND"},
		{Reason: "METHOD_NOT_SUPPORTED"},
		{Procedure: callTool, Reason: "INVALID_PARAMS"},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, want := range []string{"reason=TOOL_NOT_FOUND", "code=not_found", "level=INFO msg=call procedure=" + unknown} {
		if !strings.Contains(b.logs.String(), want) {
			t.Errorf("the log does not hold %s:\n%s", want, b.logs)
		}
	}
}

func TestOnlyHealthAndReflectionHaveNoLineAtInfo(t *testing.T) {
	b := start(t, Options{Access: AccessOn}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
	want := []string{
		"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(b.access.quiet))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const hidden = "/grpc.health.v1.Health/Chosen"
	for _, protocol := range []string{overConnect, overGRPC, overFastGRPC} {
		spec := connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: hidden}
		if err := b.client(protocol).CallUnary(t.Context(), spec, &emptypb.Empty{}, &emptypb.Empty{}); err == nil {
			t.Errorf("%s: a method that does not exist was called", protocol)
		}
	}
	if n := strings.Count(b.logs.String(), "level=INFO msg=call procedure="+hidden); n != 3 {
		t.Errorf("%d lines of calls that only look like probes, want 3:\n%s", n, b.logs)
	}
}

func TestRequestsThatAreNoRPCAreNeitherCountedNorLogged(t *testing.T) {
	b := start(t, Options{Access: AccessOn, Observe: func(_ context.Context, o Outcome) {
		t.Errorf("told of %+v", o)
	}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
	get(t, b.url+"/favicon.ico")
	post(t, b.url+"/", "application/json", "{}")
	post(t, b.url+"/shop.v1.Other/Do", "text/html", "")
	if logs := b.logs.String(); strings.Contains(logs, "level=INFO msg=call") || strings.Count(logs, "level=DEBUG msg=call") != 3 {
		t.Errorf("the log holds\n%s", logs)
	}
}

func TestALineIsShortWhateverAServerSays(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[1].Call = mcptest.Fail(-31000, strings.Repeat("sold out ", 100_000), nil, 0)
	b := start(t, Options{Access: AccessOn}, map[string]targetConfig{"shop": {server: server}})
	if _, err := b.tools(overGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "fail"}); err == nil {
		t.Fatal("no error")
	}
	for line := range strings.Lines(b.logs.String()) {
		if strings.Contains(line, "msg=call") && (len(line) > 8192 || !strings.Contains(line, "sold out") || !strings.Contains(line, "cause=")) {
			t.Errorf("%d bytes: %.200s", len(line), line)
		}
	}
}

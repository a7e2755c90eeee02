package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func (b *bridge) healthService(protocol string) mcpbridgev1connect.HealthServiceClient {
	b.t.Helper()
	return mcpbridgev1connect.NewHealthServiceClient(b.client(protocol))
}

// reload puts targets, given as name and URL in turn, into the configuration; an
// empty URL takes one out.
func (b *bridge) reload(pairs ...string) {
	b.t.Helper()
	cfg := config.Default()
	maps.Copy(cfg.Targets, b.cfg.Targets)
	for pair := range slices.Chunk(pairs, 2) {
		delete(cfg.Targets, pair[0])
		if pair[1] != "" {
			cfg.Targets[pair[0]] = config.NewTarget(config.TransportStreamableHTTP)
			cfg.Targets[pair[0]].URL = pair[1]
		}
	}
	if _, err := b.set.Reload(cfg); err != nil {
		b.t.Fatal(err)
	}
	b.cfg = cfg
}

// targetWatch is a WatchTargets under way.
type targetWatch struct {
	t      *testing.T
	stream mcpbridgev1connect.HealthServiceWatchTargetsClientStream
}

func (b *bridge) watchTargets(protocol string, req *pb.WatchTargetsRequest) *targetWatch {
	b.t.Helper()
	stream, err := b.healthService(protocol).WatchTargets(b.t.Context(), req)
	if err != nil {
		b.t.Fatal(err)
	}
	return &targetWatch{b.t, stream}
}

// next returns the next event in short.
func (w *targetWatch) next() string {
	w.t.Helper()
	res, err := w.stream.Receive()
	if err != nil {
		w.t.Fatal(err)
	}
	switch e := res.GetEvent().(type) {
	case *pb.WatchTargetsResponse_Target:
		return e.Target.GetName() + " " + e.Target.GetState().String()[len("TARGET_STATE_"):]
	case *pb.WatchTargetsResponse_Removed:
		return e.Removed + " removed"
	case *pb.WatchTargetsResponse_Ready_:
		return "ready"
	}
	return "nothing"
}

func (w *targetWatch) want(events ...string) {
	w.t.Helper()
	for _, want := range events {
		if got := w.next(); got != want {
			w.t.Fatalf("event %q, want %q", got, want)
		}
	}
}

func TestTargetsAreWatched(t *testing.T) {
	for _, protocol := range []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect, overConnectJSON} {
		t.Run(protocol, func(t *testing.T) {
			b := start(t, Options{}, map[string]targetConfig{"a": {server: shop(mcptest.Legacy)}, "b": {server: shop(mcptest.Legacy)}}).ready()
			live := b.cfg.Targets["a"].URL
			all := b.watchTargets(protocol, &pb.WatchTargetsRequest{})
			one := b.watchTargets(protocol, &pb.WatchTargetsRequest{Target: "a"})
			all.want("a READY", "b READY", "ready")
			one.want("a READY", "ready")
			b.reload("a", deadURL, "c", deadURL)
			one.want("a RECONNECTING")
			for seen := ""; seen != "a RECONNECTING"; seen = all.next() {
				if !slices.Contains([]string{"", "c CONNECTING", "c RECONNECTING"}, seen) {
					t.Fatal(seen)
				}
			}
			b.reload("c", "")
			for seen := ""; seen != "c removed"; seen = all.next() {
				if !slices.Contains([]string{"", "c CONNECTING", "c RECONNECTING", "c DRAINING", "c CLOSED"}, seen) {
					t.Fatal(seen)
				}
			}
			b.reload("a", live)
			for seen := ""; seen != "a READY"; seen = one.next() { // the dead one may have tried again
				if !slices.Contains([]string{"", "a RECONNECTING"}, seen) {
					t.Fatal(seen)
				}
			}
			b.reload("a", "")
			one.want("a DRAINING", "a CLOSED", "a removed")
			b.reload("a", live)
			one.want("a CONNECTING", "a READY")
			if err := b.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := one.stream.Receive()
			wantError(t, err, connect.CodeUnavailable, reasonTargetUnavailable, "shutting down")
		})
	}
}

func TestWatchedTargetsAreDescribedInFull(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Name = "acme"
	b := start(t, Options{}, map[string]targetConfig{"up": {server: server}, "down": {url: deadURL}}).connected("up")
	stream, err := b.healthService(overGRPC).WatchTargets(t.Context(), &pb.WatchTargetsRequest{JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT})
	if err != nil {
		t.Fatal(err)
	}
	var down, up *pb.Target
	for up == nil || down.GetState() != pb.TargetState_TARGET_STATE_RECONNECTING {
		res, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch target := res.GetTarget(); target.GetName() {
		case "up":
			up = target
		case "down":
			down = target
		}
	}
	if down.GetLastError().GetReason() != string(reasonTargetUnavailable) || down.GetNextAttempt() == nil || down.GetIsolation() != pb.Isolation_ISOLATION_SHARED {
		t.Errorf("down: %v", down)
	}
	if up.GetServerInfo().GetName() != "acme" || up.GetCapabilitiesJson() == "" || up.GetCapabilities() != nil || up.GetPool().GetMaxInFlight() != 1024 || up.GetNextAttempt() != nil {
		t.Errorf("up: %v", up)
	}
}

func TestWatchingAnUnknownTargetIsRefused(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	stream, err := b.healthService(overGRPC).WatchTargets(t.Context(), &pb.WatchTargetsRequest{Target: "other"})
	if err == nil {
		_, err = stream.Receive()
	}
	wantError(t, err, connect.CodeNotFound, reasonTargetNotFound, `"other"`)
}

func TestAWatchEndsWithItsCallerAndWithTheTargets(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	ctx, leave := context.WithCancel(t.Context())
	stream, err := b.healthService(overGRPC).WatchTargets(ctx, &pb.WatchTargetsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	other := b.watchTargets(overGRPC, &pb.WatchTargetsRequest{})
	other.want("shop READY", "ready")
	leave()
	for err == nil {
		_, err = stream.Receive()
	}
	if connect.CodeOf(err) != connect.CodeCanceled && !errors.Is(err, context.Canceled) {
		t.Errorf("the caller left, and the stream ended with %v", err)
	}
	if err := b.set.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.want("shop DRAINING", "shop CLOSED")
	_, err = other.stream.Receive()
	wantError(t, err, connect.CodeUnavailable, reasonTargetUnavailable, "shutting down")
}

func TestHealthWatchReportsEveryTransitionInOrder(t *testing.T) {
	b := one(t, shop(mcptest.Legacy)).ready()
	live := b.cfg.Targets["shop"].URL
	next, err := b.health(overGRPC).watch(t.Context(), "target/shop")
	if err != nil {
		t.Fatal(err)
	}
	want := func(statuses ...int) {
		t.Helper()
		for _, status := range statuses {
			if got, err := next(); err != nil || int(got) != status {
				t.Fatalf("got %v, %v; want %v", got, err, status)
			}
		}
	}
	serving, notServing, unknown := int(healthServing), int(healthNotServing), int(healthServiceUnknown)
	want(serving)
	b.reload("shop", deadURL)
	want(notServing)
	b.reload("shop", live)
	want(serving)
	b.reload("shop", "")
	want(notServing, unknown)
	b.reload("shop", live)
	want(notServing, serving)
	b.reload("shop", "") // nobody reads meanwhile, and nothing of it is lost
	b.reload("shop", live)
	b.connected("shop")
	b.reload("shop", "")
	want(notServing)
	last := notServing
	for range 5 {
		got, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if last = int(got); last == unknown {
			break
		}
	}
	if last != unknown {
		t.Error("the end was not told")
	}
}

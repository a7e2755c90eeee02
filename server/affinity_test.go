package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// userHeader is what identify takes for proof of who the caller is.
const userHeader = "x-test-user"

// identify stands for an interceptor that authenticates callers.
func identify(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		if info, ok := connect.CallInfoForServerContext(ctx); ok {
			if user := info.RequestHeader().Get(userHeader); user != "" {
				ctx = WithCallerID(ctx, user)
			}
		}
		return next(ctx, spec, stream)
	}
}

// isolating starts a bridge with one target of that isolation.
func isolating(t *testing.T, server *mcptest.Server, isolation targets.Isolation) *bridge {
	t.Helper()
	return start(t, Options{Interceptors: []connect.ServerInterceptor{identify}}, map[string]targetConfig{
		"shop": {server: server, change: func(c *config.Target) { c.Pool.Isolation, c.Pool.MaxConnections = isolation, 0 }},
	})
}

// as is a context whose calls carry metadata, given as name and value in turn.
func as(ctx context.Context, metadata ...string) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	for pair := range slices.Chunk(metadata, 2) {
		info.RequestHeader().Add(pair[0], pair[1])
	}
	return ctx
}

// sessionsOf returns the sessions that the calls of a tool went to, in order.
func sessionsOf(server *mcptest.Server) (sessions []string) {
	for _, e := range server.Entries("tools/call") {
		sessions = append(sessions, e.Session)
	}
	return sessions
}

func distinct(list []string) int {
	slices.Sort(list)
	return len(slices.Compact(list))
}

func TestFault11TwoCallersNeverShareASession(t *testing.T) {
	server := shop(mcptest.Legacy)
	b := isolating(t, server, targets.PerCaller)
	for _, protocol := range protocols() {
		client := b.tools(protocol)
		for _, user := range []string{"ann", "bob", "ann"} {
			if _, err := client.CallTool(as(t.Context(), userHeader, user), &pb.CallToolRequest{Name: "echo"}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := client.CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
		wantError(t, err, connect.CodeUnauthenticated, reasonCallerUnauthenticated, "shop")
	}
	seen := sessionsOf(server)
	if len(seen) != 3*len(protocols()) || seen[0] == seen[1] || server.Count("initialize") != 2 {
		t.Fatalf("%d sessions for two callers: %q", server.Count("initialize"), seen)
	}
	for i, session := range seen {
		if want := seen[map[bool]int{true: 1, false: 0}[i%3 == 1]]; session != want {
			t.Errorf("call %d went to session %q, want %q", i, session, want)
		}
	}
}

func TestCallsWithOneAffinityOfOneCallerShareASession(t *testing.T) {
	server := shop(mcptest.Legacy)
	b := isolating(t, server, targets.PerKey)
	client := b.tools(overGRPC)
	for _, call := range []context.Context{
		as(t.Context(), HeaderAffinity, "k1"),
		as(t.Context(), HeaderAffinity, "k2"),
		as(t.Context(), HeaderAffinity, "k1"),
		as(t.Context(), HeaderAffinity, "k1", userHeader, "ann"),
		as(t.Context(), HeaderAffinity, "k1", userHeader, "bob"),
		as(t.Context(), HeaderAffinity, "k1", userHeader, "ann"),
	} {
		if _, err := client.CallTool(call, &pb.CallToolRequest{Name: "echo"}); err != nil {
			t.Fatal(err)
		}
	}
	seen := sessionsOf(server)
	if seen[0] != seen[2] || seen[3] != seen[5] || distinct(seen) != 4 {
		t.Errorf("sessions %q", sessionsOf(server))
	}
	got, err := b.healthService(overGRPC).GetTarget(t.Context(), &pb.GetTargetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	target := got.GetTarget()
	if target.GetIsolation() != pb.Isolation_ISOLATION_PER_KEY || target.GetPool().GetKeys() != 4 || target.GetPool().GetMaxConnections() != 256 {
		t.Errorf("described as %v", target)
	}
}

func TestAffinityMetadataIsChecked(t *testing.T) {
	b := isolating(t, shop(mcptest.Legacy), targets.PerKey)
	for _, protocol := range protocols() {
		client := b.tools(protocol)
		for name, c := range map[string]struct {
			metadata []string
			reason   reason
		}{
			"absent":      {nil, reasonAffinityRequired},
			"empty":       {[]string{HeaderAffinity, ""}, reasonInvalidParams},
			"with spaces": {[]string{HeaderAffinity, "a b"}, reasonInvalidParams},
			"too long":    {[]string{HeaderAffinity, strings.Repeat("k", maxAffinity+1)}, reasonInvalidParams},
			"twice":       {[]string{HeaderAffinity, "a", HeaderAffinity, "b"}, reasonInvalidParams},
		} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				_, err := client.CallTool(as(t.Context(), c.metadata...), &pb.CallToolRequest{Name: "echo"})
				wantError(t, err, connect.CodeInvalidArgument, c.reason, HeaderAffinity)
				violations := detail[*errdetails.BadRequest](t, err).GetFieldViolations()
				if len(violations) != 1 || violations[0].GetField() != HeaderAffinity {
					t.Errorf("violations %v", violations)
				}
			})
		}
		for _, key := range []string{"!", "~", strings.Repeat("k", maxAffinity)} {
			if _, err := client.CallTool(as(t.Context(), HeaderAffinity, key), &pb.CallToolRequest{Name: "echo"}); err != nil {
				t.Errorf("%s: %q: %v", protocol, key, err)
			}
		}
	}
	if validAffinity("\x7f") || validAffinity("ü") || validAffinity("a\tb") {
		t.Error("what is not visible ASCII is taken for a key")
	}
}

func TestAffinityIsLookedAtOnlyWhereItMatters(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{
		"all":   {server: shop(mcptest.Legacy)},
		"keyed": {server: shop(mcptest.Legacy), change: func(c *config.Target) { c.Pool.Isolation = config.IsolationPerKey }},
	})
	client := b.tools(overGRPC)
	if _, err := client.CallTool(as(t.Context(), HeaderAffinity, "not valid"), &pb.CallToolRequest{Target: "all", Name: "echo"}); err != nil {
		t.Error(err)
	}
	list, err := client.ListTools(t.Context(), &pb.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if bad := list.GetUnreachable(); len(list.GetTools()) != 2 || len(bad) != 1 || bad[0].GetTarget() != "keyed" || bad[0].GetReason() != string(reasonAffinityRequired) || bad[0].GetCode() != int32(connect.CodeInvalidArgument) {
		t.Errorf("%d tools, unreachable %v", len(list.GetTools()), bad)
	}
	list, err = client.ListTools(as(t.Context(), HeaderAffinity, "k"), &pb.ListToolsRequest{})
	if err != nil || len(list.GetTools()) != 4 || len(list.GetUnreachable()) != 0 {
		t.Errorf("with a key: %v, %v", list, err)
	}
}

func TestAnswersOfTargetsThatKeepCallersApartArePrivate(t *testing.T) {
	for isolation, want := range map[targets.Isolation]string{
		targets.Shared: "public", targets.PerKey: "private", targets.PerCaller: "private", targets.PerCall: "private",
	} {
		server := shop(mcptest.Modern)
		server.TTLMs, server.CacheScope, server.ManyClients = 60_000, "public", true
		b := isolating(t, server, isolation)
		for _, path := range []string{
			"/mcpbridge.v1.ToolsService/ListTools?encoding=json&message=" + url.QueryEscape(`{}`),
			"/mcpbridge.v1.PromptsService/GetPrompt?encoding=json&message=" + url.QueryEscape(`{"name":"greet"}`),
			"/mcpbridge.v1.ResourcesService/ReadResource?encoding=json&message=" + url.QueryEscape(`{"uri":"file:///a.txt"}`),
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(HeaderAffinity, "k")
			req.Header.Set(userHeader, "ann")
			res, body := do(t, req)
			wanted := want + ", max-age="
			if strings.Contains(path, "GetPrompt") { // which never says how long it stays true
				if wanted = want; isolation == targets.Shared {
					continue
				}
			}
			got := res.Header
			if res.StatusCode != http.StatusOK || !strings.HasPrefix(got.Get("Cache-Control"), wanted) || !strings.Contains(got.Get("Vary"), "Mcp-Bridge-Affinity") {
				t.Errorf("%s %s: %s, %q, Vary %q: %s", isolation, path, res.Status, got.Get("Cache-Control"), got.Get("Vary"), body)
			}
		}
	}
}

package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// manyTools is a server with n tools named prefix0, prefix1…
func manyTools(prefix string, n int) *mcptest.Server {
	server := &mcptest.Server{PageSize: 7, TTLMs: 60_000}
	for i := range n {
		server.Tools = append(server.Tools, mcptest.Tool{Name: fmt.Sprintf("%s%d", prefix, i)})
	}
	return server
}

// readAllTools follows the pages to the end.
func readAllTools(t *testing.T, b *bridge, protocol, target string, size int32) (names []string, pages int, first *pb.ListToolsResponse) {
	t.Helper()
	client := b.tools(protocol)
	token := ""
	for {
		page, err := client.ListTools(t.Context(), &pb.ListToolsRequest{Target: target, PageSize: size, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if first == nil {
			first = page
		} else if len(page.GetUnreachable()) > 0 || len(page.GetExcluded()) > 0 {
			t.Errorf("page %d repeats what belongs on the first: %v", pages, page)
		}
		for _, tool := range page.GetTools() {
			names = append(names, tool.GetTarget()+"/"+tool.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			return names, pages, first
		}
	}
}

func TestPagesAcrossTargets(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{
		"b": {server: manyTools("x", 12)}, "a": {server: manyTools("y", 9)}, "c": {server: &mcptest.Server{}},
	}).ready()
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprintf("a/y%d", i))
	}
	for i := range 12 {
		want = append(want, fmt.Sprintf("b/x%d", i))
	}
	for _, protocol := range protocols() {
		for size, wantPages := range map[int32]int{0: 1, 1: 21, 4: 6, 21: 1, 20: 2, 5000: 1} {
			names, pages, first := readAllTools(t, b, protocol, "", size)
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("%s, page_size %d (-want +got):\n%s", protocol, size, diff)
			}
			if pages != wantPages {
				t.Errorf("%s, page_size %d: %d pages, want %d", protocol, size, pages, wantPages)
			}
			if len(first.GetUnreachable()) > 0 {
				t.Errorf("a target without tools counts as unreachable: %v", first.GetUnreachable())
			}
		}
	}
	names, _, _ := readAllTools(t, b, overGRPC, "a", 4)
	if diff := cmp.Diff(want[:9], names); diff != "" {
		t.Errorf("one target (-want +got):\n%s", diff)
	}
}

func TestAPageHoldsAtMostAThousand(t *testing.T) {
	server := manyTools("x", 1203)
	server.PageSize = 0
	b := one(t, server)
	for size, want := range map[int32]int{0: 500, 1200: 1000, 1 << 30: 1000} {
		page, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{PageSize: size})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.GetTools()) != want || page.GetNextPageToken() == "" {
			t.Errorf("page_size %d: %d tools, token %q; want %d and a token", size, len(page.GetTools()), page.GetNextPageToken(), want)
		}
	}
	_, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{PageSize: -1})
	wantError(t, err, connect.CodeInvalidArgument, reasonInvalidParams, "page_size")
}

func TestTokensOfOtherRequestsAreRefused(t *testing.T) {
	server := manyTools("x", 5)
	server.Resources = []mcptest.Resource{{URI: "file:///1", Name: "1"}, {URI: "file:///2", Name: "2"}}
	b := start(t, Options{}, map[string]targetConfig{"a": {server: server}, "b": {server: manyTools("x", 5)}})
	client := b.tools(overGRPC)
	page, err := client.ListTools(t.Context(), &pb.ListToolsRequest{Target: "a", PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	token := page.GetNextPageToken()
	for name, c := range map[string]struct {
		target, token, names string
	}{
		"another target": {"b", token, "another request"},
		"all targets":    {"", token, "another request"},
		"not a token":    {"a", "abc", "not one that the bridge gave out"},
		"a cut token":    {"a", token[:len(token)-2], "not one that the bridge gave out"},
		"a longer token": {"a", token + "AA", "not one that the bridge gave out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.ListTools(t.Context(), &pb.ListToolsRequest{Target: c.target, PageToken: c.token})
			wantError(t, err, connect.CodeInvalidArgument, reasonPageTokenInvalid, "page_token", c.names, "start again")
		})
	}
	_, err = b.resources(overGRPC).ListResources(t.Context(), &pb.ListResourcesRequest{Target: "a", PageToken: token})
	wantError(t, err, connect.CodeInvalidArgument, reasonPageTokenInvalid, "another list method")
	if _, err := client.ListTools(t.Context(), &pb.ListToolsRequest{Target: "a", PageSize: 3, PageToken: token}); err != nil {
		t.Errorf("another page_size: %v", err)
	}
}

func TestAChangedListInvalidatesTheToken(t *testing.T) {
	server := &mcptest.Server{Era: mcptest.Modern, Capabilities: `{"tools":{}}`}
	server.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Sequence(
		mcptest.Respond(mcptest.Raw(`{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}],"ttlMs":0}`)),
		mcptest.Respond(mcptest.Raw(`{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"c","inputSchema":{"type":"object"}}],"ttlMs":0}`)),
	)}
	b := one(t, server)
	page, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{PageSize: 1, PageToken: page.GetNextPageToken()})
	wantError(t, err, connect.CodeInvalidArgument, reasonPageTokenInvalid, "changed", "start again")
}

func TestUnreachableTargetsStandBesideTheRest(t *testing.T) {
	silent := manyTools("z", 2)
	silent.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Silence()}
	broken := manyTools("w", 2)
	broken.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Fail(-32603, "database is down", nil, 0)}
	b := start(t, Options{ListBudget: 200 * time.Millisecond}, map[string]targetConfig{
		"a": {server: manyTools("x", 3)}, "dead": {url: deadURL}, "silent": {server: silent}, "broken": {server: broken}, "z": {server: manyTools("y", 3)},
	}).connected("a").connected("z").connected("silent").connected("broken")
	names, pages, first := readAllTools(t, b, overGRPC, "", 2)
	if diff := cmp.Diff([]string{"a/x0", "a/x1", "a/x2", "z/y0", "z/y1", "z/y2"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if pages != 3 {
		t.Errorf("%d pages, want 3", pages)
	}
	got := map[string]string{}
	for _, e := range first.GetUnreachable() {
		got[e.GetTarget()] = fmt.Sprintf("%v %s", connect.Code(e.GetCode()), e.GetReason())
		if !strings.Contains(e.GetMessage(), `"`+e.GetTarget()+`"`) {
			t.Errorf("message %q does not name target %s", e.GetMessage(), e.GetTarget())
		}
	}
	want := map[string]string{"dead": "unavailable TARGET_UNAVAILABLE", "silent": "deadline_exceeded TIMEOUT", "broken": "internal UPSTREAM_INTERNAL"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unreachable (-want +got):\n%s", diff)
	}
	for _, e := range first.GetUnreachable() {
		if e.GetTarget() == "silent" && !strings.Contains(e.GetMessage(), "within 200ms") {
			t.Errorf("message %q does not name the time", e.GetMessage())
		}
	}
}

func TestANamedTargetsErrorIsTheCallsError(t *testing.T) {
	broken := manyTools("w", 2)
	broken.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Fail(-32603, "database is down", nil, 0)}
	b := start(t, Options{}, map[string]targetConfig{"a": {server: manyTools("x", 3)}, "broken": {server: broken}})
	_, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{Target: "broken"})
	wantError(t, err, connect.CodeInternal, reasonUpstreamInternal, `"broken"`, "database is down")
	_, err = b.prompts(overGRPC).ListPrompts(t.Context(), &pb.ListPromptsRequest{Target: "a"})
	wantError(t, err, connect.CodeUnimplemented, reasonMethodNotSupported, `"a"`)
	_, err = b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{Target: "nope"})
	wantError(t, err, connect.CodeNotFound, reasonTargetNotFound, `"nope"`)
	only := one(t, broken2())
	_, err = only.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{})
	wantError(t, err, connect.CodeInternal, reasonUpstreamInternal, `"shop"`)
}

func broken2() *mcptest.Server {
	server := manyTools("w", 2)
	server.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Fail(-32603, "database is down", nil, 0)}
	return server
}

func TestANearDeadlineStillBringsTheTargetsThatAnswered(t *testing.T) {
	silent := manyTools("z", 2)
	silent.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Silence()}
	b := start(t, Options{}, map[string]targetConfig{"a": {server: manyTools("x", 3)}, "silent": {server: silent}}).ready()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	page, err := b.tools(overGRPC).ListTools(ctx, &pb.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.GetTools()) != 3 || len(page.GetUnreachable()) != 1 || page.GetUnreachable()[0].GetTarget() != "silent" {
		t.Errorf("got %v, want the tools of a and silent as unreachable", page)
	}
}

func TestATokenWhoseTargetFellSilentIsRefused(t *testing.T) {
	flaky := manyTools("z", 4)
	flaky.TTLMs, flaky.PageSize = 0, 0
	flaky.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Sequence(nil, mcptest.Fail(-32603, "down", nil, 0))}
	b := start(t, Options{}, map[string]targetConfig{"a": {server: manyTools("x", 1)}, "flaky": {server: flaky}}).ready()
	page, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{PageSize: 2, PageToken: page.GetNextPageToken()})
	wantError(t, err, connect.CodeInvalidArgument, reasonPageTokenInvalid, `"flaky"`, "start again")
}

func TestExcludedToolsAreReported(t *testing.T) {
	server := manyTools("x", 1)
	server.Tools = append(server.Tools, mcptest.Tool{Name: "odd", InputSchema: `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"bad name"}}}`})
	b := one(t, server)
	page, err := b.tools(overGRPC).ListTools(t.Context(), &pb.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.GetTools()) != 1 || len(page.GetExcluded()) != 1 || page.GetExcluded()[0].GetName() != "odd" || page.GetExcluded()[0].GetTarget() != "shop" || page.GetExcluded()[0].GetReason() == "" {
		t.Errorf("got %v, want odd among the excluded", page)
	}
}

func TestResourcesTemplatesAndPromptsAreListed(t *testing.T) {
	b := start(t, Options{}, map[string]targetConfig{"a": {server: shop(mcptest.Modern)}, "b": {server: shop(mcptest.Legacy)}}).ready()
	resources, err := b.resources(overGRPC).ListResources(t.Context(), &pb.ListResourcesRequest{})
	if err != nil || len(resources.GetResources()) != 2 || resources.GetResources()[1].GetTarget() != "b" || resources.GetResources()[0].GetUri() != "file:///a.txt" {
		t.Errorf("resources %v, %v", resources, err)
	}
	templates, err := b.resources(overGRPC).ListResourceTemplates(t.Context(), &pb.ListResourceTemplatesRequest{})
	if err != nil || len(templates.GetResourceTemplates()) != 2 || templates.GetResourceTemplates()[0].GetUriTemplate() != "db:///{id}" || templates.GetResourceTemplates()[0].GetTarget() != "a" {
		t.Errorf("templates %v, %v", templates, err)
	}
	prompts, err := b.prompts(overGRPC).ListPrompts(t.Context(), &pb.ListPromptsRequest{})
	if err != nil || len(prompts.GetPrompts()) != 2 || prompts.GetPrompts()[1].GetName() != "greet" || prompts.GetPrompts()[1].GetTarget() != "b" {
		t.Errorf("prompts %v, %v", prompts, err)
	}
}

// cacheControl is the header of a Connect GET.
func cacheControl(t *testing.T, b *bridge, procedure, message string) string {
	t.Helper()
	res, body := get(t, b.url+procedure+"?encoding=json&message="+url.QueryEscape(message))
	if res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s %s: %s %s", procedure, message, res.Status, body)
	}
	return res.Header.Get("Cache-Control")
}

func TestCacheControlOfLists(t *testing.T) {
	const tools = "/mcpbridge.v1.ToolsService/ListTools"
	list := func(ttl int64, scope string) targetConfig {
		server := manyTools("x", 2)
		server.TTLMs, server.CacheScope = ttl, scope
		return targetConfig{server: server}
	}
	for name, c := range map[string]struct {
		targets map[string]targetConfig
		want    string // pattern
	}{
		"public":                  {map[string]targetConfig{"a": list(60_000, "public")}, `^public, max-age=(60|59|58)$`},
		"private":                 {map[string]targetConfig{"a": list(60_000, "private")}, `^private, max-age=(60|59|58)$`},
		"no time":                 {map[string]targetConfig{"a": list(0, "public")}, `^$`},
		"smallest and strictest":  {map[string]targetConfig{"a": list(600_000, "private"), "b": list(90_000, "public")}, `^private, max-age=(90|89|88)$`},
		"one without time":        {map[string]targetConfig{"a": list(600_000, "public"), "b": list(0, "public")}, `^$`},
		"one unreachable":         {map[string]targetConfig{"a": list(600_000, "public"), "b": {url: deadURL}}, `^no-store$`},
		"one without the feature": {map[string]targetConfig{"a": list(60_000, "public"), "b": {server: &mcptest.Server{}}}, `^public, max-age=(60|59|58)$`},
		"legacy":                  {map[string]targetConfig{"a": {server: shop(mcptest.Legacy)}}, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, Options{}, c.targets)
			for targetName, target := range c.targets {
				if target.server != nil {
					b.connected(targetName)
				}
			}
			if got := cacheControl(t, b, tools, "{}"); !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("Cache-Control %q, want %s", got, c.want)
			}
		})
	}
}

func TestCacheControlOfReads(t *testing.T) {
	const read, prompt = "/mcpbridge.v1.ResourcesService/ReadResource", "/mcpbridge.v1.PromptsService/GetPrompt"
	answer := func(result string) *mcptest.Server {
		server := shop(mcptest.Modern)
		server.Handle = map[string]mcptest.Handler{"resources/read": mcptest.Respond(mcptest.Raw(result))}
		return server
	}
	const question = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"which?"}}},"requestState":"s"}`
	for name, c := range map[string]struct{ result, request, want string }{
		"public":        {`{"contents":[],"ttlMs":5000,"cacheScope":"public"}`, `{"uri":"a:"}`, "public, max-age=5"},
		"private":       {`{"contents":[],"ttlMs":5000,"cacheScope":"private"}`, `{"uri":"a:"}`, "private, max-age=5"},
		"below 1 s":     {`{"contents":[],"ttlMs":999,"cacheScope":"public"}`, `{"uri":"a:"}`, ""},
		"endless":       {`{"contents":[],"ttlMs":9000000000000000,"cacheScope":"public"}`, `{"uri":"a:"}`, "public, max-age=31536000"},
		"question":      {question, `{"uri":"a:"}`, "no-store"},
		"request state": {`{"contents":[],"ttlMs":5000,"cacheScope":"public"}`, `{"uri":"a:","requestState":""}`, "no-store"},
		"answers":       {`{"contents":[],"ttlMs":5000,"cacheScope":"public"}`, `{"uri":"a:","inputResponses":{"q":{"resultJson":"{}"}}}`, "no-store"},
	} {
		t.Run(name, func(t *testing.T) {
			b := one(t, answer(c.result))
			if got := cacheControl(t, b, read, c.request); got != c.want {
				t.Errorf("Cache-Control %q, want %q", got, c.want)
			}
		})
	}
	b := one(t, shop(mcptest.Modern))
	if got := cacheControl(t, b, prompt, `{"name":"greet"}`); got != "" {
		t.Errorf("prompt: Cache-Control %q, want none", got)
	}
	if got := cacheControl(t, b, prompt, `{"name":"greet","requestState":"s"}`); got != "no-store" {
		t.Errorf("prompt with request_state: Cache-Control %q, want no-store", got)
	}
	res, body := post(t, b.url+"/mcpbridge.v1.ToolsService/ListTools", "application/json", "{}")
	if res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != "" {
		t.Errorf("POST: %s %q %s", res.Status, res.Header.Get("Cache-Control"), body)
	}
}

func TestCallsThatChangeSomethingHaveNoGet(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	res, _ := get(t, b.url+"/mcpbridge.v1.ToolsService/CallTool?encoding=json&message="+url.QueryEscape(`{"name":"echo"}`))
	if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "POST" {
		t.Errorf("%s, Allow %q; want 405 and POST", res.Status, res.Header.Get("Allow"))
	}
}

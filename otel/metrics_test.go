package bridgeotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

const operation = "mcp_client_operation_duration_seconds"

// Labels that say where the server is, the same on every line of a target.
var whereLabels = []string{"mcpbridge_target", "network_transport", "network_protocol_name", "server_address", "server_port"}

func TestOperationsAreMeasuredByTheConventions(t *testing.T) {
	m := measuring(t)
	measured := m.Target("weather")
	rpc := func(code int64) error {
		return &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: &jsonrpc.Error{Code: code}}
	}
	for _, tt := range []struct {
		call   mcpclient.Call
		result *mcpclient.Result
		err    error
		want   string
	}{
		{mcpclient.Call{Method: "tools/list"}, &mcpclient.Result{}, nil, `mcp_method_name="tools/list" 1`},
		{mcpclient.Call{Method: "notifications/cancelled"}, nil, nil, `mcp_method_name="notifications/cancelled" 1`},
		{mcpclient.Call{Method: "resources/read", Name: "file:///secret", ProtocolVersion: "2026-07-28"}, nil, context.Canceled, `error_type="canceled" mcp_method_name="resources/read" mcp_protocol_version="2026-07-28" 1`},
		{mcpclient.Call{Method: "tools/call", Name: "x"}, &mcpclient.Result{IsError: true}, nil, `error_type="tool_error" gen_ai_operation_name="execute_tool" gen_ai_tool_name="_OTHER" mcp_method_name="tools/call" 1`},
		{mcpclient.Call{Method: "tools/call", Name: "x"}, nil, rpc(-32602), `error_type="-32602" gen_ai_operation_name="execute_tool" gen_ai_tool_name="_OTHER" mcp_method_name="tools/call" rpc_response_status_code="-32602" 1`},
		{mcpclient.Call{Method: "ping"}, nil, rpc(4711), `error_type="_OTHER" mcp_method_name="ping" rpc_response_status_code="_OTHER" 1`},
		{mcpclient.Call{Method: "prompts/get", Name: "y"}, nil, &mcpclient.Error{Kind: mcpclient.KindTimeout}, `error_type="timeout" gen_ai_prompt_name="_OTHER" mcp_method_name="prompts/get" 1`},
		{mcpclient.Call{Method: "completion/complete"}, nil, &mcpclient.Error{Kind: mcpclient.KindLost}, `error_type="lost" mcp_method_name="completion/complete" 1`},
		{mcpclient.Call{Method: "logging/setLevel"}, nil, errors.New("boom"), `error_type="_OTHER" mcp_method_name="logging/setLevel" 1`},
	} {
		tt.call.Transport, tt.call.Endpoint = "streamable_http", "mcp.example:8443"
		before := series(scrape(t, m, ""), operation+"_count", whereLabels...)
		result, err := measured.Interceptor()(t.Context(), &tt.call, answer(tt.result, tt.err))
		if result != tt.result || err != tt.err { //nolint:errorlint // it must be the same
			t.Errorf("%s: the outcome became %v, %v", tt.call.Method, result, err)
		}
		after := series(scrape(t, m, ""), operation+"_count", whereLabels...)
		if diff := cmp.Diff([]string{tt.want}, without(after, before)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.call.Method, diff)
		}
	}
	text := scrape(t, m, "")
	for _, want := range []string{
		`mcpbridge_target="weather"`, `network_transport="tcp"`, `network_protocol_name="http"`, `server_address="mcp.example"`, `server_port="8443"`, `le="300"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the scrape has no %s", want)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "otel_scope") {
		t.Errorf("the scrape has what does not belong there:\n%s", text)
	}
}

// without returns what is in the first list only.
func without(list, other []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return slices.Contains(other, s) })
}

func TestASubscriptionIsNoSlowCall(t *testing.T) {
	m := measuring(t)
	call := &mcpclient.Call{Method: "subscriptions/listen"}
	if _, err := m.Target("a").Interceptor()(t.Context(), call, answer(nil, nil)); err != nil {
		t.Fatal(err)
	}
	if got := series(scrape(t, m, ""), operation+"_count"); len(got) > 0 {
		t.Errorf("measured %v", got)
	}
}

func TestNamesAreThoseThatTheServerLists(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			m := measuring(t)
			s := anything(era)
			s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Respond(mcptest.Raw(`{"content":[]}`))}
			c := client(t, m.Target("a"), s, mcpclient.Options{})
			for i := range 200 {
				for _, name := range []string{"echo", fmt.Sprint("made-up-", i), strings.Repeat("x", 3000)} {
					if _, err := c.CallTool(t.Context(), name, nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait() // for the list that the first of them had read
			}
			tools := map[string]bool{}
			for _, line := range series(scrape(t, m, ""), operation+"_count", append(whereLabels, "mcp_protocol_version", "gen_ai_operation_name")...) {
				if name, ok := strings.CutPrefix(line, "gen_ai_tool_name="); ok {
					tools[strings.Fields(name)[0]] = true
				}
			}
			if diff := cmp.Diff(map[string]bool{`"_OTHER"`: true, `"echo"`: true}, tools); diff != "" {
				t.Errorf("era %v: tools (-want +got):\n%s", era, diff)
			}
		})
	}
}

func TestACatalogueIsAskedForOnceAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := measuring(t)
		s := anything(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"tools/call": mcptest.Respond(mcptest.Raw(`{"content":[]}`))}
		c := client(t, m.Target("a"), s, mcpclient.Options{Version: mcpclient.VersionOptions{Pin: mcpclient.Version20250618}})
		for range 180 { // three minutes
			if _, err := c.CallTool(t.Context(), "unlisted", nil, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := s.Count("tools/list"); got != 3 {
			t.Errorf("%d lists were read, want 3", got)
		}
	})
}

func TestAFailedNameIsNoReasonToAskForTheCatalogue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := measuring(t)
		s := anything(mcptest.Legacy)
		c := client(t, m.Target("a"), s, mcpclient.Options{Version: mcpclient.VersionOptions{Pin: mcpclient.Version20250618}})
		if _, err := c.CallTool(t.Context(), "nope", nil, nil); err == nil {
			t.Fatal("no error")
		}
		if _, err := c.CallTool(t.Context(), "fail", nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := s.Count("tools/list"); got != 0 {
			t.Errorf("%d lists were read", got)
		}
	})
}

func TestSessionsOfLegacyServersAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := measuring(t)
		s := anything(mcptest.Legacy)
		c := client(t, m.Target("old"), s, mcpclient.Options{Health: mcpclient.HealthOptions{Disabled: true}})
		modern := client(t, m.Target("new"), anything(mcptest.Modern), mcpclient.Options{})
		for _, each := range []*mcpclient.Client{c, modern} {
			if err := each.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(90 * time.Second)
		s.ExpireSessions()
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for _, each := range []*mcpclient.Client{c, modern} {
			if err := each.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{
			`error_type="unavailable" mcp_protocol_version="2025-11-25" mcpbridge_target="old" network_protocol_name="http" network_transport="tcp" server_address="mcptest.invalid" 90`,
			`mcp_protocol_version="2025-11-25" mcpbridge_target="old" network_protocol_name="http" network_transport="tcp" server_address="mcptest.invalid" 10`,
		}
		if diff := cmp.Diff(want, series(scrape(t, m, ""), "mcp_client_session_duration_seconds_sum")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestExemplarsNameTheTrace(t *testing.T) {
	m := measuring(t)
	tel, recorder := recording(t, sdktrace.AlwaysSample())
	inner := m.Target("a").Interceptor()
	_, err := tel.Target(TargetOptions{}).Interceptor()(t.Context(), toolCall("x"), func(ctx context.Context, call *mcpclient.Call) (*mcpclient.Result, error) {
		return inner(ctx, call, answer(nil, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	span := recorder.Ended()[0].SpanContext()
	want := fmt.Sprintf(`span_id="%s",trace_id="%s"`, span.SpanID(), span.TraceID())
	if text := scrape(t, m, "application/openmetrics-text;version=1.0.0"); !strings.Contains(text, want) && !strings.Contains(text, fmt.Sprintf(`trace_id="%s",span_id="%s"`, span.TraceID(), span.SpanID())) {
		t.Errorf("no exemplar {%s} in\n%s", want, text)
	}
	if text := scrape(t, m, ""); strings.Contains(text, "trace_id") {
		t.Error("the plain format has exemplars, which it does not know")
	}
}

func TestMeasuringAllocatesLittle(t *testing.T) {
	measured := measuring(t).Target("a")
	intercept, next, call, ctx := measured.Interceptor(), answer(&mcpclient.Result{}, nil), toolCall("x"), t.Context()
	measured.relisted.Store(time.Now().UnixNano()) // there is no client to ask
	if got := testing.AllocsPerRun(1000, func() { _, _ = intercept(ctx, call, next) }); got > 1 {
		t.Errorf("%v allocations, want at most 1", got)
	}
}

func TestNothingIsMeasuredUnlessAskedFor(t *testing.T) {
	for name, o := range map[string]MetricsOptions{
		"by default":   {Getenv: environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")},
		"none":         {Getenv: environment("OTEL_METRICS_EXPORTER", "none")},
		"SDK disabled": {Prometheus: true, Getenv: environment("OTEL_SDK_DISABLED", "true", "OTEL_METRICS_EXPORTER", "otlp")},
	} {
		m, err := SetupMetrics(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		measured := m.Target("a")
		if m.Enabled() || m.Handler() != nil || measured.OnList() != nil || measured.OnSessionEnd() != nil {
			t.Errorf("%s: something is measured", name)
		}
		intercept, next, call, ctx := measured.Interceptor(), answer(nil, nil), toolCall("x"), t.Context()
		if got := testing.AllocsPerRun(100, func() {
			_, _ = intercept(ctx, call, next)
			m.RPCEnded(ctx, "/a/b", "a", "TIMEOUT")
		}); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
		if err := errors.Join(m.ObserveTargets(nil), m.ObserveSpans(nil), m.Shutdown(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkMeasuredCall(b *testing.B) {
	measured := measuring(b).Target("a")
	measured.relisted.Store(time.Now().UnixNano())
	intercept, next, call, ctx := measured.Interceptor(), answer(&mcpclient.Result{}, nil), toolCall("x"), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = intercept(ctx, call, next)
	}
}

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// detail returns the detail of type T of an RPC error; nil when it has none.
func detail[T proto.Message](t *testing.T, err error) (found T) {
	t.Helper()
	rpc, ok := errors.AsType[*connect.Error](err)
	if !ok {
		t.Fatalf("%T %v is not an RPC error", err, err)
	}
	for _, d := range rpc.Details() {
		message, err := connectproto.UnmarshalErrorDetail(d)
		if err != nil {
			t.Fatal(err)
		}
		if typed, ok := message.(T); ok {
			return typed
		}
	}
	return found
}

// wantError checks code, reason and what the message names.
func wantError(t *testing.T, err error, code connect.Code, want reason, names ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %v %s", code, want)
	}
	if connect.CodeOf(err) != code {
		t.Errorf("code %v, want %v (%v)", connect.CodeOf(err), code, err)
	}
	info := detail[*errdetails.ErrorInfo](t, err)
	if info.GetReason() != string(want) || info.GetDomain() != "mcpbridge" {
		t.Errorf("ErrorInfo is %s %s, want mcpbridge %s", info.GetDomain(), info.GetReason(), want)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("message %q does not name %q", err.Error(), name)
		}
	}
}

func TestEveryRowOfTheErrorContract(t *testing.T) {
	rpcError := func(code int64, data string) error {
		e := &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: &jsonrpc.Error{Code: code, Message: "no luck"}}
		if data != "" {
			e.RPC.Data = []byte(data)
		}
		return e
	}
	client := func(kind mcpclient.Kind, change ...func(*mcpclient.Error)) error {
		e := &mcpclient.Error{Kind: kind, Message: "authored text", Err: errors.New("secret cause")}
		for _, f := range change {
			f(e)
		}
		return fmt.Errorf("wrapped: %w", e)
	}
	status := func(n int) func(*mcpclient.Error) { return func(e *mcpclient.Error) { e.Status = n } }
	retryAfter := func(e *mcpclient.Error) { e.RetryAfter = 7 * time.Second }
	const (
		call = "tools/call"
		read = "resources/read"
		get  = "prompts/get"
	)
	for _, c := range []struct {
		name   string
		err    error
		scope  scope
		code   connect.Code
		reason reason
		retry  time.Duration
		names  []string
	}{
		{"unknown target", &targets.NotFoundError{Name: "shop"}, scope{}, connect.CodeNotFound, reasonTargetNotFound, 0, []string{`"shop"`, "ListTargets"}},
		{"target not named", targets.ErrRequired, scope{}, connect.CodeInvalidArgument, reasonTargetRequired, 0, []string{"target", "ListTargets"}},
		{"target down", client(mcpclient.KindUnavailable, retryAfter), scope{method: call}, connect.CodeUnavailable, reasonTargetUnavailable, 7 * time.Second, []string{"authored text"}},
		{"target down, time unknown", client(mcpclient.KindUnavailable), scope{method: call}, connect.CodeUnavailable, reasonTargetUnavailable, time.Second, nil},
		{"target given up", client(mcpclient.KindUnavailable, func(e *mcpclient.Error) { e.RetryAfter = mcpclient.NeverAgain }), scope{method: call}, connect.CodeUnavailable, reasonTargetUnavailable, 0, nil},
		{"task cancelled at the server", client(mcpclient.KindTask), scope{method: call}, connect.CodeUnknown, reasonMCPError, 0, []string{"authored text"}},
		{"task unknown to the server", &mcpclient.Error{Kind: mcpclient.KindRPC, Method: "tasks/get", Sent: true, RPC: &jsonrpc.Error{Code: -32602, Message: "no such task"}}, scope{method: call}, connect.CodeNotFound, reasonTaskNotFound, 0, []string{"no such task"}},
		{"list too large", client(mcpclient.KindTooLarge, func(e *mcpclient.Error) {
			e.Method, e.Message = "tools/list", "the server's list is larger than 100 bytes over all pages"
		}), scope{method: "tools/list"}, connect.CodeResourceExhausted, reasonTooLarge, 0, []string{"max_list_bytes"}},
		{"target down after the call was sent", client(mcpclient.KindUnavailable, func(e *mcpclient.Error) { e.Sent = true }), scope{method: call}, connect.CodeUnknown, reasonOutcomeUnknown, 0, []string{"authored text", "not known"}},
		{"session gone, so the call did not start", client(mcpclient.KindUnavailable, func(e *mcpclient.Error) { e.Sent, e.SafeToRetry = true, true }), scope{method: call}, connect.CodeUnavailable, reasonTargetUnavailable, time.Second, nil},
		{"target closed after the call was sent", client(mcpclient.KindClosed, func(e *mcpclient.Error) { e.Sent = true }), scope{method: call}, connect.CodeUnknown, reasonOutcomeUnknown, 0, []string{"not known"}},
		{"target closed after the read was sent", client(mcpclient.KindClosed, func(e *mcpclient.Error) { e.Sent = true }), scope{method: read}, connect.CodeUnavailable, reasonConnectionLost, time.Second, nil},
		{"target closed", client(mcpclient.KindClosed), scope{method: call}, connect.CodeUnavailable, reasonTargetUnavailable, time.Second, nil},
		{"lost tool call", client(mcpclient.KindLost), scope{method: call}, connect.CodeUnknown, reasonOutcomeUnknown, 0, []string{"authored text", "not known"}},
		{"lost tool call that did not start", client(mcpclient.KindLost, func(e *mcpclient.Error) { e.SafeToRetry = true }), scope{method: call}, connect.CodeUnavailable, reasonConnectionLost, time.Second, nil},
		{"lost read", client(mcpclient.KindLost), scope{method: read}, connect.CodeUnavailable, reasonConnectionLost, time.Second, nil},
		{"queue full", client(mcpclient.KindOverloaded), scope{method: call}, connect.CodeResourceExhausted, reasonOverloaded, time.Second, nil},
		{"upstream 429", client(mcpclient.KindRateLimited, retryAfter), scope{method: call}, connect.CodeResourceExhausted, reasonUpstreamRateLimited, 7 * time.Second, nil},
		{"caller's rate", &failure{reason: reasonRateLimited, message: "slow down", retry: time.Minute}, scope{}, connect.CodeResourceExhausted, reasonRateLimited, time.Minute, []string{"slow down"}},
		{"reply too large", client(mcpclient.KindTooLarge), scope{method: call, target: "shop"}, connect.CodeResourceExhausted, reasonTooLarge, 0, []string{"targets.shop.max_reply_bytes"}},
		{"timeout", client(mcpclient.KindTimeout), scope{method: call}, connect.CodeDeadlineExceeded, reasonTimeout, 0, []string{"authored text"}},
		{"bare deadline", context.DeadlineExceeded, scope{method: call}, connect.CodeDeadlineExceeded, reasonTimeout, 0, []string{"deadline"}},
		{"caller left", client(mcpclient.KindCanceled), scope{method: call}, connect.CodeCanceled, reasonCanceled, 0, nil},
		{"bare cancel", context.Canceled, scope{method: call}, connect.CodeCanceled, reasonCanceled, 0, nil},
		{"-32601", rpcError(-32601, ""), scope{method: call}, connect.CodeUnimplemented, reasonMethodNotSupported, 0, []string{"-32601"}},
		{"no capability", client(mcpclient.KindUnsupported), scope{method: get}, connect.CodeUnimplemented, reasonMethodNotSupported, 0, nil},
		{"-32002", rpcError(-32002, ""), scope{method: read, era: mcpclient.EraLegacy}, connect.CodeNotFound, reasonResourceNotFound, 0, nil},
		{"-32602 of a modern read", rpcError(-32602, ""), scope{method: read, era: mcpclient.EraModern}, connect.CodeNotFound, reasonResourceNotFound, 0, nil},
		{"-32602 of a legacy read", rpcError(-32602, ""), scope{method: read, era: mcpclient.EraLegacy}, connect.CodeInvalidArgument, reasonInvalidParams, 0, nil},
		{"-32602", rpcError(-32602, ""), scope{method: call, era: mcpclient.EraModern}, connect.CodeInvalidArgument, reasonInvalidParams, 0, []string{"no luck"}},
		{"refused here", client(mcpclient.KindInvalid), scope{method: call}, connect.CodeInvalidArgument, reasonInvalidParams, 0, nil},
		{"bad JSON", &convert.FieldError{Field: "arguments_json", Reason: convert.ReasonInvalidJSON, Description: "ends too early"}, scope{}, connect.CodeInvalidArgument, reasonJSONInvalid, 0, []string{"arguments_json", "ends too early"}},
		{"both set", &convert.FieldError{Field: "arguments_json", Reason: convert.ReasonBothSet, Description: "set one"}, scope{}, connect.CodeInvalidArgument, reasonInvalidParams, 0, []string{"arguments_json"}},
		{"page token", badToken("is stale"), scope{}, connect.CodeInvalidArgument, reasonPageTokenInvalid, 0, []string{"page_token", "start again"}},
		{"affinity", targets.ErrAffinityRequired, scope{}, connect.CodeInvalidArgument, reasonAffinityRequired, 0, []string{"mcp-bridge-affinity"}},
		{"-32021", rpcError(-32021, `{"requiredCapabilities":{"elicitation":{"url":{}},"sampling":{}}}`), scope{method: call}, connect.CodeFailedPrecondition, reasonCapabilityRequired, 0, []string{"elicitation (url), sampling", "client_capabilities"}},
		{"-32021 without data", rpcError(-32021, ""), scope{method: call}, connect.CodeFailedPrecondition, reasonCapabilityRequired, 0, []string{"client_capabilities"}},
		{"-32042", rpcError(-32042, `{"elicitations":[]}`), scope{method: call}, connect.CodeFailedPrecondition, reasonInputRequired, 0, []string{"client_capabilities.elicitation.url"}},
		{"-32022", rpcError(-32022, `{"supported":["2027-01-01","2026-07-28"],"requested":"x"}`), scope{method: call, target: "shop"}, connect.CodeFailedPrecondition, reasonProtocolVersion, 0, []string{"2027-01-01, 2026-07-28", "targets.shop.protocol_version"}},
		{"no mutual version", client(mcpclient.KindVersion), scope{method: call}, connect.CodeFailedPrecondition, reasonProtocolVersion, 0, nil},
		{"-32020", rpcError(-32020, ""), scope{method: call}, connect.CodeInternal, reasonUpstreamProtocol, 0, nil},
		{"-32700", rpcError(-32700, ""), scope{method: call}, connect.CodeInternal, reasonUpstreamProtocol, 0, nil},
		{"-32600", rpcError(-32600, ""), scope{method: call}, connect.CodeInternal, reasonUpstreamProtocol, 0, nil},
		{"-32603", rpcError(-32603, ""), scope{method: call}, connect.CodeInternal, reasonUpstreamInternal, 0, nil},
		{"malformed reply", client(mcpclient.KindProtocol), scope{method: call}, connect.CodeInternal, reasonUpstreamProtocol, 0, nil},
		{"401, caller's credential", client(mcpclient.KindUnauthorized, status(401)), scope{method: call, callerCredential: true}, connect.CodeUnauthenticated, reasonUpstreamAuth, 0, []string{"401"}},
		{"403, caller's credential", client(mcpclient.KindUnauthorized, status(403)), scope{method: call, callerCredential: true}, connect.CodePermissionDenied, reasonUpstreamAuth, 0, []string{"403"}},
		{"401, bridge's credential", client(mcpclient.KindUnauthorized, status(401)), scope{method: call, target: "shop"}, connect.CodeUnavailable, reasonUpstreamAuth, 0, []string{"targets.shop.headers", "401"}},
		{"caller not authenticated", targets.ErrCallerRequired, scope{target: "shop"}, connect.CodeUnauthenticated, reasonCallerUnauthenticated, 0, []string{"shop", "pool.isolation"}},
		{"caller denied", refuse(reasonPolicyDenied, "no"), scope{}, connect.CodePermissionDenied, reasonPolicyDenied, 0, nil},
		{"unknown task", refuse(reasonTaskNotFound, "gone"), scope{}, connect.CodeNotFound, reasonTaskNotFound, 0, nil},
		{"404 without JSON-RPC", client(mcpclient.KindHTTP, status(404)), scope{method: call}, connect.CodeInternal, reasonUpstreamHTTP, 0, nil},
		{"503 of a tool call", client(mcpclient.KindHTTP, status(503)), scope{method: call}, connect.CodeUnavailable, reasonUpstreamHTTP, 0, nil},
		{"503 of a read", client(mcpclient.KindHTTP, status(503), retryAfter), scope{method: read}, connect.CodeUnavailable, reasonUpstreamHTTP, 7 * time.Second, nil},
		{"other MCP code", rpcError(-31999, `{"a":1}`), scope{method: call}, connect.CodeUnknown, reasonMCPError, 0, []string{"-31999", "no luck"}},
		{"set of targets closed", targets.ErrClosed, scope{}, connect.CodeUnavailable, reasonTargetUnavailable, time.Second, []string{"shutting down"}},
		{"own failure", client(mcpclient.KindInternal), scope{method: call}, connect.CodeInternal, reasonInternal, 0, nil},
		{"any Go error", io.ErrShortWrite, scope{method: call}, connect.CodeInternal, reasonInternal, 0, []string{"log"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.scope.fail(t.Context(), c.err)
			wantError(t, err, c.code, c.reason, c.names...)
			for _, leak := range []string{"secret cause", "short write", "wrapped"} {
				if strings.Contains(err.Message(), leak) {
					t.Errorf("message %q leaks %q", err.Message(), leak)
				}
			}
			if got := detail[*errdetails.RetryInfo](t, err).GetRetryDelay().AsDuration(); got != c.retry {
				t.Errorf("RetryInfo %v, want %v", got, c.retry)
			}
			if !errors.Is(err, c.err) {
				if _, isRPC := errors.AsType[*mcpclient.Error](c.err); isRPC {
					t.Error("the cause is lost for the log")
				}
			}
		})
	}
}

func TestNamesThatTheCatalogueLacksAreNotFound(t *testing.T) {
	rpc := &jsonrpc.Error{Code: -32602, Message: "Unknown tool: a"}
	for r, list := range map[reason]string{
		reasonToolNotFound: "ListTools", reasonPromptNotFound: "ListPrompts", reasonResourceNotFound: "ListResources",
	} {
		s := scope{target: "shop", name: "a"}
		err := s.build(s.notFound(r, rpc, nil))
		wantError(t, err, connect.CodeNotFound, r, `"shop"`, `"a"`, list)
		if got := detail[*pb.JsonRpcError](t, err).GetCode(); got != -32602 {
			t.Errorf("JsonRpcError code %d, want -32602", got)
		}
	}
}

func TestDetailsCarryWhatTheServerSaid(t *testing.T) {
	s := scope{target: "shop", method: "tools/call", name: "buy", era: mcpclient.EraLegacy}
	err := s.fail(t.Context(), &mcpclient.Error{Kind: mcpclient.KindRPC, RPC: &jsonrpc.Error{Code: -31000, Message: "sold out", Data: []byte(`{"left":0}`)}})
	want := &errdetails.ErrorInfo{Reason: "MCP_ERROR", Domain: "mcpbridge", Metadata: map[string]string{
		"target": "shop", "method": "tools/call", "era": "legacy", "jsonrpc_code": "-31000",
	}}
	if got := detail[*errdetails.ErrorInfo](t, err); !proto.Equal(got, want) {
		t.Errorf("ErrorInfo %v, want %v", got, want)
	}
	wantRPC := &pb.JsonRpcError{Code: -31000, Message: "sold out", DataJson: new(`{"left":0}`)}
	if got := detail[*pb.JsonRpcError](t, err); !proto.Equal(got, wantRPC) {
		t.Errorf("JsonRpcError %v, want %v", got, wantRPC)
	}
	if got, want := err.Message(), `target "shop": tools/call "buy": the server answered with error -31000: "sold out"`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestBadRequestNamesTheField(t *testing.T) {
	err := scope{}.fail(t.Context(), &convert.FieldError{Field: "input_responses[\"a\"].error", Reason: convert.ReasonRefusal, Description: "not here"})
	got := detail[*errdetails.BadRequest](t, err).GetFieldViolations()
	want := []*errdetails.BadRequest_FieldViolation{{Field: "input_responses[\"a\"].error", Description: "not here", Reason: "ERROR_NOT_POSSIBLE"}}
	if diff := cmp.Diff(want, got, cmp.Comparer(proto.Equal)); diff != "" {
		t.Error(diff)
	}
}

func TestACallCutShortByTheShutdownSaysWhetherItMayHaveRun(t *testing.T) {
	forced, cancel := context.WithCancelCause(t.Context())
	cancel(errForced)
	left := func(sent bool) error { return &mcpclient.Error{Kind: mcpclient.KindCanceled, Sent: sent} }
	wantError(t, scope{method: "tools/call"}.fail(forced, left(true)), connect.CodeUnknown, reasonOutcomeUnknown, "shut down")
	wantError(t, scope{method: "tools/call"}.fail(forced, left(false)), connect.CodeUnavailable, reasonTargetUnavailable, "shutting down")
	wantError(t, scope{method: "resources/read"}.fail(forced, left(true)), connect.CodeUnavailable, reasonTargetUnavailable, "shutting down")
}

func TestRPCErrorsAuthoredHerePassAndForeignOnesDoNot(t *testing.T) {
	own := connect.NewError(connect.CodeAborted, "ours")
	if got := (scope{}).fail(t.Context(), own); got != own {
		t.Errorf("got %v, want the same error", got)
	}
	wantError(t, scope{}.fail(t.Context(), connect.NewError(connect.CodeAborted, "theirs").WithRemote()), connect.CodeInternal, reasonInternal)
}

// checkSize fails when an error is too large for trailers, or a cut text says
// nothing of it.
func checkSize(t *testing.T, err *connect.Error, rpc *jsonrpc.Error) {
	t.Helper()
	var messages []proto.Message
	for _, d := range err.Details() {
		message, unpackErr := connectproto.UnmarshalErrorDetail(d)
		if unpackErr != nil {
			t.Fatal(unpackErr)
		}
		messages = append(messages, message)
	}
	if size := encodedSize(err.Code(), err.Message(), messages); size >= maxErrorBytes {
		t.Errorf("the error takes %d bytes, want less than %d", size, maxErrorBytes)
	}
	if !utf8.ValidString(err.Message()) {
		t.Errorf("message %q is not valid UTF-8", err.Message())
	}
	if detail[*errdetails.ErrorInfo](t, err) == nil {
		t.Error("the error has no ErrorInfo")
	}
	if rpc == nil {
		return
	}
	got := detail[*pb.JsonRpcError](t, err)
	if got == nil {
		t.Fatal("the error has no JsonRpcError")
	}
	whole := got.GetMessage() == rpc.Message && (rpc.Data == nil || got.GetDataJson() == string(rpc.Data))
	if whole == got.GetDataTruncated() {
		t.Errorf("data_truncated is %v, but what the server said is whole: %v", got.GetDataTruncated(), whole)
	}
	if (rpc.Data == nil) != (got.DataJson == nil) {
		t.Errorf("data_json is set: %v, server sent data: %v", got.DataJson != nil, rpc.Data != nil)
	}
}

func FuzzErrorsFitIntoTrailers(f *testing.F) {
	f.Add("shop", "tools/call", "buy", "sold out", `{"left":0}`, "arguments", int64(-32000), uint8(3))
	f.Add(strings.Repeat("ü", 3000), strings.Repeat("m", 9000), strings.Repeat("\x00", 500), strings.Repeat("日", 4000), `"`+strings.Repeat("é", 5000)+`"`, strings.Repeat("%", 999), int64(-1<<63), uint8(255))
	f.Add("", "", "", "\xff\xfe", "\xff", "\xff", int64(0), uint8(0))
	f.Add("t", "m", "n", strings.Repeat("x", 513), strings.Repeat("9", 2000), "f", int64(1), uint8(1))
	f.Fuzz(func(t *testing.T, target, method, name, message, data, field string, code int64, n uint8) {
		s := scope{target: target, method: method, name: name, era: mcpclient.EraModern}
		rpc := &jsonrpc.Error{Code: code, Message: message}
		if n%2 == 1 {
			rpc.Data = []byte(data)
		}
		checkSize(t, s.build(s.classifyRPC(rpc)), rpc)
		bad := &failure{reason: reasonInvalidParams, message: message, retry: time.Second}
		for range n {
			bad.fields = append(bad.fields, violation{field: field, description: data, reason: "NOT_SET"})
		}
		checkSize(t, s.build(bad), nil)
		one := s.targetError(bad)
		if _, err := proto.Marshal(one); err != nil && utf8.ValidString(target) {
			t.Errorf("TargetError cannot be encoded: %v", err)
		}
	})
}

func TestLongDataIsCutAtARune(t *testing.T) {
	data := `{"text":"` + strings.Repeat("日本", 4000) + `"}`
	rpc := &jsonrpc.Error{Code: -32000, Message: "big", Data: []byte(data)}
	err := scope{target: "shop"}.build(scope{target: "shop"}.classifyRPC(rpc))
	got := detail[*pb.JsonRpcError](t, err)
	if !got.GetDataTruncated() || !strings.HasPrefix(data, got.GetDataJson()) || !utf8.ValidString(got.GetDataJson()) {
		t.Errorf("data_json is no valid prefix: truncated %v, %d bytes", got.GetDataTruncated(), len(got.GetDataJson()))
	}
	if len(got.GetDataJson()) < 1500 {
		t.Errorf("only %d bytes of data were kept; there is room for more", len(got.GetDataJson()))
	}
	checkSize(t, err, rpc)
}

func TestATextNeverDoubtsWhatItsReasonPromises(t *testing.T) {
	const doubt = "whether the server acted is unknown"
	for kind := range mcpclient.KindClosed + 1 {
		for _, sent := range []bool{false, true} {
			for _, safe := range []bool{false, true} {
				for _, method := range []string{"tools/call", "resources/read", ""} {
					e := &mcpclient.Error{Kind: kind, Message: "the connection ended; " + doubt, Sent: sent, SafeToRetry: safe, RPC: &jsonrpc.Error{Code: -32603}}
					f := scope{method: method}.classify(t.Context(), e)
					if f.reason == reasonTargetUnavailable && (strings.Contains(f.message, doubt) || sent && !safe) {
						t.Errorf("%v, sent %v, safe to retry %v, %s: %s %q", kind, sent, safe, method, f.reason, f.message)
					}
				}
			}
		}
	}
}

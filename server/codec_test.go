package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

func decodeJSON(text string, into proto.Message) error {
	return (&jsonCodec{}).UnmarshalRead(nil, strings.NewReader(text), into) //nolint:staticcheck // the codec has no use for a context
}

func TestJSONRequestsDecode(t *testing.T) {
	arguments, err := structpb.NewStruct(map[string]any{"n": 1.5, "list": []any{nil, true, "x", map[string]any{}}})
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.CallToolRequest{
		Target: "shop", Name: "buy", Arguments: arguments, RequestState: new(""), JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT,
		ClientCapabilities: &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Url: true}},
		InputResponses:     map[string]*pb.InputResponse{"q": {ResultJson: new("{}")}},
	}
	for _, text := range []string{
		`{"target":"shop","name":"buy","arguments":{"n":1.5,"list":[null,true,"x",{}]},"requestState":"","jsonFormat":"JSON_FORMAT_TEXT",
		  "clientCapabilities":{"elicitation":{"url":true}},"inputResponses":{"q":{"resultJson":"{}"}},"argumentsJson":null}`,
		`{"target":"shop","name":"buy","arguments":{"n":15e-1,"list":[null,true,"x",{}]},"request_state":"","json_format":2,
		  "client_capabilities":{"elicitation":{"url":true}},"input_responses":{"q":{"result_json":"{}"}}}  `,
	} {
		got := &pb.CallToolRequest{}
		if err := decodeJSON(text, got); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestJSONRequestsAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ name, text, field, names string }{
		{"unknown field", `{"nam":"x"}`, "nam", "it has target, name"},
		{"unknown nested field", `{"clientCapabilities":{"elicitation":{"uri":true}}}`, "clientCapabilities.elicitation.uri", "form, url"},
		{"unknown field in a map", `{"inputResponses":{"q":{"value":1}}}`, "inputResponses.q.value", "resultJson"},
		{"field of a message without fields", `{"clientCapabilities":{"roots":{"a":1}}}`, "clientCapabilities.roots.a", "has none"},
		{"large integer", `{"arguments":{"order":{"ids":[1,9007199254740993]}}}`, "arguments.order.ids[1]", "use arguments_json (argumentsJson in JSON)"},
		{"huge number", `{"arguments":{"n":1e400}}`, "arguments.n", "1e400"},
		{"large integer without an exact field", `{"meta":{"n":9007199254740993}}`, "meta.n", "a JSON string for it"},
		{"large integer in an answer", `{"inputResponses":{"q":{"result":{"n":123456789012345678901}}}}`, "inputResponses.q.result.n", "result_json"},
		{"wrong kind: string", `{"name":3}`, "name", "must be a JSON string, got a number"},
		{"wrong kind: object", `{"arguments":[1]}`, "arguments", "must be a JSON object, got an array"},
		{"wrong kind: bool", `{"clientCapabilities":{"elicitation":{"url":"yes"}}}`, "clientCapabilities.elicitation.url", "true or false"},
		{"wrong enum", `{"jsonFormat":"TEXT"}`, "jsonFormat", "JSON_FORMAT_TEXT"},
		{"duplicate member", `{"name":"a","name":"b"}`, "", "twice"},
		{"not an object", `[]`, "", "must be a JSON object, got an array"},
		{"empty", ` `, "", "send a JSON object"},
		{"truncated", `{"name":"a"`, "", "ends too early"},
		{"broken", `{"name":a}`, "", "not valid JSON"},
		{"trailing text", `{} {}`, "", "followed by more"},
		{"invalid UTF-8", "{\"name\":\"\xff\"}", "", "not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := decodeJSON(c.text, &pb.CallToolRequest{})
			bad, ok := errors.AsType[*jsonError](err)
			if !ok {
				t.Fatalf("got %v, want a *jsonError", err)
			}
			if c.field != "" && bad.field != c.field {
				t.Errorf("field %q, want %q", bad.field, c.field)
			}
			if !strings.Contains(bad.Error(), c.names) {
				t.Errorf("%q does not say %q", bad.Error(), c.names)
			}
		})
	}
}

func TestIntegerFieldsAreCheckedByRange(t *testing.T) {
	got := &pb.ListToolsRequest{}
	if err := decodeJSON(`{"pageSize":"7"}`, got); err != nil || got.GetPageSize() != 7 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{`{"pageSize":1.5}`, `{"pageSize":3000000000}`, `{"pageSize":"x"}`} {
		err := decodeJSON(text, &pb.ListToolsRequest{})
		if bad, ok := errors.AsType[*jsonError](err); !ok || !strings.Contains(bad.Error(), "pageSize") {
			t.Errorf("%s: %v, want an error that names pageSize", text, err)
		} else if strings.Contains(bad.Error(), "proto:") || strings.Contains(bad.Error(), "\u00a0") {
			t.Errorf("%q is not tidy", bad.Error())
		}
	}
}

func FuzzTheStrictCodecOnlyRefusesMore(f *testing.F) {
	f.Add(`{"target":"a","name":"b","arguments":{"x":[1,{"y":null}]}}`)
	f.Add(`{"clientCapabilities":{"extensions":{"a/b":{}}},"inputResponses":{"q":{"id":"q","error":{"code":"1"}}}}`)
	f.Add(`{"arguments":{"n":9007199254740993}}`)
	f.Add(`{"requestState":null,"jsonFormat":7}`)
	f.Fuzz(func(t *testing.T, text string) {
		got := &pb.CallToolRequest{}
		err := decodeJSON(text, got)
		if err != nil {
			if _, ok := errors.AsType[*jsonError](err); !ok {
				t.Fatalf("%q: %T %v is no *jsonError", text, err, err)
			}
			return
		}
		var out bytes.Buffer
		if err := (&jsonCodec{}).MarshalWrite(t.Context(), &out, got); err != nil {
			t.Fatalf("encode what was decoded from %q: %v", text, err)
		}
		again := &pb.CallToolRequest{}
		if err := decodeJSON(out.String(), again); err != nil {
			t.Fatalf("decode again %q: %v", out.String(), err)
		}
		if !proto.Equal(got, again) {
			t.Errorf("%q changed on the way: %v, then %v", text, got, again)
		}
	})
}

func TestResponsesKeepPresence(t *testing.T) {
	var out bytes.Buffer
	message := &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: &pb.ToolResult{
		IsError: new(false), StructuredContent: structpb.NewNullValue(),
	}}}
	if err := (&jsonCodec{}).MarshalWrite(t.Context(), &out, message); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if got, want := compact.String(), `{"result":{"structuredContent":null,"isError":false}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDeepJSONIsCalledDeep(t *testing.T) {
	for name, body := range map[string]string{
		"objects": `{"name":"x","arguments":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "}",
		"lists":   `{"name":"x","arguments":{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}}",
	} {
		err := (&jsonCodec{}).UnmarshalRead(t.Context(), strings.NewReader(body), &pb.CallToolRequest{})
		if err == nil || !strings.Contains(err.Error(), "nested deeper than 10000 levels") {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := (&jsonCodec{}).UnmarshalRead(t.Context(), strings.NewReader(`{"name":"x","arguments":{"a":!}}`), &pb.CallToolRequest{})
	if err == nil || !strings.Contains(err.Error(), "not valid JSON") {
		t.Errorf("broken JSON: %v", err)
	}
}

func TestJSONHasTheDocumentsOfAServer(t *testing.T) {
	result, err := convert.ToolResult([]byte(`{"content":[],"structuredContent":{"a":[1,null,"x"]},"_meta":{"b":true}}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	var codec jsonCodec
	for name, write := range map[string]func(context.Context, io.Writer, any) error{"write": codec.MarshalWrite, "stable write": codec.MarshalWriteStable} {
		var out bytes.Buffer
		if err := write(t.Context(), &out, result); err != nil {
			t.Fatal(err)
		}
		got := new(pb.ToolResult)
		if err := protojson.Unmarshal(out.Bytes(), got); err != nil {
			t.Fatal(err)
		}
		items := got.GetStructuredContent().GetStructValue().GetFields()["a"].GetListValue().GetValues()
		if len(items) != 3 || items[2].GetStringValue() != "x" || !got.GetMeta().GetFields()["b"].GetBoolValue() {
			t.Errorf("%s made %s", name, &out)
		}
	}
}

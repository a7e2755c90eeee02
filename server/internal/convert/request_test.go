package convert

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// wantField checks that err is a FieldError for field with reason and a description that has all of words.
func wantField(t *testing.T, err error, field string, reason Reason, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*FieldError](err)
	if !ok {
		t.Errorf("error is %v, want a FieldError for %s", err, field)
		return
	}
	if e.Field != field || e.Reason != reason {
		t.Errorf("error is for %s, %s; want %s, %s", e.Field, e.Reason, field, reason)
	}
	for _, word := range words {
		if !strings.Contains(e.Description, word) {
			t.Errorf("description %q does not say %q", e.Description, word)
		}
	}
	if strings.Contains(e.Error(), "jsontext") {
		t.Errorf("error text shows a Go package: %s", e)
	}
}

func mustStruct(t testing.TB, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestArgumentTextIsPassedOnTokenForToken(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                           `{}`,
		`{"n":12345678901234567890.0}`: `{"n":12345678901234567890.0}`,
		`{"a" : 1e400, "b":"\u00e9"}`:  `{"a" : 1e400, "b":"\u00e9"}`,
		"{\n  \"a\": [1.50, -0],\r\n\t\"b\\\"\": \"x \\\\\"\n}\n": `{"a":[1.50,-0],"b\"":"x \\"}`,
		"{\"a\":\" \\n \"\n}":  `{"a":" \n "}`,
		"{\"a\":\"\u2028é😀\"}": "{\"a\":\"\u2028é😀\"}",
	} {
		got, err := Arguments(nil, &in, "arguments")
		if err != nil || string(got) != want {
			t.Errorf("%q gave %q, %v; want %q", in, got, err, want)
		}
	}
	if got, err := Arguments(nil, nil, "arguments"); got != nil || err != nil {
		t.Errorf("no arguments gave %q, %v", got, err)
	}
}

func TestArgumentTextHasToBeOneStrictObject(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxRequestDepth+1) + "1" + strings.Repeat("}", MaxRequestDepth+1)
	tests := []struct {
		in     string
		reason Reason
		words  string
	}{
		{``, ReasonInvalidJSON, "is empty"},
		{" \n", ReasonInvalidJSON, "is empty"},
		{`{`, ReasonInvalidJSON, "ends too early"},
		{`{"a":1,}`, ReasonInvalidJSON, "at byte 7"},
		{`{'a':1}`, ReasonInvalidJSON, "at byte 1"},
		{`{a:1}`, ReasonInvalidJSON, "at byte 1"},
		{`{1:1}`, ReasonInvalidJSON, "at byte 1"},
		{`{"a":01}`, ReasonInvalidJSON, "at byte"},
		{`{"a":NaN}`, ReasonInvalidJSON, "at byte 5"},
		{`{"k":{"a":1,"a":2}}`, ReasonInvalidJSON, `"a" twice`},
		{"{\"a\":\"\xff\"}", ReasonInvalidJSON, "at byte"},
		{`{"a":"\ud800"}`, ReasonInvalidJSON, "at byte"},
		{"{\"a\":\"\n\"}", ReasonInvalidJSON, "at byte"},
		{`{} {}`, ReasonInvalidJSON, "continues"},
		{`{} x`, ReasonInvalidJSON, "continues"},
		{`[1]`, ReasonNotObject, "not an object"},
		{`null`, ReasonNotObject, "not an object"},
		{` "x"`, ReasonNotObject, "not an object"},
		{deep, ReasonTooDeep, "512 levels"},
		{strings.Repeat("[", 100_000), ReasonTooDeep, "512 levels"},
		{`{"a":"\`, ReasonInvalidJSON, "ends too early"},
	}
	for _, tt := range tests {
		_, err := Arguments(nil, &tt.in, "arguments")
		wantField(t, err, "arguments_json", tt.reason, tt.words)
	}
	_, err := Arguments(new(structpb.Struct), new("{}"), "arguments")
	wantField(t, err, "arguments_json", ReasonBothSet, "arguments and arguments_json")
}

func TestStructsAreWrittenAsPlainJSON(t *testing.T) {
	s := mustStruct(t, map[string]any{
		"b": []any{3.0, -3.0, 0.1, 1e21, 1e-7, 1.5e300, 9007199254740992.0, 18014398509481984.0, 123456789012345680000.0},
		"a": map[string]any{"é\"\n": "\u2028<&>\x00", "": nil, "t": true, "f": false},
	})
	got, err := Arguments(s, nil, "arguments")
	const want = `{"a":{"":null,"f":false,"t":true,"é\"\n":"` + "\u2028" + `<&>\u0000"},"b":[3,-3,0.1,1e+21,1e-7,1.5e+300,9007199254740992,18014398509481984,123456789012345680000]}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if got, err := Arguments(new(structpb.Struct), nil, "arguments"); err != nil || string(got) != "{}" {
		t.Errorf("an empty Struct gave %s, %v", got, err)
	}
	if got := string(appendNumber(nil, math.Copysign(0, -1))); got != "-0" {
		t.Errorf("-0 is written %s", got)
	}
}

func TestStructsThatAreNoJSONAreRefused(t *testing.T) {
	number := func(f float64) *structpb.Struct {
		return mustStruct(t, map[string]any{"a": map[string]any{"b": []any{f}}})
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := Arguments(number(f), nil, "arguments")
		wantField(t, err, "arguments", ReasonNotFinite, "/a/b/*")
	}
	empty := &structpb.Struct{Fields: map[string]*structpb.Value{"x": {}}}
	_, err := Arguments(empty, nil, "arguments")
	wantField(t, err, "arguments", ReasonNotSet, "/x", "null_value")
	_, err = Arguments(&structpb.Struct{Fields: map[string]*structpb.Value{"x": nil}}, nil, "arguments")
	wantField(t, err, "arguments", ReasonNotSet, "/x")
	_, err = Meta(&structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue("\xff")}}, "meta")
	wantField(t, err, "meta", ReasonInvalidJSON, "UTF-8")
	_, err = Meta(&structpb.Struct{Fields: map[string]*structpb.Value{"\xff": structpb.NewNullValue()}}, "meta")
	wantField(t, err, "meta", ReasonInvalidJSON, "UTF-8")

	for _, wrap := range []func(*structpb.Value) *structpb.Value{
		func(v *structpb.Value) *structpb.Value {
			return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": v}})
		},
		func(v *structpb.Value) *structpb.Value {
			return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		},
	} {
		v := structpb.NewNullValue()
		for range MaxRequestDepth - 1 {
			v = wrap(v)
		}
		s := &structpb.Struct{Fields: map[string]*structpb.Value{"a": v}}
		if _, err := Arguments(s, nil, "arguments"); err != nil {
			t.Errorf("%d levels are refused: %v", MaxRequestDepth, err)
		}
		s.Fields["a"] = wrap(v)
		_, err := Arguments(s, nil, "arguments")
		wantField(t, err, "arguments", ReasonTooDeep, "512")
	}
}

func TestMetaIsAnObjectOrAbsent(t *testing.T) {
	if got, err := Meta(nil, "meta"); got != nil || err != nil {
		t.Errorf("no meta gave %q, %v", got, err)
	}
	if got, err := Meta(mustStruct(t, map[string]any{"k": 1}), "meta"); string(got) != `{"k":1}` || err != nil {
		t.Errorf("meta gave %q, %v", got, err)
	}
}

func TestClientCapabilitiesAreMCPObjects(t *testing.T) {
	tests := []struct {
		in   *pb.ClientCapabilities
		want string
	}{
		{nil, ``},
		{&pb.ClientCapabilities{}, `{}`},
		{&pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{}}, `{"elicitation":{}}`},
		{&pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}}, `{"elicitation":{"form":{}}}`},
		{&pb.ClientCapabilities{
			Elicitation: &pb.ClientCapabilities_Elicitation{Form: true, Url: true},
			Sampling:    &pb.ClientCapabilities_Sampling{Context: true},
			Roots:       &pb.ClientCapabilities_Roots{},
			Extensions:  map[string]*structpb.Struct{"io.modelcontextprotocol/tasks": nil, "a/b": mustStruct(t, map[string]any{"n": 1})},
		}, `{"elicitation":{"form":{},"url":{}},"sampling":{"context":{}},"roots":{},"extensions":{"a/b":{"n":1},"io.modelcontextprotocol/tasks":{}}}`},
	}
	for _, tt := range tests {
		if got, err := ClientCapabilities(tt.in); err != nil || string(got) != tt.want {
			t.Errorf("%v gave %s, %v; want %s", tt.in, got, err, tt.want)
		}
	}
	_, err := ClientCapabilities(&pb.ClientCapabilities{Extensions: map[string]*structpb.Struct{"a/b": mustStruct(t, map[string]any{"n": math.NaN()})}})
	wantField(t, err, `client_capabilities.extensions["a/b"]`, ReasonNotFinite, "/n")
}

func TestInputResponsesAreAMapOfResults(t *testing.T) {
	got, err := InputResponses(map[string]*pb.InputResponse{
		"b\"": {ResultJson: new("{\n\"action\":\"accept\",\"content\":{\"n\":9007199254740993}}")},
		"a":   {Id: "a", Result: mustStruct(t, map[string]any{"action": "decline"})},
	}, "input_responses")
	const want = `{"a":{"action":"decline"},"b\"":{"action":"accept","content":{"n":9007199254740993}}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if got, err := InputResponses(nil, "input_responses"); got != nil || err != nil {
		t.Errorf("no answers gave %q, %v", got, err)
	}
	for _, tt := range []struct {
		answer *pb.InputResponse
		field  string
		reason Reason
	}{
		{nil, `input_responses["q"]`, ReasonNotSet},
		{&pb.InputResponse{Id: "q"}, `input_responses["q"]`, ReasonNotSet},
		{&pb.InputResponse{Id: "other", ResultJson: new("{}")}, `input_responses["q"].id`, ReasonIDMismatch},
		{&pb.InputResponse{Error: &pb.JsonRpcError{Code: -1}}, `input_responses["q"].error`, ReasonRefusal},
		{&pb.InputResponse{ResultJson: new("[]")}, `input_responses["q"].result_json`, ReasonNotObject},
		{&pb.InputResponse{Result: new(structpb.Struct), ResultJson: new("{}")}, `input_responses["q"].result_json`, ReasonBothSet},
		{&pb.InputResponse{Result: &structpb.Struct{Fields: map[string]*structpb.Value{"x": nil}}}, `input_responses["q"].result`, ReasonNotSet},
	} {
		_, err := InputResponses(map[string]*pb.InputResponse{"q": tt.answer}, "input_responses")
		wantField(t, err, tt.field, tt.reason)
	}
	_, err = InputResponses(map[string]*pb.InputResponse{"\xff": {ResultJson: new("{}")}}, "input_responses")
	wantField(t, err, `input_responses["\xff"]`, ReasonInvalidJSON)
}

package convert

import (
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
)

const textFormat = pb.JsonFormat_JSON_FORMAT_TEXT

// nested is a list in a list and so on, levels deep.
func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

func TestDocumentsKeepTheirTextWhenDecodingLosesSomething(t *testing.T) {
	tests := []struct {
		name, in string
		decoded  string // as protojson; "" = text alone
		text     bool
	}{
		{"plain", `{"a":[1,-2.5,"x",true,null,{}]}`, `{"a":[1,-2.5,"x",true,null,{}]}`, false},
		{"2^53", `9007199254740992`, `9007199254740992`, false},
		{"2^53+1", `9007199254740993`, `9007199254740992`, true},
		{"-2^53-1", `-9007199254740993`, `-9007199254740992`, true},
		{"a larger integer that is a double", `18014398509481984`, `18014398509481984`, false},
		{"an integer that is a double but has a shorter neighbour name", `9223372036854775808`, `9223372036854775808`, true},
		{"too many digits", `0.12345678901234567890`, `0.12345678901234568`, true},
		{"a power of ten", `1e20`, `1e20`, false},
		{"beyond doubles", `1e400`, `1.7976931348623157e308`, true},
		{"below doubles", `-1e400`, `-1.7976931348623157e308`, true},
		{"an exponent beyond int", `1e99999999999999999999`, `1.7976931348623157e308`, true},
		{"too small", `1e-400`, `0`, true},
		{"smallest", `5e-324`, `5e-324`, false},
		{"negative zero", `-0`, `-0`, true},
		{"negative zero with fraction", `-0.0`, `-0.0`, true},
		{"zero with exponent", `0e5`, `0`, false},
		{"trailing zeros", `1.50`, `1.5`, false},
		{"capital exponent", `15E-1`, `1.5`, false},
		{"repeated name", `{"a":1,"a":2}`, `{"a":2}`, true},
		{"lone surrogate", `"\ud800"`, `"\ufffd"`, true},
		{"30 levels", nested(30), nested(30), false},
		{"31 levels", nested(31), ``, true},
		{"null", `null`, `null`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, text, err := valueOf(t, []byte(tt.in), 0)
			if err != nil {
				t.Fatal(err)
			}
			var want *structpb.Value
			if tt.decoded != "" {
				want = new(structpb.Value)
				if err := protojson.Unmarshal([]byte(tt.decoded), want); err != nil {
					t.Fatal(err)
				}
			}
			// Not cmp.Diff: its time doubles with every level.
			if (want == nil) != (v == nil) || !proto.Equal(want, v) {
				t.Errorf("decoded is %v, want %v", v, want)
			}
			switch {
			case tt.text != (text != nil):
				t.Errorf("text is set: %t, want %t", text != nil, tt.text)
			case text != nil && *text != tt.in:
				t.Errorf("text is %s, want %s", *text, tt.in)
			}
			v, text, err = Value([]byte(tt.in), textFormat)
			if err != nil || v != nil || text == nil || *text != tt.in {
				t.Errorf("as text: %v, %v, %v; want the text alone", v, text, err)
			}
		})
	}
}

func TestInvalidUTF8BecomesTheReplacementCharacter(t *testing.T) {
	r, err := toolResultIn(t, []byte("{\"content\":[{\"type\":\"text\",\"text\":\"a\xffb\\ud800\"}],\"x\xff\":{\"k\":\"\xc3\"}}"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Content[0].GetText().GetText(), "a\uFFFDb\uFFFD"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
	if got := r.Extra.GetFields()["x\uFFFD"].GetStructValue().GetFields()["k"].GetStringValue(); got != "\uFFFD" {
		t.Errorf("extra is %v", r.Extra)
	}
	checkWire(t, r)
	in, err := InputRequired([]byte("{\"inputRequests\":{\"\xff\":{\"method\":\"roots/list\"}}}"), 0)
	if err != nil {
		t.Fatal(err)
	}
	checkWire(t, in)
}

func TestTheLastOfRepeatedMembersWins(t *testing.T) {
	r, err := ToolResult([]byte(`{"content":[{"type":"text","text":"1"}],"isError":true,"content":[{"type":"text","text":"2"}],"isError":null}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Content) != 1 || r.Content[0].GetText().GetText() != "2" || r.IsError != nil {
		t.Errorf("got %v", r)
	}
}

func TestWhatIsNoObjectIsAnError(t *testing.T) {
	for _, c := range converters {
		for _, in := range []string{``, ` `, `null`, `[]`, `"x"`, `{`, `{"a"`, `{"a":}`, `{"a":1}{`, `{} x`, `{"content":[}`, `{"content":[{"type":`, `{"content":[{"type":"text"`, `{"_meta":{"a":[`} {
			for _, f := range []Format{0, textFormat} {
				if m, err := c.convert([]byte(in), f); err == nil {
					t.Errorf("%s of %q gave %v, want an error", c.name, in, m)
				}
			}
		}
	}
	if _, err := Tool([]byte(`{"name":"a"`), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated text gives %v, want io.ErrUnexpectedEOF", err)
	}
	for _, in := range []string{`[]`, `{`, ``, `{}{}`} {
		if s, _, err := Struct([]byte(in), 0); err == nil {
			t.Errorf("Struct of %q gave %v, want an error", in, s)
		}
	}
	if v, _, err := Value([]byte(`[1,]`), 0); err == nil {
		t.Errorf("Value of broken JSON gave %v, want an error", v)
	}
}

func TestStructHoldsOneObject(t *testing.T) {
	s, text, err := structOf(t, []byte(` {"a":1} `), 0)
	if err != nil || text != nil || s.GetFields()["a"].GetNumberValue() != 1 {
		t.Errorf("got %v, %v, %v", s, text, err)
	}
	s, text, err = Struct([]byte(` {"a": 1} `), textFormat)
	if err != nil || s != nil || text == nil || *text != `{"a": 1}` {
		t.Errorf("as text: got %v, %v, %v", s, text, err)
	}
}

func TestBase64IsReadInAllItsForms(t *testing.T) {
	for in, want := range map[string]string{
		"aGk=": "hi", "aGk": "hi", "-_-_": "\xfb\xff\xbf", "+/+/": "\xfb\xff\xbf", `+\/+\/`: "\xfb\xff\xbf", `aG\nk=`: "hi", "": "",
	} {
		c, err := ToolResult([]byte(`{"content":[{"type":"image","data":"`+in+`","mimeType":"m"}]}`), 0)
		if err != nil || string(c.Content[0].GetImage().GetData()) != want {
			t.Errorf("%q gave %v, %v; want %q", in, c, err, want)
		}
	}
}

func TestTextFormatLeavesDecodedFormsOut(t *testing.T) {
	tool, err := Tool([]byte(`{"name":"a","inputSchema":{"n":1.50},"_meta":{},"x":[1E2]}`), textFormat)
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.Tool{Name: "a", InputSchemaJson: new(`{"n":1.50}`), MetaJson: new(`{}`), ExtraJson: new(`{"x":[1E2]}`)}
	if diff := cmp.Diff(want, tool, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConversionsDoNotChangeOrKeepTheirInput(t *testing.T) {
	const in = `{"content":[{"type":"text","text":"abc"},{"type":"image","data":"aGk="}],"structuredContent":{"a":"b"},"x":1}`
	raw := []byte(in)
	r, err := ToolResult(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != in {
		t.Errorf("input was changed to %s", raw)
	}
	before := proto.CloneOf(r)
	for i := range raw {
		raw[i] = '#'
	}
	if !proto.Equal(before, r) {
		t.Error("the result aliases its input")
	}
}

func TestDeepestDocumentInTheDeepestPlaceFitsDecoders(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxStructDepth) + `1` + strings.Repeat(`}`, MaxStructDepth)
	r, err := toolResultIn(t, []byte(`{"content":[{"type":"resource","resource":{"uri":"u","text":"","_meta":`+deep+`}}],"structuredContent":`+deep+`}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Content[0].GetResource().GetContents().GetMeta() == nil {
		t.Fatal("document of the greatest depth was not decoded")
	}
	checkWire(t, &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: r}})
	checkWire(t, &pb.Task{Outcome: &pb.Task_ToolResult{ToolResult: r}})
}

func TestVeryDeepTextIsSkippedNotDecoded(t *testing.T) {
	r, err := ToolResult([]byte(`{"structuredContent":`+nested(5000)+`,"x":`+nested(5000)+`}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.StructuredContent != nil || len(r.GetStructuredContentJson()) != 10000 || r.Extra != nil || r.ExtraJson == nil {
		t.Error("deep documents should be text alone")
	}
}

func TestTheTypeOfContentIsFoundWhereverItIs(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"text","text":"x"}`:                                "text",
		"{ \"type\" :\n\"text\" , \"text\":\"x\"}":                  "text",
		`{"text":"x","type":"text"}`:                                "text",
		`{"text":"x","annotations":{"type":"image"},"type":"text"}`: "text",
		`{"t\u0079pe":"te\u0078t","text":"x"}`:                      "text",
		`{"type":"text","text":"x","type":"image"}`:                 "text",
		`{"type":7,"text":"x"}`:                                     "",
		`{"type":null,"text":"x"}`:                                  "",
		`{"type":"","text":"x"}`:                                    "",
		`{}`:                                                        "",
	} {
		r, err := toolResultIn(t, []byte(`{"content":[{"type":"text","text":"first"}, `+in+`]}`), 0)
		if err != nil || len(r.Content) != 2 {
			t.Errorf("%s gave %v, %v", in, r, err)
			continue
		}
		c := r.Content[1]
		if want == "text" && c.GetText().GetText() != "x" || want == "" && c.GetUnknown().GetValue() == nil {
			t.Errorf("%s became %v", in, c)
		}
	}
	for _, in := range []string{`{`, `{"type`, `{"type"`, `{"type":`, `{"type":"`, `{"type":"text`, `{"type":"text"`, `{"type" "text"}`} {
		if r, err := ToolResult([]byte(`{"content":[`+in), 0); err == nil {
			t.Errorf("%s gave %v, want an error", in, r)
		}
	}
}

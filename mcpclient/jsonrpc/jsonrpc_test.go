package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

var compareIDs = cmp.Comparer(func(a, b ID) bool { return a == b })

func TestIDsAreEqualOnlyByTypeAndValue(t *testing.T) {
	parse := func(raw string) ID {
		t.Helper()
		id, err := ParseID([]byte(raw))
		if err != nil {
			t.Fatalf("ParseID(%s): %v", raw, err)
		}
		return id
	}
	equal := [][2]ID{
		{parse("1"), IntID(1)},
		{parse("0"), IntID(0)},
		{parse("-7"), IntID(-7)},
		{parse(`"a"`), StringID("a")},
		{parse(`"\u0061"`), StringID("a")},
		{parse(`""`), StringID("")},
		{parse("9007199254740993"), IntID(9007199254740993)},
		{parse("99999999999999999999"), parse("99999999999999999999")},
	}
	for _, pair := range equal {
		if pair[0] != pair[1] {
			t.Errorf("%#v != %#v", pair[0], pair[1])
		}
	}
	different := []ID{
		{}, IntID(0), IntID(1), StringID(""), StringID("0"), StringID("1"), StringID("null"),
		parse("9007199254740992"), parse("9007199254740993"),
		parse("99999999999999999999"), parse(`"99999999999999999999"`),
	}
	for i, a := range different {
		for _, b := range different[i+1:] {
			if a == b {
				t.Errorf("%#v == %#v", a, b)
			}
		}
	}
}

func TestParseIDRefusesEverythingElse(t *testing.T) {
	for _, raw := range []string{
		"", "null", "1.0", "1.5", "1e3", "true", "{}", "[]", "-", "01", "+1", " 1", "1 ", `"a`, `"\ud800"`, "\"\xff\"", "NaN",
	} {
		if id, err := ParseID([]byte(raw)); err == nil {
			t.Errorf("ParseID(%q) = %v, want an error", raw, id)
		}
	}
}

func TestIDsShowAndEncodeThemselves(t *testing.T) {
	for _, tt := range []struct {
		id         ID
		show, json string
	}{
		{ID{}, "none", "null"},
		{IntID(7), "7", "7"},
		{StringID("7"), "7", `"7"`},
		{StringID("a\"\n\u2028"), "a\"\n\u2028", "\"a\\\"\\n\u2028\""},
		{StringID("\xff"), "\uFFFD", "\"\uFFFD\""},
	} {
		if got := tt.id.String(); got != tt.show {
			t.Errorf("%#v.String() = %q, want %q", tt.id, got, tt.show)
		}
		if got := string(tt.id.AppendJSON(nil)); got != tt.json {
			t.Errorf("%#v.AppendJSON() = %q, want %q", tt.id, got, tt.json)
		}
		if tt.id.IsZero() != (tt.json == "null") {
			t.Errorf("%#v.IsZero() = %v", tt.id, tt.id.IsZero())
		}
	}
}

func TestIDsKnowTheirLookalike(t *testing.T) {
	big, err := ParseID([]byte("99999999999999999999"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]ID{
		{IntID(7), StringID("7")}, {IntID(0), StringID("0")}, {IntID(-7), StringID("-7")}, {big, StringID("99999999999999999999")},
	} {
		for _, p := range [][2]ID{pair, {pair[1], pair[0]}} {
			if got, ok := p[0].Retyped(); !ok || got != p[1] {
				t.Errorf("%#v.Retyped() = %#v, %v, want %#v", p[0], got, ok, p[1])
			}
		}
	}
	for _, id := range []ID{{}, StringID(""), StringID("a"), StringID("07"), StringID("-0"), StringID("7.0"), StringID(" 7"), StringID("1e3")} {
		if got, ok := id.Retyped(); ok {
			t.Errorf("%#v.Retyped() = %#v", id, got)
		}
	}
}

func TestFault76_Fault82_DecodeReadsWhatServersSend(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     Message
	}{
		{"response", `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{"a":1}`)}},
		{"id last, no jsonrpc", `{"result":{},"id":"x"}`, Message{Kind: Response, ID: StringID("x"), Result: jsontext.Value(`{}`)}},
		{"white space", " \r\n\t{ \"id\" : 1 , \"result\" : { } } \r\n", Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{ }`)}},
		{"error null beside result", `{"id":1,"result":{},"error":null}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{}`)}},
		{"result null beside error", `{"id":1,"result":null,"error":{"code":-1,"message":"m"}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Code: -1, Message: "m"}}},
		{"method null beside result", `{"id":1,"method":null,"params":null,"result":{}}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{}`)}},
		{"result null", `{"id":1,"result":null}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`null`)}},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}`, Message{Kind: Response, Error: &Error{Code: -32600, Message: "m"}}},
		{"error with id null", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m","data":[1]}}`, Message{Kind: Response, Error: &Error{Code: -32700, Message: "m", Data: jsontext.Value(`[1]`)}}},
		{"error without message", `{"id":1,"error":{"code":5}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Code: 5}}},
		{"error code float but integer", `{"id":1,"error":{"code":-32601.0,"message":"m","data":null}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Code: -32601, Message: "m"}}},
		{"error code string", `{"id":1,"error":{"code":"E1","message":"m"}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Message: "m", Data: jsontext.Value(`{"code":"E1","message":"m"}`)}}},
		{"error code string with data", `{"id":1,"error":{"code":"E1","data":{}}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Data: jsontext.Value(`{}`)}}},
		{"error code fraction", `{"id":1,"error":{"code":1.5}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Data: jsontext.Value(`{"code":1.5}`)}}},
		{"error code huge", `{"id":1,"error":{"code":1e300}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Data: jsontext.Value(`{"code":1e300}`)}}},
		{"error message object", `{"id":1,"error":{"code":1,"message":{}}}`, Message{Kind: Response, ID: IntID(1), Error: &Error{Code: 1, Data: jsontext.Value(`{"code":1,"message":{}}`)}}},
		{"request", `{"id":0,"method":"ping"}`, Message{Kind: Request, ID: IntID(0), Method: "ping"}},
		{"request with params", `{"params":{"x":[]},"method":"a\/b","id":"q"}`, Message{Kind: Request, ID: StringID("q"), Method: "a/b", Params: jsontext.Value(`{"x":[]}`)}},
		{"notification", `{"method":"n","params":null}`, Message{Kind: Notification, Method: "n"}},
		{"notification with id null", `{"id":null,"method":"n"}`, Message{Kind: Notification, Method: "n"}},
		{"escaped names", `{"\u0069d":1,"r\u0065sult":{}}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{}`)}},
		{"duplicates, last wins", `{"id":1,"id":2,"result":{},"result":{"a":1,"a":2}}`, Message{Kind: Response, ID: IntID(2), Result: jsontext.Value(`{"a":1,"a":2}`)}},
		{"unknown members", `{"id":1,"x":{"id":5,"method":"m"},"result":{}}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{}`)}},
		{"digits kept", `{"id":1,"result":{"n":9007199254740993,"e":1e400,"z":-0}}`, Message{Kind: Response, ID: IntID(1), Result: jsontext.Value(`{"n":9007199254740993,"e":1e400,"z":-0}`)}},
		{"invalid UTF-8", "{\"id\":1,\"result\":{\"a\":\"\xff\"}}", Message{Kind: Response, ID: IntID(1), Result: jsontext.Value("{\"a\":\"\xff\"}")}},
		{"invalid UTF-8 in a method", "{\"method\":\"\xff\"}", Message{Kind: Notification, Method: "\uFFFD"}},
		{"line separator", "{\"id\":1,\"result\":{\"a\":\"\u2028\"}}", Message{Kind: Response, ID: IntID(1), Result: jsontext.Value("{\"a\":\"\u2028\"}")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, compareIDs, cmp.AllowUnexported(rawjson.Index{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFault73_BrokenMessagesNameTheCallTheyAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		id       ID // zero = no message at all
	}{
		{"method and result", `{"id":1,"result":{},"method":"x"}`, IntID(1)},
		{"method and error", `{"id":1,"error":{},"method":"x"}`, IntID(1)},
		{"result and error", `{"id":1,"result":{},"error":{"code":1}}`, IntID(1)},
		{"error is a string", `{"id":1,"error":"boom"}`, IntID(1)},
		{"only an id", `{"jsonrpc":"2.0","id":"a"}`, StringID("a")},
		{"broken result", `{"id":1,"result":{"a":}}`, IntID(1)},
		{"cut short", `{"id":1,"result":{"a":"bc`, IntID(1)},
		{"trailing data", `{"id":1,"result":{}}}`, IntID(1)},
		{"two messages", `{"id":1,"result":{}} {"id":2,"result":{}}`, IntID(1)},
		{"id after the break", `{"result":{"a":},"id":1}`, ID{}},
		{"fraction id", `{"id":1.0,"result":{}}`, ID{}},
		{"object id", `{"id":{},"result":{}}`, ID{}},
		{"broken call of the server", `{"id":1,"method":"x","params":{"a":}}`, ID{}},
		{"broken params first", `{"id":1,"params":{"a":}}`, ID{}},
		{"method is a number", `{"id":1,"method":5}`, ID{}},
		{"no members", `{}`, ID{}},
		{"empty", ``, ID{}},
		{"blank", " \n", ID{}},
		{"number", `42`, ID{}},
		{"string", `"a"`, ID{}},
		{"batch", `[]`, ID{}},
		{"text", `Server started`, ID{}},
		{"too deep", `{"id":1,"result":` + strings.Repeat("[", 20000), IntID(1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode([]byte(tt.in))
			if err == nil {
				t.Fatalf("Decode = %+v, want an error", got)
			}
			if tt.id.IsZero() {
				if got != nil {
					t.Errorf("Decode = %+v, want no message", got)
				}
				return
			}
			if got == nil || got.Kind != Invalid || got.ID != tt.id {
				t.Errorf("Decode = %+v, want an invalid message with id %v", got, tt.id)
			}
		})
	}
}

func TestDecodeDoesNotCopyAndDoesNotWrite(t *testing.T) {
	in := []byte(`{"id":1,"result":{"a":"b"},"x":[1,2]}`)
	before := bytes.Clone(in)
	m, err := Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	if &m.Result[0] != &in[bytes.IndexByte(in, 'a')-2] {
		t.Error("the result is a copy")
	}
	if !bytes.Equal(in, before) {
		t.Errorf("the input changed to %s", in)
	}
}

func TestDecodeBatchSplitsArrays(t *testing.T) {
	elements, ok, err := DecodeBatch([]byte(` [ {"id":1,"result":{}} , {"method":"n"},3 ] `))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	got := string(bytes.Join(elements, []byte("|")))
	if want := `{"id":1,"result":{}}|{"method":"n"}|3`; got != want {
		t.Errorf("elements = %s, want %s", got, want)
	}
	if _, ok, err := DecodeBatch([]byte(`{"id":1}`)); ok || err != nil {
		t.Errorf("an object: ok = %v, err = %v", ok, err)
	}
	if elements, ok, err := DecodeBatch([]byte(`[{"id":1},`)); !ok || err == nil || len(elements) != 1 {
		t.Errorf("cut short: %q, %v, %v", elements, ok, err)
	}
	if _, ok, err := DecodeBatch([]byte(`[] x`)); !ok || err == nil {
		t.Errorf("trailing data: %v, %v", ok, err)
	}
}

func TestFault61_AppendWritesOneLine(t *testing.T) {
	params := []byte("{\n\t\"a\":\r\n\"b\\nc\u2028\"\n}")
	for _, tt := range []struct{ got, want string }{
		{string(AppendRequest(nil, IntID(0), "tools/call", params)), "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"tools/call\",\"params\":{ \t\"a\":  \"b\\nc\u2028\" }}"},
		{string(AppendRequest([]byte("x\n"), StringID("a\nb"), "ping", nil)), "x\n{\"jsonrpc\":\"2.0\",\"id\":\"a\\nb\",\"method\":\"ping\"}"},
		{string(AppendNotification(nil, "n\n", []byte("{\n}"))), `{"jsonrpc":"2.0","method":"n\n","params":{ }}`},
		{string(AppendResult(nil, IntID(1), []byte("{\n}"))), `{"jsonrpc":"2.0","id":1,"result":{ }}`},
		{string(AppendResult(nil, IntID(1), nil)), `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{string(AppendError(nil, ID{}, &Error{Code: -32601, Message: "a\nb\xff", Data: jsontext.Value("[\n]")})), "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32601,\"message\":\"a\\nb\uFFFD\",\"data\":[ ]}}"},
	} {
		if tt.got != tt.want {
			t.Errorf("got  %s\nwant %s", tt.got, tt.want)
		}
	}
}

func TestErrorNamesItsCode(t *testing.T) {
	if got := (&Error{Code: -32601, Message: "no such method"}).Error(); got != "JSON-RPC error -32601: no such method" {
		t.Error(got)
	}
	for kind, want := range map[Kind]string{Invalid: "invalid", Request: "request", Notification: "notification", Response: "response", 9: "invalid"} {
		if kind.String() != want {
			t.Errorf("Kind %d = %q", kind, kind)
		}
	}
}

func TestPeekIDFindsTheIDOfALargeResponse(t *testing.T) {
	for _, tt := range []struct {
		head, tail string
		id         ID
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{"a":"`, `x"}}`, IntID(7)},
		{`{"result":{"a":"`, `x"},"jsonrpc":"2.0","id":"q"}` + "\r\n", StringID("q")},
		{`{"error":{"data":"`, `x"},"id":7}`, IntID(7)},
		{`{"result":{"a":"`, `x"},"id":7,"jsonrpc":"2.0"}`, IntID(7)},
		{`{"result":{"a":"`, `x","id":7}}`, ID{}},
		{`{"result":{"a":"`, `x"},"id":7`, ID{}},
		{`{"result":{"a":"`, `\"id":7}`, ID{}},
		{`{"result":{"a":"`, `"id":7}`, ID{}},
		{`{"result":{"a":"`, `x"},"id":1.5}`, ID{}},
		{`{"result":{"a":"`, `x"},"id":7,"method":"m"}`, ID{}},
		{`{"result":{"a":"`, `x"}}`, ID{}},
		{`{"id":7,"method":"m","params":{"a":"`, `x"}}`, ID{}},
		{`{"params":{"a":"`, `x"},"id":7}`, ID{}},
		{`{"x":"`, `x","id":7}`, ID{}},
		{`junk`, `"id":7}`, ID{}},
	} {
		got, ok := PeekID([]byte(tt.head), []byte(tt.tail))
		if got != tt.id || ok == tt.id.IsZero() {
			t.Errorf("PeekID(%s, %s) = %v, %v, want %v", tt.head, tt.tail, got, ok, tt.id)
		}
	}
}

package convert

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

// converter is one conversion from a server, by MCP type.
type converter struct {
	name    string
	convert func(raw []byte, f Format) (proto.Message, error)
}

func of[T proto.Message](name string, f func([]byte, Format) (T, error)) converter {
	return converter{name, func(raw []byte, format Format) (proto.Message, error) {
		m, err := f(raw, format)
		if err != nil {
			return m, err
		}
		return Decoded(m)
	}}
}

var converters = []converter{
	of("tool", Tool),
	of("resource", Resource),
	of("resourceTemplate", ResourceTemplate),
	of("prompt", Prompt),
	loose("toolResult", func(r *reader) *pb.ToolResult { m, _, _ := r.toolResult(); return m }),
	loose("readResourceResult", func(r *reader) *pb.ReadResourceResult { m, _ := r.readResourceResult(); return m }),
	loose("getPromptResult", func(r *reader) *pb.GetPromptResult { m, _ := r.getPromptResult(); return m }),
	loose("completeResult", func(r *reader) *pb.CompleteResponse { m, _, _ := r.completeResult(); return m }),
	loose("inputRequired", (*reader).inputRequired),
	loose("task", (*reader).task),
	of("implementation", Implementation),
}

// decoded is what a conversion gave, with its documents as messages.
func decoded[M proto.Message](t testing.TB, m M, err error) (M, error) {
	t.Helper()
	if err != nil {
		return m, err
	}
	m, err = Decoded(m)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return m, nil
}

func toolResultIn(t testing.TB, raw []byte, f Format) (*pb.ToolResult, error) {
	t.Helper()
	m, err := ToolResult(raw, f)
	return decoded(t, m, err)
}

func structOf(t testing.TB, raw []byte, f Format) (*structpb.Struct, *string, error) {
	t.Helper()
	s, text, err := Struct(raw, f)
	if s != nil {
		s, err = decoded(t, s, err)
	}
	return s, text, err
}

func valueOf(t testing.TB, raw []byte, f Format) (*structpb.Value, *string, error) {
	t.Helper()
	v, text, err := Value(raw, f)
	if v != nil {
		v, err = decoded(t, v, err)
	}
	return v, text, err
}

// strict are the conversions of results, with what they demand of them.
var strict = []converter{
	of("toolResult", ToolResult),
	of("readResourceResult", ReadResourceResult),
	of("getPromptResult", GetPromptResult),
	of("completeResult", CompleteResult),
	of("inputRequired", InputRequired),
	of("task", Task),
}

// loose is a conversion of a result that may lack anything, so that tests with random objects see all of it.
func loose[T any, M interface {
	*T
	proto.Message
}](name string, read func(*reader) M) converter {
	return of(name, func(raw []byte, f Format) (M, error) {
		return convertObject(raw, f, name, func(r *reader) *T { return read(r) })
	})
}

func converterOf(t testing.TB, name string) converter {
	t.Helper()
	for _, c := range converters {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no converter for %q", name)
	return converter{}
}

// checkLossless converts raw in both formats, sends the message over the wire, turns it back into JSON and compares.
func checkLossless(t testing.TB, c converter, raw []byte) {
	t.Helper()
	want := prune(parseJSON(t, raw))
	for _, f := range []Format{pb.JsonFormat_JSON_FORMAT_STRUCT, pb.JsonFormat_JSON_FORMAT_TEXT} {
		m, err := c.convert(raw, f)
		if err != nil {
			t.Fatalf("%s as %s: %v\n%s", c.name, f, err, raw)
		}
		checkWire(t, m)
		// Not cmp.Diff: its time doubles with every level.
		if got := prune(toMCP(t, m.ProtoReflect())); !reflect.DeepEqual(want, got) {
			t.Fatalf("%s as %s lost something:\nsent %.4000v\nkept %.4000v\nfrom %.2000s\nvia %.4000v", c.name, f, want, got, raw, m)
		}
	}
}

// checkWire checks that any decoder can read m: valid UTF-8, no number JSON lacks, and no nesting beyond the usual
// limit of 100, with room for the messages around it.
func checkWire(t testing.TB, m proto.Message) {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatalf("marshal %T: %v", m, err)
	}
	back := m.ProtoReflect().New().Interface()
	// Two levels are left for CallToolStreamResponse and CallToolResponse around a result.
	if err := (proto.UnmarshalOptions{RecursionLimit: 98}).Unmarshal(wire, back); err != nil {
		t.Fatalf("unmarshal %T: %v", m, err)
	}
	if !proto.Equal(m, back) {
		t.Fatalf("%T changed on the wire", m)
	}
	if _, err := protojson.Marshal(m); err != nil {
		t.Fatalf("protojson of %T: %v", m, err)
	}
}

// toMCP is the inverse of the conversions from a server.
func toMCP(t testing.TB, m protoreflect.Message) any {
	switch x := m.Interface().(type) {
	case *structpb.Struct:
		return structToJSON(t, x)
	case *structpb.Value:
		return valueToJSON(t, x)
	case *pb.Content:
		return contentToMCP(t, x)
	case *pb.CompleteResponse:
		out := map[string]any{}
		extra := documentOf(t, x.Extra, x.ExtraJson)
		completion, _ := extra["completion"].(map[string]any)
		if completion == nil {
			completion = map[string]any{}
		}
		rest := proto.CloneOf(x)
		rest.Extra, rest.ExtraJson = nil, nil
		for k, v := range fieldsToMCP(t, rest.ProtoReflect(), nil) {
			if k == "values" || k == "total" || k == "hasMore" {
				if _, misfit := completion[k]; !misfit {
					completion[k] = v
				}
			} else {
				out[k] = v
			}
		}
		maps.Copy(out, extra)
		if c, present := extra["completion"]; len(completion) > 0 && (!present || isObject(c)) {
			out["completion"] = completion
		}
		return out
	}
	return fieldsToMCP(t, m, nil)
}

func contentToMCP(t testing.TB, m *pb.Content) any {
	out := map[string]any{}
	switch k := m.GetKind().(type) {
	case *pb.Content_Text:
		out["type"] = "text"
		fieldsToMCP(t, k.Text.ProtoReflect(), out)
	case *pb.Content_Image:
		out["type"] = "image"
		fieldsToMCP(t, k.Image.ProtoReflect(), out)
	case *pb.Content_Audio:
		out["type"] = "audio"
		fieldsToMCP(t, k.Audio.ProtoReflect(), out)
	case *pb.Content_ResourceLink:
		out["type"] = "resource_link"
		fieldsToMCP(t, k.ResourceLink.ProtoReflect(), out)
	case *pb.Content_Resource:
		out["type"] = "resource"
		if k.Resource.GetContents() != nil {
			out["resource"] = toMCP(t, k.Resource.GetContents().ProtoReflect())
		}
	case *pb.Content_Unknown:
		if k.Unknown.ValueJson != nil {
			return parseJSON(t, []byte(k.Unknown.GetValueJson()))
		}
		return structToJSON(t, k.Unknown.GetValue())
	}
	rest := proto.CloneOf(m)
	rest.Kind = nil
	return fieldsToMCP(t, rest.ProtoReflect(), out)
}

func documentOf(t testing.TB, s *structpb.Struct, text *string) map[string]any {
	t.Helper()
	document := structToJSON(t, s)
	if text != nil {
		document = parseJSON(t, []byte(*text))
	}
	object, ok := document.(map[string]any)
	if !ok {
		t.Fatalf("%v is no object", document)
	}
	return object
}

// fieldsToMCP adds the fields of m to out; for a document the text, if there is one, and the members of extra last.
func fieldsToMCP(t testing.TB, m protoreflect.Message, out map[string]any) map[string]any {
	if out == nil {
		out = map[string]any{}
	}
	fields := m.Descriptor().Fields()
	var extra any
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		base, isText := strings.CutSuffix(string(fd.Name()), "_json")
		var v any
		if isText {
			v = parseJSON(t, []byte(m.Get(fd).String()))
		} else {
			v = fieldToMCP(t, fd, m.Get(fd))
		}
		switch {
		case base == "extra":
			extra = v // the text comes after the Struct
		case fd.FullName() == "mcpbridge.v1.InputRequest.id": // the key of the map
		default:
			out[jsonName(base)] = v
		}
	}
	if members, ok := extra.(map[string]any); ok {
		maps.Copy(out, members)
	}
	return out
}

func jsonName(protoName string) string {
	switch protoName {
	case "meta":
		return "_meta"
	case "tool_result":
		return "result"
	}
	parts := strings.Split(protoName, "_")
	for i, p := range parts[1:] {
		parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}

func fieldToMCP(t testing.TB, fd protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if fd.IsList() {
		if fd.Name() == "input_requests" {
			requests := map[string]any{}
			for i := range v.List().Len() {
				m := v.List().Get(i).Message()
				question, ok := m.Interface().(*pb.InputRequest)
				if !ok {
					t.Fatalf("%v is no question", m)
				}
				requests[question.GetId()] = toMCP(t, m)
			}
			return requests
		}
		list := []any{}
		for i := range v.List().Len() {
			list = append(list, scalarToMCP(t, fd, v.List().Get(i)))
		}
		return list
	}
	return scalarToMCP(t, fd, v)
}

func scalarToMCP(t testing.TB, fd protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return toMCP(t, v.Message())
	case protoreflect.EnumKind:
		name := string(fd.Enum().Values().ByNumber(v.Enum()).Name())
		for _, prefix := range []string{"ROLE_", "CACHE_SCOPE_", "TASK_STATUS_"} {
			name = strings.TrimPrefix(name, prefix)
		}
		return strings.ToLower(name)
	case protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	case protoreflect.Int64Kind:
		return canonicalNumber(json.Number(v.String()))
	case protoreflect.DoubleKind:
		return canonicalNumber(json.Number(appendNumber(nil, v.Float())))
	}
	return v.Interface()
}

func structToJSON(t testing.TB, s *structpb.Struct) any {
	raw, err := document(s, "document")
	if err != nil {
		t.Fatalf("write Struct: %v", err)
	}
	return parseJSON(t, raw)
}

func valueToJSON(t testing.TB, v *structpb.Value) any {
	var w writer
	if err := w.value(v); err != nil {
		t.Fatalf("write Value: %v", err)
	}
	return parseJSON(t, w.out)
}

// parseJSON decodes with numbers as canonical decimals.
func parseJSON(t testing.TB, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("parse %.200q: %v", raw, err)
	}
	return canonical(v)
}

func canonical(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = canonical(v[k])
		}
	case []any:
		for i := range v {
			v[i] = canonical(v[i])
		}
	case json.Number:
		return canonicalNumber(v)
	}
	return v
}

// canonicalNumber makes equal decimals, and only those, equal: 1.0, 1 and 10e-1.
func canonicalNumber(n json.Number) json.Number {
	digits, exp, ok := decimal(nil, []byte(n))
	if !ok {
		return n
	}
	sign := ""
	if n[0] == '-' {
		sign = "-"
	}
	return json.Number(sign + "0." + string(digits) + "e" + string(appendNumber(nil, float64(exp))))
}

// documents are the members that hold JSON documents, in which nothing may change.
var documents = map[string]bool{
	"inputSchema": true, "outputSchema": true, "execution": true, "_meta": true, "structuredContent": true, "params": true,
}

// prune leaves out what conversions may leave out by contract: null, empty lists and empty strings of MCP fields, and
// the usual resultType; and brings Base64 to one form.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if documents[k] {
				if x != nil || k == "structuredContent" {
					out[k] = x
				}
				continue
			}
			if s, ok := x.(string); ok && (k == "data" || k == "blob") {
				x = canonicalBase64(s)
			}
			if k == "resultType" && (x == "complete" || x == "task" || x == "input_required") {
				continue
			}
			x = prune(x)
			switch e := x.(type) {
			case nil:
				continue
			case string:
				if e == "" {
					continue
				}
			case []any:
				if len(e) == 0 {
					continue
				}
			case map[string]any:
				if len(e) == 0 && (k == "completion" || k == "inputRequests") {
					continue
				}
			case json.Number:
				if k == "code" && e == canonicalNumber("0") {
					continue
				}
			}
			out[k] = x
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			if x = prune(x); x != nil {
				out = append(out, x)
			}
		}
		return out
	}
	return v
}

func canonicalBase64(s string) string {
	r := newReader([]byte(mustQuote(s)), rawjson.Index{}, 0)
	var b []byte
	if !r.base64(&b) {
		return s
	}
	return base64.StdEncoding.EncodeToString(b)
}

func mustQuote(s string) string {
	q, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return string(q)
}

func TestTheInverseOfTheTestsSeesEveryNumber(t *testing.T) {
	for _, pair := range [][2]json.Number{{"1", "1.0"}, {"100", "1e2"}, {"0.5", "5E-1"}, {"0", "0e7"}} {
		if a, b := canonicalNumber(pair[0]), canonicalNumber(pair[1]); a != b {
			t.Errorf("%s and %s are the same number, but %s and %s differ", pair[0], pair[1], a, b)
		}
	}
	for _, pair := range [][2]json.Number{{"9007199254740993", "9007199254740992"}, {"-0", "0"}, {"0.1", "0.10000000000000001"}} {
		if a, b := canonicalNumber(pair[0]), canonicalNumber(pair[1]); a == b {
			t.Errorf("%s and %s differ, but both are %s", pair[0], pair[1], a)
		}
	}
	if got := string(appendNumber(nil, math.MaxFloat64)); got != "1.7976931348623157e+308" {
		t.Errorf("largest double is written %s", got)
	}
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

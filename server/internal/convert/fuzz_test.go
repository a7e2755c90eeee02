package convert

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"
)

func FuzzFromServer(f *testing.F) {
	files, _ := filepath.Glob("testdata/corpus/*-calls.json")
	for _, file := range files {
		for _, s := range corpusSamples(f, file) {
			for i, c := range converters {
				if c.name == s.typ && len(s.raw) < 4096 {
					f.Add(uint(i), s.raw)
				}
			}
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range converters {
		f.Add(uint(i), randomObject(rnd, 4))
	}
	f.Fuzz(func(t *testing.T, n uint, raw []byte) {
		c := converters[n%uint(len(converters))]
		for _, s := range strict {
			checkStrict(t, s, raw)
		}
		for _, format := range []Format{0, textFormat} {
			m, err := c.convert(raw, format)
			if err != nil {
				continue
			}
			checkWire(t, m)
		}
		if v := jsontext.Value(raw); v.Kind() == '{' && v.IsValid() {
			checkLossless(t, c, raw)
		}
	})
}

// checkStrict checks that a conversion with demands refuses a result for them alone, and otherwise changes nothing.
func checkStrict(t testing.TB, s converter, raw []byte) {
	t.Helper()
	want, looseErr := converterOf(t, s.name).convert(raw, 0)
	got, err := s.convert(raw, 0)
	if form, ok := errors.AsType[*FormError](err); ok {
		if form.Problem == "" {
			t.Errorf("%s: a problem without text", s.name)
		}
		return
	}
	if (err == nil) != (looseErr == nil) || err == nil && !proto.Equal(want, got) {
		t.Errorf("%s: got %v, %v, want %v, %v", s.name, got, err, want, looseErr)
	}
}

func FuzzArgumentsText(f *testing.F) {
	f.Add(`{"a":[1,2.50,{"b":"\n"}]}`)
	f.Add("{\n\"a\" : \"x\\\\\\\"\"\r\n}")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := Arguments(nil, &text, "arguments")
		if err != nil {
			if _, ok := errors.AsType[*FieldError](err); !ok {
				t.Fatalf("error is %T", err)
			}
			return
		}
		if bytes.ContainsAny(raw, "\r\n") || !jsontext.Value(raw).IsValid() {
			t.Fatalf("%q became %q", text, raw)
		}
		if in, out := tokens(t, []byte(text)), tokens(t, raw); !reflect.DeepEqual(in, out) {
			t.Fatalf("%q became %q", text, raw)
		}
	})
}

// FuzzDocuments decodes any JSON and writes it again: nothing changes that is not reported by a text beside it.
func FuzzDocuments(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(randomObject(rnd, 5))
	}
	f.Add([]byte(`[1e400,-0,0.1,5e-324,9007199254740993]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, text, err := valueOf(t, raw, 0)
		if err != nil || v == nil {
			return
		}
		var w writer
		if mistake := w.value(v); mistake != nil {
			t.Fatalf("%q was read but cannot be written: %v", raw, mistake)
		}
		if text != nil {
			return
		}
		if in, out := parseJSON(t, raw), parseJSON(t, w.out); !reflect.DeepEqual(in, out) {
			t.Fatalf("%q became %q without its text", raw, w.out)
		}
		again, text, err := valueOf(t, w.out, 0)
		if err != nil || text != nil || !reflect.DeepEqual(valueToJSON(t, v), valueToJSON(t, again)) {
			t.Fatalf("%q is not stable: %v, %v", w.out, text, err)
		}
	})
}

// tokens are the tokens of JSON as they are written.
func tokens(t testing.TB, raw []byte) (out []string) {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		switch dec.PeekKind() {
		case '{', '[', '}', ']':
			tok, err := dec.ReadToken()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, tok.String())
		case 0:
			return out
		default:
			v, err := dec.ReadValue()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(v))
		}
	}
}

func TestRandomObjectsLoseNothing(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		for _, c := range converters {
			checkLossless(t, c, randomObject(rnd, 5))
		}
		for _, s := range strict {
			checkStrict(t, s, randomObject(rnd, 5))
		}
	}
}

// mcpNames are names that mean something to some converter, so that random objects hit their fields, often with the
// wrong type.
var mcpNames = strings.Fields(`name title description inputSchema outputSchema annotations icons execution _meta content type
	text data mimeType uri uriTemplate size resource blob contents role messages arguments required audience priority
	lastModified src sizes theme version websiteUrl structuredContent isError resultType ttlMs cacheScope completion
	values total hasMore inputRequests requestState method params taskId status statusMessage pollIntervalMs result
	error code message readOnlyHint x y`)

var mcpStrings = []string{"text", "image", "audio", "resource", "resource_link", "user", "assistant", "complete", "task",
	"input_required", "working", "failed", "public", "private", "aGk=", "aGk", "é\\n", "\\u2028\\\"", "", "\\ud83d\\ude00"}

var numbers = []string{"0", "-1", "3.0", "1e3", "9007199254740993", "-9223372036854775808", "18446744073709551615", "0.1", "1e400",
	"1E-400", "-0", "123456789.123456789123456789", "5e-324", "1.50"}

func randomObject(rnd *rand.Rand, depth int) []byte {
	var b strings.Builder
	b.WriteString("{")
	used := map[string]bool{}
	for range rnd.IntN(7) {
		name := mcpNames[rnd.IntN(len(mcpNames))]
		if used[name] {
			continue
		}
		if len(used) > 0 {
			b.WriteString(", ")
		}
		used[name] = true
		if name == "type" || name == "role" || name == "status" {
			fmt.Fprintf(&b, "%q:\"%s\"", name, mcpStrings[rnd.IntN(len(mcpStrings))])
			continue
		}
		fmt.Fprintf(&b, "%q: ", name)
		randomValue(&b, rnd, depth-1)
	}
	b.WriteString("}")
	return []byte(b.String())
}

func randomValue(b *strings.Builder, rnd *rand.Rand, depth int) {
	n := rnd.IntN(9)
	if depth <= 0 {
		n = rnd.IntN(5)
	}
	switch n {
	case 0:
		b.WriteString("null")
	case 1:
		b.WriteString([]string{"true", "false"}[rnd.IntN(2)])
	case 2:
		b.WriteString(numbers[rnd.IntN(len(numbers))])
	case 3, 4:
		b.WriteString(`"` + mcpStrings[rnd.IntN(len(mcpStrings))] + `"`)
	case 5, 6:
		b.WriteString("[")
		for i := range rnd.IntN(4) {
			if i > 0 {
				b.WriteString(" ,")
			}
			randomValue(b, rnd, depth-1)
		}
		b.WriteString("]")
	default:
		b.Write(randomObject(rnd, depth))
	}
}

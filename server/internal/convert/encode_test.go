package convert

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// checkDocument compares a document with what protojson reads. It reports false for what protojson refuses.
func checkDocument(t *testing.T, raw []byte) bool {
	t.Helper()
	want := new(structpb.Value)
	if err := protojson.Unmarshal(raw, want); err != nil {
		return false
	}
	got, _, err := valueOf(t, raw, 0)
	if err != nil || !proto.Equal(want, got) {
		t.Fatalf("%.300q became %.300v, %v, want %.300v", raw, got, err, want)
	}
	return true
}

func TestDocumentsAreWhatProtojsonReads(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	read := 0
	for range 5000 {
		if checkDocument(t, randomObject(rnd, 8)) {
			read++
		}
	}
	if read < 2000 {
		t.Errorf("protojson read %d of 5000 documents only", read)
	}
}

func TestDocumentsOfEverySizeAreEncoded(t *testing.T) {
	for _, edge := range []int{0, 1 << 7, 1 << 9, 1 << 14, 1 << 21} {
		for size := max(0, edge-40); size < edge+8; size++ {
			if size > 1<<20 && size%8 != 0 {
				continue
			}
			text := strings.Repeat("x", size)
			for _, form := range []string{`%q`, `[%q]`, `{"a":[{"b":%q},1],"c":true}`, `[[[%q,"\n"]]]`} {
				if !checkDocument(t, fmt.Appendf(nil, form, text)) {
					t.Fatalf("protojson does not read %s", form)
				}
			}
		}
	}
	if !checkDocument(t, []byte("["+strings.TrimSuffix(strings.Repeat(`{"n":1},`, 10_000), ",")+"]")) {
		t.Fatal("protojson does not read the list")
	}
}

func TestARepeatedNameIsFoundAmongAnyNumber(t *testing.T) {
	for _, n := range []int{2, 15, 16, 17, 40} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"name%d":{"name%d":%d},`, i, i, i)
		}
		if _, text, err := Struct([]byte("{"+strings.TrimSuffix(b.String(), ",")+"}"), 0); text != nil || err != nil {
			t.Errorf("%d names are taken for repeated, %v", n, err)
		}
		s, text, err := structOf(t, []byte("{"+b.String()+`"n\u0061me0":"again"}`), 0)
		if err != nil || text == nil || s.GetFields()["name0"].GetStringValue() != "again" || len(s.GetFields()) != n {
			t.Errorf("%d names and one again: %v, %v", n, s, err)
		}
	}
}

func TestDecodedLeavesTheOriginalAsItIs(t *testing.T) {
	m, err := ToolResult([]byte(`{"content":[{"type":"text","text":"x","_meta":{"a":1}}],"structuredContent":[1]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	before := proto.CloneOf(m)
	out, err := Decoded(m)
	if err != nil || out.GetStructuredContent().GetListValue().GetValues()[0].GetNumberValue() != 1 || out.GetContent()[0].GetMeta().GetFields()["a"] == nil {
		t.Fatalf("got %v, %v", out, err)
	}
	if !proto.Equal(before, m) || m.GetStructuredContent() == nil {
		t.Errorf("the original became %v", m)
	}
	if again, err := Decoded(out); err != nil || again != out {
		t.Errorf("a message without anything to decode was copied, %v", err)
	}
}

// sameResult compares two results in binary form, in which all of them are the same.
func sameResult(t testing.TB, a, b *pb.ToolResult) bool {
	t.Helper()
	a, errA := Decoded(a)
	b, errB := Decoded(b)
	return errA == nil && errB == nil && proto.Equal(a, b)
}

func TestWhatIsKnownOfAResultChangesNothing(t *testing.T) {
	for _, size := range []int{100, 10 << 10, 100 << 10} {
		raw := toolResultOf(size)
		raw = append(append([]byte(`{"id":1,"result": `), raw...), '}')
		m, err := jsonrpc.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []Format{0, textFormat} {
			want, err := ToolResult(m.Result, f)
			if err != nil {
				t.Fatal(err)
			}
			response, err := ToolResponse(m.Result, m.Known, f)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decoded(response)
			if err != nil || !sameResult(t, want, got.GetResult()) {
				t.Errorf("%d bytes as %s: %.300v, %v, want %.300v", size, f, got, err, want)
			}
		}
	}
}

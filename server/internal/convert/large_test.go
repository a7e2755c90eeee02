package convert

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// checkByHand compares a response that is written by hand with what protobuf makes of the result, and reports whether it
// was.
func checkByHand(t testing.TB, result string) (byHand bool) {
	t.Helper()
	m, err := jsonrpc.Decode([]byte(`{"id":1,"result": ` + result + `}`))
	if err != nil {
		t.Fatalf("%.200s: %v", result, err)
	}
	for _, f := range []Format{0, textFormat} {
		want, wantErr := ToolResult(m.Result, f)
		got, err := ToolResponse(bytes.Clone(m.Result), m.Known, f)
		if wantErr != nil || err != nil {
			if wantErr == nil || err == nil || wantErr.Error() != err.Error() {
				t.Fatalf("%.200s: %v, want %v", result, err, wantErr)
			}
			continue
		}
		byHand = byHand || len(got.ProtoReflect().GetUnknown()) > 0
		wire := proto.MarshalOptions{Deterministic: true}
		wantWire, wantErr := wire.Marshal(&pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: want}})
		gotWire, err := wire.Marshal(got)
		if err != nil || wantErr != nil {
			t.Fatal(err, wantErr)
		}
		if !bytes.Equal(gotWire, wantWire) {
			t.Fatalf("%.200s as %s: %d bytes %.100q, want %d %.100q", result, f, len(gotWire), gotWire, len(wantWire), wantWire)
		}
		if decoded, err := Decoded(got); err != nil || decoded.GetResult() == nil {
			t.Fatalf("%.200s as %s: decoded to %v, %v", result, f, decoded, err)
		}
	}
	return byHand
}

func TestLargeStringsHaveTheSameBytesOnTheWire(t *testing.T) {
	plain := strings.Repeat("x", largeBytes)
	lines := strings.Repeat(`{"a": "b\\"}`+"\n", largeBytes/10)
	quoted := strconv.Quote(lines)
	escapes := `"` + strings.Repeat(`\u00e9\ud83d\ude00\ud83d\"`, largeBytes/20) + `"`
	invalid := `"` + strings.Repeat("a\xff\\n", largeBytes/2) + `"`
	text := func(json string) string { return `{"type":"text","text":` + json + `}` }
	small := text(`"small"`)
	for name, result := range map[string]string{
		"plain":               `{"content":[` + text(`"`+plain+`"`) + `]}`,
		"escapes":             `{"resultType":"complete","content":[` + text(quoted) + `],"isError":true}`,
		"four digits":         `{"content":[` + text(escapes) + `]}`,
		"invalid":             `{"content":[` + text(invalid) + `]}`,
		"several":             `{"content":[` + small + `,` + text(quoted) + `,null,` + small + `,` + text(`"`+plain+`"`) + `],"_meta":{"a":1},"more":[1]}`,
		"with more":           `{"content":[{"text":` + quoted + `,"_meta":{"a":1},"type":"text","annotations":{"priority":1},"b":2}]}`,
		"twice":               `{"content":[{"type":"text","text":` + quoted + `,"text":"` + plain + `"}]}`,
		"twice, a small last": `{"content":[{"type":"text","text":` + quoted + `,"text":"x"},` + text(quoted) + `]}`,
		"twice, null last":    `{"content":[{"type":"text","text":` + quoted + `,"text":null},` + text(quoted) + `]}`,
		"twice, no text last": `{"content":[{"type":"text","text":` + quoted + `,"text":1}]}`,
		"two lists":           `{"content":[` + text(quoted) + `],"content":[` + small + `]}`,
		"structured":          `{"content":[],"structuredContent":{"a":[` + quoted + `]},"isError":false,"_meta":{"b":1}}`,
		"both":                `{"content":[` + small + `,` + text(quoted) + `],"structuredContent":{"a":` + quoted + `},"x":` + quoted + `}`,
		"structured, invalid": `{"content":[` + text(quoted) + `],"structuredContent":[` + invalid + `]}`,
		"structured twice":    `{"structuredContent":[` + quoted + `],"structuredContent":null}`,
		"image beside":        `{"content":[{"type":"image","data":"` + plain + `","mimeType":"a/b"},` + text(quoted) + `]}`,
	} {
		t.Run(name, func(t *testing.T) { checkByHand(t, result) })
	}
	if !checkByHand(t, `{"content":[`+text(quoted)+`]}`) {
		t.Error("a large text was not written by hand")
	}
	checkByHand(t, `{"content":`+quoted+`}`)
}

func TestLargeStringsOfEverySizeAreWritten(t *testing.T) {
	for _, edge := range []int{largeBytes, 1 << 21} {
		for size := edge - 20; size < edge+20; size++ {
			x := strings.Repeat("x", size)
			checkByHand(t, `{"content":[{"type":"text","text":"\n`+x+`"}]}`)
			checkByHand(t, `{"content":[],"structuredContent":"`+x+`"}`)
		}
	}
}

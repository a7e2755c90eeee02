package convert

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func BenchmarkTmp(b *testing.B) {
	text := strconv.Quote(strings.Repeat(`{"id": 12345, "name": "a row of some table", "tags": ["one", "two"]}`+"\n", 5<<20/70))
	const row = `{"id":12345,"name":"a row of some table","tags":["one","two"],"price":12.5}`
	rows := strings.TrimSuffix(strings.Repeat(row+",", 5<<20/len(row)), ",")
	for name, raw := range map[string][]byte{
		"text": []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":` + text + `}]}}`),
		"rows": []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"rows":[` + rows + `]}}}`),
	} {
		for _, f := range []Format{0, 2} {
			b.Run(name+"/"+f.String(), func(b *testing.B) {
				buf := make([]byte, 0, 20<<20)
				for b.Loop() {
					m, err := jsonrpc.Decode(raw)
					if err != nil {
						b.Fatal(err)
					}
					r, err := KnownToolResult(m.Result, m.Known, f)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := (proto.MarshalOptions{}).MarshalAppend(buf, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(name+"/floor", func(b *testing.B) {
			buf := make([]byte, 0, 20<<20)
			for b.Loop() {
				s := string(raw)
				r := &pb.ToolResult{StructuredContentJson: &s}
				if _, err := (proto.MarshalOptions{}).MarshalAppend(buf, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

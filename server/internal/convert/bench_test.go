package convert

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// toolResultOf makes a tool result of about size bytes: half text, half structured content.
func toolResultOf(size int) []byte {
	const row = `{"id":12345,"name":"row name","score":0.125,"tags":["a","b"],"ok":true,"next":null}`
	rows := strings.TrimSuffix(strings.Repeat(row+",", max(1, size/2/len(row))), ",")
	text := strings.Repeat("line of text\\n", max(1, size/2/14))
	return []byte(`{"content":[{"type":"text","text":"` + text + `"}],"structuredContent":{"rows":[` + rows + `]},"isError":false}`)
}

func BenchmarkToolResult(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		raw := toolResultOf(size)
		for _, f := range []Format{0, textFormat} {
			b.Run(fmt.Sprintf("size=%dKB/%s", size>>10, strings.TrimPrefix(f.String(), "JSON_FORMAT_")), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := ToolResult(raw, f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkToolResultToWire adds what gRPC does with the message.
func BenchmarkToolResultToWire(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		raw := toolResultOf(size)
		b.Run(fmt.Sprintf("size=%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				m, err := ToolResult(raw, 0)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := proto.Marshal(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkArguments(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		raw := toolResultOf(size)
		s, _, err := structOf(b, raw, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("size=%dKB/struct", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Arguments(s, nil, "arguments"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("size=%dKB/text", size>>10), func(b *testing.B) {
			text := string(raw)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Arguments(nil, &text, "arguments"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

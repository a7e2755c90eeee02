package rawjson

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// samples are results as servers send them: a text full of quotes, rows of many
// small values, and text beyond ASCII.
func samples(size int) map[string][]byte {
	const row = `{"id":12345,"name":"a row of some table","tags":["one","two"],"price":12.5}`
	rows := strings.TrimSuffix(strings.Repeat(row+",", size/len(row)), ",")
	text := strconv.Quote(strings.Repeat(`{"id": 12345, "name": "a row of some table", "tags": ["one", "two"]}`+"\n", size/70))
	return map[string][]byte{
		"text":  []byte(`{"content":[{"type":"text","text":` + text + `}]}`),
		"rows":  []byte(`{"structuredContent":{"rows":[` + rows + `]}}`),
		"words": []byte(`{"text":"` + strings.Repeat("日本語 ", size/10) + `"}`),
		"plain": []byte(`{"text":"` + strings.Repeat("0123456789abcdef", size/16) + `"}`),
	}
}

func BenchmarkValue(b *testing.B) {
	for name, data := range samples(1 << 20) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				s := New(data, Index{})
				s.Record()
				if s.Value(); s.End() != nil {
					b.Fatal(s.Err())
				}
			}
		})
	}
}

func BenchmarkUnquote(b *testing.B) {
	for name, data := range samples(1 << 20) {
		quoted := data[strings.IndexByte(string(data), ':')+1 : len(data)-1]
		if name == "text" {
			quoted = data[strings.LastIndex(string(data), `"text":`)+7 : len(data)-3]
		}
		if quoted[0] != '"' {
			continue
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(quoted)))
			b.ReportAllocs()
			for b.Loop() {
				if _, clean := Unquote(quoted); !clean {
					b.Fatal("not clean")
				}
			}
		})
	}
}

func BenchmarkReference(b *testing.B) {
	for name, data := range samples(1 << 20) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
					b.Fatal()
				}
			}
		})
	}
}

package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var seeds = []string{
	`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":"a","error":{"code":-1,"message":"m"}}`, `{"id":null,"error":"x"}`,
	`{"method":"n","params":{"a":[1,2,{"b":null}]}}`, `{"id":1,"method":"m"}`, `{"id":1,"result":{`, `[]`, `{"\u0069d":1}`,
	"{\"id\":\"\xff\"}", `{"id":1e5}`, `42`, ``,
}

func FuzzDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		m, err := Decode(data)
		if !bytes.Equal(before, data) {
			t.Fatal("Decode wrote to its input")
		}
		if err != nil {
			if m != nil && (m.Kind != Invalid || m.ID.IsZero()) {
				t.Fatalf("error with message %+v", m)
			}
			return
		}
		if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("accepted invalid JSON %q", data)
		}
		var again []byte
		switch m.Kind {
		case Request:
			again = AppendRequest(nil, m.ID, m.Method, m.Params)
		case Notification:
			again = AppendNotification(nil, m.Method, m.Params)
		case Response:
			if m.Error != nil {
				again = AppendError(nil, m.ID, m.Error)
			} else {
				again = AppendResult(nil, m.ID, m.Result)
			}
		case Invalid:
			t.Fatal("invalid without an error")
		}
		if bytes.ContainsAny(again, "\r\n") {
			t.Fatalf("line break in %q", again)
		}
		n, err := Decode(again)
		if err != nil || n.Kind != m.Kind || n.ID != m.ID || n.Method != m.Method {
			t.Fatalf("%q became %q: %+v, %v", data, again, n, err)
		}
	})
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"1", `"a"`, "-0", "1.0", "null", `"\n"`, "123456789012345678901234567890"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, err := ParseID(raw)
		if err != nil {
			return
		}
		out := id.AppendJSON(nil)
		again, err := ParseID(out)
		if err != nil || again != id {
			t.Fatalf("%q → %q → %#v, %v", raw, out, again, err)
		}
		if !json.Valid(raw) {
			t.Fatalf("accepted %q, which is no JSON", raw)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for name, size := range map[string]int{"1KB": 1 << 10, "100KB": 100 << 10} {
		b.Run(name, func(b *testing.B) {
			row := `{"name":"row","n":12345,"ok":true,"tags":["a","b"],"nested":{"x":1.5,"y":null}},`
			body := []byte(`{"jsonrpc":"2.0","id":12345,"result":{"content":[` +
				strings.TrimSuffix(strings.Repeat(row, max(1, size/len(row))), ",") + `]}}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if m, err := Decode(body); err != nil || m.ID != IntID(12345) {
					b.Fatal(m, err)
				}
			}
		})
	}
}

func BenchmarkAppendRequest(b *testing.B) {
	params := []byte(`{"name":"echo","arguments":{"message":"hello"},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`)
	buf := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendRequest(buf[:0], IntID(12345), "tools/call", params)
	}
}

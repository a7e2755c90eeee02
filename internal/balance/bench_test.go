package balance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// BenchmarkPost compares a small call through the balancer with one that goes
// right to its server.
func BenchmarkPost(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w)
	})
	var list []string
	for range 3 {
		server := httptest.NewServer(handler)
		defer server.Close()
		list = append(list, server.URL)
	}
	for _, bench := range []struct {
		name   string
		target func(b *testing.B) *target
	}{
		{"plain", func(*testing.B) *target {
			return &target{HTTP: &transport.HTTP{URL: list[0], SSEFallback: transport.SSENever}}
		}},
		{"replicas=1", func(b *testing.B) *target { return over(b, list[:1], Options{}) }},
		{"replicas=3", func(b *testing.B) *target { return over(b, list, Options{}) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			conn := bench.target(b).dial(b)
			r := modern("tools/call")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Call(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

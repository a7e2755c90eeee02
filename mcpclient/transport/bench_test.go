//go:build unix

package transport

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// BenchmarkPost compares a call with the least that net/http needs for it, and
// with the same reply as an event stream.
func BenchmarkPost(b *testing.B) {
	body := jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), "tools/call", []byte(`{"name":"echo","arguments":{"message":"hello"}}`))
	result := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}],"isError":false}}`)
	server := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("event: message\ndata: " + string(result) + "\n\n"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(result)
	})
	b.Run("bare", func(b *testing.B) {
		tr := &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true}
		client := &http.Client{Transport: tr}
		defer tr.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL, bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set("Mcp-Protocol-Version", modernVersion)
			req.Header.Set("Mcp-Method", "tools/call")
			req.Header.Set("Mcp-Name", "echo")
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	})
	for _, path := range []string{"json", "stream"} {
		b.Run(path, func(b *testing.B) {
			conn := dialURL(b, server.URL+"/"+path)
			r := &Request{ID: jsonrpc.IntID(1), Method: "tools/call", Name: "echo", Version: modernVersion, Modern: true, Body: body}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Call(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStdio is one round trip to a process.
func BenchmarkStdio(b *testing.B) {
	conn := dial(b, child("banner", ""), nil)
	r := legacy(1, "x")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Call(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

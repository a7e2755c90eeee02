package main

import (
	"encoding/json"
	"net/http"
)

// serveMCP is the least MCP server that both eras accept, with one tool, echo. It answers with JSON and without
// sessions, so that it costs little beside what is measured.
func serveMCP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Arguments struct {
				Text json.RawMessage `json:"text"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	if len(message.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	const info = `"capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}`
	status, answer := http.StatusOK, ""
	switch message.Method {
	case "server/discover":
		answer = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":60000,"cacheScope":"public",` + info + `}`
	case "initialize":
		answer = `"result":{"protocolVersion":"2025-11-25",` + info + `}`
	case "tools/list":
		answer = `"result":{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]}`
	case "tools/call":
		answer = `"result":{"resultType":"complete","content":[{"type":"text","text":` + string(message.Params.Arguments.Text) + `}]}`
	case "ping":
		answer = `"result":{}`
	default:
		status, answer = http.StatusNotFound, `"error":{"code":-32601,"message":"Method not found"}`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(message.ID) + `,` + answer + `}`))
}

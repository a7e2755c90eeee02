package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// answer is the text of a tool's result: rows of JSON, since tools answer with such more than with prose.
func answer(tool string) string {
	size := 1 << 10
	if tool == "large" {
		size = 1 << 20
	}
	const row = `{"id": 12345, "name": "a row of some table", "tags": ["one", "two"]}` + "\n"
	return strings.Repeat(row, size/len(row)+1)[:size]
}

// serve is the server's process: server json|sse|stdio. It is the least MCP server of the newest era.
func serve(args []string) error {
	if len(args) != 1 {
		return errors.New("the server takes the transport as its argument")
	}
	s, err := newServer()
	if err != nil {
		return err
	}
	if args[0] == "stdio" {
		return s.stdio(os.Stdin, os.Stdout)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.http(w, r, args[0] == "sse") }))
}

// server has prepared results by method, and by tool.
type server struct{ results map[string]string }

func newServer() (*server, error) {
	s := &server{results: map[string]string{
		"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":60000,"cacheScope":"public","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`,
		"tools/list":      `{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"small","inputSchema":{"type":"object"}},{"name":"large","inputSchema":{"type":"object"}}]}`,
	}}
	for _, tool := range []string{"small", "large"} {
		text, err := json.Marshal(answer(tool))
		if err != nil {
			return nil, err
		}
		s.results[tool] = `{"resultType":"complete","content":[{"type":"text","text":` + string(text) + `}]}`
	}
	return s, nil
}

// reply returns the answer to a message, and "" for a notification.
func (s *server) reply(message []byte) (string, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if err := json.Unmarshal(message, &m); err != nil || len(m.ID) == 0 {
		return "", err
	}
	key := m.Method
	if key == "tools/call" {
		key = m.Params.Name
	}
	result, ok := s.results[key]
	if !ok {
		return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"method not found"}}`, nil
	}
	return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`, nil
}

func (s *server) http(w http.ResponseWriter, r *http.Request, stream bool) {
	if r.Method != http.MethodPost {
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	message, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	reply, err := s.reply(message)
	switch {
	case err != nil:
		http.Error(w, "not JSON", http.StatusBadRequest)
	case reply == "":
		w.WriteHeader(http.StatusAccepted)
	case stream:
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: message\ndata: "+reply+"\n\n") // the client may be gone
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply)
	}
}

func (s *server) stdio(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		reply, err := s.reply(line)
		if err != nil {
			return err
		}
		if reply == "" {
			continue
		}
		_, err = io.WriteString(out, reply+"\n")
		if err != nil {
			return err
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// upstreamConnections is what both references keep open to the MCP server: as many as there are callers, so that
// neither pays for connections.
const upstreamConnections = 1024

func upstreamClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: upstreamConnections}}
}

// poster does one bare POST to the MCP server and forwards the reply as it is, without looking into it: the floor.
type poster struct {
	url    string
	client *http.Client
	tokens atomic.Int64 // of progress
}

func newPoster(url string) *poster { return &poster{url: url, client: upstreamClient()} }

// post sends a request of revision 2026-07-28; servers of before accept it, if they are as lenient as that of lightmcp.
// meta and params are members, each with a comma behind it.
func (p *poster) post(ctx context.Context, method, name, meta, params string) (*http.Response, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{` + meta +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", method)
	if name != "" {
		r.Header.Set("Mcp-Name", name)
	}
	reply, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		reply.Body.Close()
		return nil, fmt.Errorf("the MCP server answers with status %s", reply.Status)
	}
	return reply, nil
}

func callParams(request *pb.CallToolRequest) string {
	return `"name":"` + request.GetName() + `","arguments":` + request.GetArgumentsJson() + `,`
}

func (p *poster) CallTool(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	raw, err := read(p.post(ctx, "tools/call", request.GetName(), "", callParams(request)))
	if err != nil {
		return nil, err
	}
	return verbatim(raw), nil
}

func (p *poster) ListTools(ctx context.Context, _ *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	raw, err := read(p.post(ctx, "tools/list", "", "", ""))
	if err != nil {
		return nil, err
	}
	return &pb.ListToolsResponse{Tools: []*pb.Tool{{InputSchemaJson: &raw}}}, nil
}

// read returns the body, with one buffer of the right size where the length is known.
func read(reply *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	var b bytes.Buffer
	if reply.ContentLength > 0 {
		b.Grow(int(reply.ContentLength) + bytes.MinRead)
	}
	_, err = b.ReadFrom(reply.Body)
	return b.String(), err
}

func (p *poster) StreamTool(ctx context.Context, request *pb.CallToolStreamRequest, tell func(*pb.CallToolStreamResponse) error) error {
	call := request.GetCall()
	meta := `"progressToken":` + strconv.FormatInt(p.tokens.Add(1), 10) + `,`
	reply, err := p.post(ctx, "tools/call", call.GetName(), meta, callParams(call))
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	lines := bufio.NewReader(reply.Body)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		event := progressEvent(&pb.Progress{Message: &data})
		if !strings.Contains(data, `"method":"notifications/progress"`) {
			event = outcomeEvent(verbatim(data))
		}
		if err := tell(event); err != nil {
			return err
		}
	}
}

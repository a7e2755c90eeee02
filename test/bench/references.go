package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
)

// caller is how a reference answers a call.
type caller func(context.Context, *pb.CallToolRequest) (*pb.CallToolResponse, error)

// serveRole runs one of the children until it is interrupted.
func serveRole(role, url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	handler := http.Handler(http.HandlerFunc(serveMCP))
	switch role {
	case "server":
	case "collector":
		handler = newCollector()
	default:
		call, err := map[string]func(string) (caller, error){"post": post, "sdk": sdk}[role](url)
		if err != nil {
			return err
		}
		server := connect.NewServer()
		mcpbridgev1connect.RegisterToolsServiceHandler(server, service{call: call})
		mux := http.NewServeMux()
		connecthttp.Mount(mux, server)
		handler = mux
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Println("listening", listener.Addr())
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

type service struct {
	mcpbridgev1connect.ToolsServiceHandler // the methods that are not measured

	call caller
}

func (s service) CallTool(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return s.call(ctx, request)
}

func (service) ListTools(context.Context, *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	return nil, connect.NewError(connect.CodeUnimplemented, "only CallTool is measured")
}

// post forwards the call as one POST and the reply as it is.
func post(url string) (caller, error) {
	const head = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"`
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return func(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
		body := head + request.GetName() + `","arguments":` + request.GetArgumentsJson() + `}}`
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", request.GetName())
		reply, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer reply.Body.Close()
		raw, err := io.ReadAll(reply.Body)
		if err != nil {
			return nil, err
		}
		result := &pb.ToolResult{StructuredContentJson: new(string(raw))}
		return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: result}}, nil
	}, nil
}

// sdk calls through the official Go SDK and converts the text.
func sdk(url string) (caller, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	transport := &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	session, err := client.Connect(context.Background(), transport, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
		reply, err := session.CallTool(ctx, &mcp.CallToolParams{Name: request.GetName(), Arguments: json.RawMessage(request.GetArgumentsJson())})
		if err != nil {
			return nil, err
		}
		result := &pb.ToolResult{}
		for _, content := range reply.Content {
			if text, ok := content.(*mcp.TextContent); ok {
				result.Content = append(result.Content, &pb.Content{Kind: &pb.Content_Text{Text: &pb.TextContent{Text: text.Text}}})
			}
		}
		return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: result}}, nil
	}, nil
}

package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// session calls through the client of the official Go SDK and converts what it returns.
type session struct {
	*mcp.ClientSession

	tokens  atomic.Int64 // of progress
	streams sync.Map     // token → *follower
}

// follower passes the progress of one call on. The SDK hands notifications to their handler while the answer is already
// there, so the outcome waits for the last of them; the server's total says which one that is.
type follower struct {
	tell func(*pb.CallToolStreamResponse) error
	last chan error
}

// newSession connects to a URL, or to a child process if command is given.
func newSession(ctx context.Context, url string, command []string) (*session, error) {
	s := new(session)
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, &mcp.ClientOptions{ProgressNotificationHandler: s.progress})
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: upstreamClient()}
	if len(command) > 0 {
		transport = &mcp.CommandTransport{Command: exec.CommandContext(ctx, command[0], command[1:]...)}
	}
	var err error
	s.ClientSession, err = client.Connect(ctx, transport, nil)
	return s, err
}

func (s *session) CallTool(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return s.call(ctx, &mcp.CallToolParams{Name: request.GetName(), Arguments: json.RawMessage(request.GetArgumentsJson())})
}

func (s *session) call(ctx context.Context, params *mcp.CallToolParams) (*pb.CallToolResponse, error) {
	reply, err := s.ClientSession.CallTool(ctx, params)
	if err != nil {
		return nil, err
	}
	result := &pb.ToolResult{IsError: &reply.IsError}
	for _, content := range reply.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			result.Content = append(result.Content, &pb.Content{Kind: &pb.Content_Text{Text: &pb.TextContent{Text: text.Text}}})
		}
	}
	return outcome(result), nil
}

func (s *session) ListTools(ctx context.Context, _ *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	reply, err := s.ClientSession.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	response := new(pb.ListToolsResponse)
	for _, tool := range reply.Tools {
		schema, err := json.Marshal(tool.InputSchema)
		if err != nil {
			return nil, err
		}
		response.Tools = append(response.Tools, &pb.Tool{Name: tool.Name, Title: &tool.Title, Description: &tool.Description, InputSchemaJson: new(string(schema))})
	}
	return response, nil
}

func (s *session) StreamTool(ctx context.Context, request *pb.CallToolStreamRequest, tell func(*pb.CallToolStreamResponse) error) error {
	call := request.GetCall()
	params := &mcp.CallToolParams{Name: call.GetName(), Arguments: json.RawMessage(call.GetArgumentsJson())}
	token := strconv.FormatInt(s.tokens.Add(1), 10)
	params.SetProgressToken(token)
	stream := &follower{tell: tell, last: make(chan error, 1)}
	s.streams.Store(token, stream)
	defer s.streams.Delete(token)
	response, err := s.call(ctx, params)
	if err != nil {
		return err
	}
	select {
	case err := <-stream.last:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return tell(outcomeEvent(response))
}

// progress runs for one notification after the other.
func (s *session) progress(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
	p := request.Params
	token, _ := p.ProgressToken.(string)
	found, _ := s.streams.Load(token)
	stream, ok := found.(*follower)
	if !ok {
		return
	}
	err := stream.tell(progressEvent(&pb.Progress{Progress: p.Progress, Total: &p.Total, Message: &p.Message}))
	if err != nil || p.Progress >= p.Total {
		s.streams.Delete(token) // nothing more is told
		stream.last <- err
	}
}

package main

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// api is what is measured. The bridge and the references serve it over gRPC; the references' own ways to the MCP
// server have it, too, so that the load can call them directly.
type api interface {
	CallTool(context.Context, *pb.CallToolRequest) (*pb.CallToolResponse, error)
	ListTools(context.Context, *pb.ListToolsRequest) (*pb.ListToolsResponse, error)
	// StreamTool passes each event to tell, the outcome last.
	StreamTool(ctx context.Context, request *pb.CallToolStreamRequest, tell func(*pb.CallToolStreamResponse) error) error
}

// remote is the api of another process over one gRPC connection.
type remote struct {
	conn  *grpc.ClientConn
	tools mcpbridgegrpc.ToolsServiceClient
}

// dial does not connect yet.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
}

func newRemote(address string) (*remote, error) {
	conn, err := dial(address)
	if err != nil {
		return nil, err
	}
	return &remote{conn: conn, tools: mcpbridgegrpc.NewToolsServiceClient(conn)}, nil
}

func (r *remote) Close() error { return r.conn.Close() }

func (r *remote) CallTool(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return r.tools.CallTool(ctx, request)
}

func (r *remote) ListTools(ctx context.Context, request *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	return r.tools.ListTools(ctx, request)
}

func (r *remote) StreamTool(ctx context.Context, request *pb.CallToolStreamRequest, tell func(*pb.CallToolStreamResponse) error) error {
	stream, err := r.tools.CallToolStream(ctx, request)
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := tell(event); err != nil {
			return err
		}
	}
}

// outcome wraps a result of a call.
func outcome(result *pb.ToolResult) *pb.CallToolResponse {
	return &pb.CallToolResponse{Outcome: &pb.CallToolResponse_Result{Result: result}}
}

// verbatim is the outcome of a reference that does not look into the answer.
func verbatim(raw string) *pb.CallToolResponse {
	return outcome(&pb.ToolResult{StructuredContentJson: &raw})
}

func progressEvent(p *pb.Progress) *pb.CallToolStreamResponse {
	return &pb.CallToolStreamResponse{Event: &pb.CallToolStreamResponse_Progress{Progress: p}}
}

func outcomeEvent(response *pb.CallToolResponse) *pb.CallToolStreamResponse {
	return &pb.CallToolStreamResponse{Event: &pb.CallToolStreamResponse_Outcome{Outcome: response}}
}

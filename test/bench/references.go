package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// connectTools serves an api with Connect handlers.
type connectTools struct {
	mcpbridgev1connect.ToolsServiceHandler // the methods that are not measured
	api
}

func (s connectTools) CallTool(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return s.api.CallTool(ctx, request)
}

func (s connectTools) ListTools(ctx context.Context, request *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	return s.api.ListTools(ctx, request)
}

func (s connectTools) CallToolStream(ctx context.Context, request *pb.CallToolStreamRequest, stream mcpbridgev1connect.ToolsServiceCallToolStreamServerStream) error {
	return s.StreamTool(ctx, request, stream.Send)
}

// grpcTools serves an api with the handlers that grpc-go generates.
type grpcTools struct {
	mcpbridgegrpc.UnimplementedToolsServiceServer
	api
}

func (s grpcTools) CallTool(ctx context.Context, request *pb.CallToolRequest) (*pb.CallToolResponse, error) {
	return s.api.CallTool(ctx, request)
}

func (s grpcTools) ListTools(ctx context.Context, request *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	return s.api.ListTools(ctx, request)
}

func (s grpcTools) CallToolStream(request *pb.CallToolStreamRequest, stream grpc.ServerStreamingServer[pb.CallToolStreamResponse]) error {
	return s.StreamTool(stream.Context(), request, stream.Send)
}

func connectHandler(served api) http.Handler {
	server := connect.NewServer()
	mcpbridgev1connect.RegisterToolsServiceHandler(server, connectTools{api: served})
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	return mux
}

// serveReference serves an api with Connect behind net/http's server, and with grpc-go behind its own, until ctx ends.
func serveReference(ctx context.Context, served api) error {
	fast := grpc.NewServer()
	mcpbridgegrpc.RegisterToolsServiceServer(fast, grpcTools{api: served})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, fast.Stop)()
	failed := make(chan error, 1)
	go func() { failed <- fast.Serve(listener) }()
	fmt.Printf("gRPC on %s\n", listener.Addr())
	err = serveHTTP(ctx, connectHandler(served))
	fast.Stop()
	return errors.Join(err, <-failed)
}

// serveHTTP serves HTTP/1.1 and cleartext HTTP/2 until ctx ends.
func serveHTTP(ctx context.Context, handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, Protocols: cleartext()}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // there is nobody to tell
	fmt.Printf("listens on http://%s\n", listener.Addr())
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// cleartext is HTTP/1.1 and HTTP/2 without TLS.
func cleartext() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

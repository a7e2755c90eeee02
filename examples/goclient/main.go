// Command goclient calls a tool through a bridge, with a deadline.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/structpb"

	mcpbridgev1 "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, reasonOf(err), err)
		os.Exit(1) //nolint:gocritic // the deadline ends with the process
	}
}

func run(ctx context.Context) error {
	client := mcpbridgev1connect.NewToolsServiceClient(connect.NewClient(
		connecthttp.NewTransport(http.DefaultClient, "http://127.0.0.1:8080")))
	arguments, err := structpb.NewStruct(map[string]any{"text": "Hello from Go"})
	if err != nil {
		return err
	}
	response, err := client.CallTool(ctx, &mcpbridgev1.CallToolRequest{Target: "demo", Name: "echo", Arguments: arguments})
	if err != nil {
		return err
	}
	for _, content := range response.GetResult().GetContent() {
		if _, err := fmt.Println(content.GetText().GetText()); err != nil {
			return err
		}
	}
	return nil
}

// reasonOf is what a program branches on: TOOL_NOT_FOUND, TIMEOUT and so on.
func reasonOf(err error) string {
	if rpc, ok := errors.AsType[*connect.Error](err); ok {
		for _, detail := range rpc.Details() {
			message, err := connectproto.UnmarshalErrorDetail(detail)
			if info, ok := message.(*errdetails.ErrorInfo); ok && err == nil {
				return info.GetReason()
			}
		}
	}
	return ""
}

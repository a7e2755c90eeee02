// Command interactive calls a tool that asks, and answers what it asks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/structpb"

	mcpbridgev1 "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, connect.CodeOf(err), err)
		os.Exit(1) //nolint:gocritic // the deadline ends with the process
	}
}

func run(ctx context.Context) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // http.DefaultClient speaks HTTP/1.1 to http:// URLs
	client := mcpbridgev1connect.NewToolsServiceClient(connect.NewClient(connecthttp.NewTransport(
		&http.Client{Transport: &http.Transport{Protocols: protocols}}, "http://127.0.0.1:8080")))
	stream, err := client.CallToolInteractive(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&mcpbridgev1.CallToolInteractiveRequest{Message: &mcpbridgev1.CallToolInteractiveRequest_Start{
		Start: &mcpbridgev1.CallToolStreamRequest{Call: &mcpbridgev1.CallToolRequest{
			Target: "demo", Name: "ask_name",
			ClientCapabilities: &mcpbridgev1.ClientCapabilities{Elicitation: &mcpbridgev1.ClientCapabilities_Elicitation{Form: true}},
		}},
	}})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if question := event.GetInputRequest(); question != nil {
			if err := answer(stream, question); err != nil {
				return err
			}
		}
		for _, content := range event.GetOutcome().GetResult().GetContent() {
			if _, err := fmt.Println(content.GetText().GetText()); err != nil {
				return err
			}
		}
	}
}

// answer is what a program would ask its user.
func answer(stream mcpbridgev1connect.ToolsServiceCallToolInteractiveClientStream, question *mcpbridgev1.InputRequest) error {
	if _, err := fmt.Println(question.GetParams().GetFields()["message"].GetStringValue()); err != nil {
		return err
	}
	form, err := structpb.NewStruct(map[string]any{"action": "accept", "content": map[string]any{"name": "Ada"}})
	if err != nil {
		return err
	}
	return stream.Send(&mcpbridgev1.CallToolInteractiveRequest{Message: &mcpbridgev1.CallToolInteractiveRequest_InputResponse{
		InputResponse: &mcpbridgev1.InputResponse{Id: question.GetId(), Result: form},
	}})
}

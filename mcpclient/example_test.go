package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// The functions of this file are shown in docs/client.md.

func greet(ctx context.Context, url string) (err error) {
	client, err := mcpclient.New(&transport.HTTP{URL: url}, mcpclient.Options{
		Info:     mcpclient.Implementation{Name: "acme", Version: "1.0.0"},
		Timeouts: mcpclient.Timeouts{Tool: 10 * time.Second},
	})
	if err != nil {
		return err // an option is wrong; nothing was started
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()

	tools, err := client.ListTools(ctx) // connects; all pages
	if err != nil {
		return err
	}
	for _, tool := range tools.Items {
		fmt.Println("tool:", tool.Name)
	}
	result, err := client.CallTool(ctx, "greet", jsontext.Value(`{"name":"Ada"}`), nil)
	if err != nil {
		return err
	}
	answer, err := result.ToolResult()
	if err != nil {
		return err
	}
	fmt.Println("answer:", answer.Content[0].Text)
	return nil
}

func explain(err error) string {
	e, ok := errors.AsType[*mcpclient.Error](err)
	switch {
	case !ok:
		return "no error of the client"
	case e.SafeToRetry && e.RetryAfter > 0:
		return "it did not start; try again in " + e.RetryAfter.String()
	case e.SafeToRetry:
		return "it did not start; try again"
	case e.Kind == mcpclient.KindLost:
		return "it may have run; only the server knows"
	case e.Kind == mcpclient.KindRPC:
		return fmt.Sprintf("the server refused it with code %d", e.RPC.Code)
	}
	return e.Message
}

func Example() {
	server := httptest.NewServer(&mcptest.Server{Tools: []mcptest.Tool{
		{Name: "greet", Call: mcptest.Respond(mcptest.Text("Hello, Ada!"))},
	}})
	defer server.Close()
	if err := greet(context.Background(), server.URL); err != nil {
		fmt.Println(err)
	}
	// Output:
	// tool: greet
	// answer: Hello, Ada!
}

func ExampleError() {
	for _, err := range []error{
		&mcpclient.Error{Kind: mcpclient.KindUnavailable, SafeToRetry: true, RetryAfter: 5 * time.Second},
		&mcpclient.Error{Kind: mcpclient.KindLost, Sent: true},
	} {
		fmt.Println(explain(err))
	}
	// Output:
	// it did not start; try again in 5s
	// it may have run; only the server knows
}

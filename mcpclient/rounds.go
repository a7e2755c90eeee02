package mcpclient

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

func (c *Client) answerRounds(_ context.Context, _ *request, first *Result) (*Result, error) {
	return first, nil
}

func (c *Client) answerInput(_ context.Context, method string, _ jsontext.Value) (jsontext.Value, error) {
	if method == methodListRoots && len(c.opts.Roots) > 0 {
		return json.Marshal(map[string][]Root{"roots": c.opts.Roots})
	}
	return nil, &jsonrpc.Error{Code: CodeMethodNotFound, Message: "method not found: this client declared no capability for it"}
}

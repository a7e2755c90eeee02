package mcpclient

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func FuzzResults(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},null,{"type":"hologram","x":[1e400]}],"structuredContent":{"n":9007199254740993},"isError":true,"_meta":{"a/b":1}}`,
		`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"form"}}},"requestState":"x\u2028"}`,
		`{"resultType":"task","taskId":"1","status":"working","ttlMs":null,"pollIntervalMs":5}`,
		`{"resultType":null,"content":null}`, `{"tools":[{"name":"t","inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}],"nextCursor":"","ttlMs":-1}`,
		`{"content":{}}`, `[]`, `{"content":[`, "{\"a\":\"\xff\"}",
	} {
		f.Add(seed)
	}
	c := &Client{transport: &transport.HTTP{URL: "http://127.0.0.1/"}}
	if err := c.opts.prepare("memory"); err != nil {
		f.Fatal(err)
	}
	c.log = c.opts.Logger
	f.Fuzz(func(t *testing.T, raw string) {
		valid := jsontext.Value(raw).IsValid(lenient...)
		for _, era := range []Era{EraModern, EraLegacy} {
			call := &Call{Method: methodCallTool, Era: era, session: &session{era: era}, options: &CallOptions{Capabilities: jsontext.Value(`{"extensions":{"` + TasksExtension + `":{}}}`)}}
			result, err := c.readResult(call, jsontext.Value(raw), rawjson.Index{})
			if err != nil {
				continue
			}
			if jsontext.Value(raw).Kind() != '{' {
				t.Errorf("%q was taken for a result", raw)
			}
			if string(result.Raw) != raw {
				t.Errorf("%q came back as %q", raw, result.Raw)
			}
			decoded, err := result.ToolResult()
			if err == nil && valid {
				for _, block := range decoded.Content {
					if !block.Raw.IsValid(lenient...) {
						t.Errorf("%q holds the block %q, which is no JSON", raw, block.Raw)
					}
				}
			}
			list := &List{names: map[string]struct{}{}}
			_, _ = c.readPage(list, &listCache{method: methodListTools, member: "tools", key: "name"}, result)
			for _, item := range list.Items {
				if !list.Has(item.Name) {
					t.Errorf("%q lists %q, which it does not have", raw, item.Name)
				}
			}
			_, _ = readInputRequired(result.Raw)
		}
	})
}

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bigNumber is 2^53+1, the smallest positive integer that a float64 cannot hold.
const bigNumber = 9007199254740993

const (
	maxSteps = 1000
	maxDelay = 10 * time.Minute
)

func addTools(s *mcp.Server) {
	addTool(s, &mcp.Tool{
		Name:         "echo",
		Title:        "Echo",
		Description:  "Returns the text it is given. Grüße, 你好, 👋 come back unchanged.",
		InputSchema:  json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"The text to return"}},"required":["text"],"additionalProperties":false}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
		Annotations:  readOnly(),
	}, echo)
	addTool(s, &mcp.Tool{
		Name:         "add",
		Title:        "Add",
		Description:  "Adds two 64-bit integers.",
		InputSchema:  json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"sum":{"type":"integer"}},"required":["sum"]}`),
		Annotations:  readOnly(),
	}, add)
	addTool(s, &mcp.Tool{
		Name:         "big_number",
		Title:        "Big number",
		Description:  "Returns 9007199254740993, an integer that does not fit into a double.",
		InputSchema:  json.RawMessage(`{"type":"object","additionalProperties":false}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"value":{"type":"integer"}},"required":["value"]}`),
		Annotations:  readOnly(),
	}, func(context.Context, *mcp.CallToolRequest, *struct{}) (*mcp.CallToolResult, error) {
		return structured(fmt.Sprint(bigNumber), `{"value":%d}`, bigNumber), nil
	})
	addTool(s, &mcp.Tool{
		Name:        "countdown",
		Title:       "Countdown",
		Description: "Counts down to zero and reports progress at every step.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"from":{"type":"integer","minimum":1,"maximum":1000,"description":"The number of steps"},"delay_ms":{"type":"integer","minimum":0,"maximum":600000,"default":0,"description":"The wait before each step, in milliseconds"}},"required":["from"],"additionalProperties":false}`),
		Annotations: readOnly(),
	}, countdown)
	addTool(s, &mcp.Tool{
		Name:        "image",
		Title:       "Image",
		Description: "Returns a small PNG image.",
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false}`),
		Annotations: readOnly(),
	}, func(context.Context, *mcp.CallToolRequest, *struct{}) (*mcp.CallToolResult, error) {
		picture, err := picture()
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: picture, MIMEType: "image/png"}}}, nil
	})
	addTool(s, &mcp.Tool{
		Name:        "fail",
		Title:       "Fail",
		Description: "Always fails, with a result that is marked as an error.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","default":"this tool always fails"}},"additionalProperties":false}`),
		Annotations: readOnly(),
	}, func(_ context.Context, _ *mcp.CallToolRequest, in *struct{ Message *string }) (*mcp.CallToolResult, error) {
		if in.Message == nil {
			return failure("this tool always fails"), nil
		}
		return failure("%s", *in.Message), nil
	})
	addTool(s, &mcp.Tool{
		Name:        "slow",
		Title:       "Slow",
		Description: "Sleeps before it answers; stops when it is cancelled.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"ms":{"type":"integer","minimum":0,"maximum":600000,"description":"How long to sleep, in milliseconds"}},"required":["ms"],"additionalProperties":false}`),
		Annotations: readOnly(),
	}, slow)
	addTool(s, &mcp.Tool{
		Name:        "meta",
		Title:       "Meta",
		Description: "Returns the _meta that came with the call, which carries the caller's trace context.",
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false}`),
		Annotations: readOnly(),
	}, meta)
	addAskName(s)
}

func meta(_ context.Context, req *mcp.CallToolRequest, _ *struct{}) (*mcp.CallToolResult, error) {
	received, err := json.Marshal(req.Params.Meta)
	if err != nil {
		return nil, err
	}
	return structured(string(received), "%s", received), nil
}

func readOnly() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
}

// addTool registers a tool whose arguments are decoded into In, exactly and
// strictly. Unfit arguments give an error result, as the MCP specification
// asks for (server/tools, Error Handling).
func addTool[In any](s *mcp.Server, tool *mcp.Tool, call func(context.Context, *mcp.CallToolRequest, *In) (*mcp.CallToolResult, error)) {
	s.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in In
		if raw := req.Params.Arguments; len(raw) > 0 {
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&in); err != nil {
				return failure("the arguments of %s are not valid: %v", tool.Name, err), nil
			}
		}
		return call(ctx, req, &in)
	})
}

func failure(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// structured returns text and, as structured content, the JSON of format.
func structured(text, format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: json.RawMessage(fmt.Sprintf(format, args...)),
	}
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in *struct{ Text *string }) (*mcp.CallToolResult, error) {
	if in.Text == nil {
		return failure("echo needs the argument text"), nil
	}
	quoted, err := json.Marshal(*in.Text)
	if err != nil {
		return nil, err
	}
	return structured(*in.Text, `{"text":%s}`, quoted), nil
}

func add(_ context.Context, _ *mcp.CallToolRequest, in *struct{ A, B *int64 }) (*mcp.CallToolResult, error) {
	if in.A == nil || in.B == nil {
		return failure("add needs the arguments a and b"), nil
	}
	a, b := *in.A, *in.B
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return failure("the sum of %d and %d does not fit into 64 bits", a, b), nil
	}
	return structured(fmt.Sprint(a+b), `{"sum":%d}`, a+b), nil
}

type countdownInput struct {
	From    int   `json:"from"`
	DelayMS int64 `json:"delay_ms"`
}

func countdown(ctx context.Context, req *mcp.CallToolRequest, in *countdownInput) (*mcp.CallToolResult, error) {
	if in.From < 1 || in.From > maxSteps {
		return failure("countdown needs the argument from, 1 to %d", maxSteps), nil
	}
	delay, ok := milliseconds(in.DelayMS)
	if !ok {
		return failure("delay_ms must be 0 to %d", maxDelay.Milliseconds()), nil
	}
	token := req.Params.GetProgressToken()
	for step := 1; step <= in.From; step++ {
		if err := sleep(ctx, delay); err != nil {
			return nil, err
		}
		if token == nil {
			continue
		}
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      float64(step),
			Total:         float64(in.From),
			Message:       fmt.Sprintf("%d left", in.From-step),
		})
		if err != nil {
			return nil, fmt.Errorf("progress: %w", err)
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "lift-off"}}}, nil
}

func slow(ctx context.Context, _ *mcp.CallToolRequest, in *struct{ MS *int64 }) (*mcp.CallToolResult, error) {
	if in.MS == nil {
		return failure("slow needs the argument ms"), nil
	}
	delay, ok := milliseconds(*in.MS)
	if !ok {
		return failure("ms must be 0 to %d", maxDelay.Milliseconds()), nil
	}
	if err := sleep(ctx, delay); err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("slept %d ms", *in.MS)}}}, nil
}

func milliseconds(ms int64) (time.Duration, bool) {
	return time.Duration(ms) * time.Millisecond, ms >= 0 && ms <= maxDelay.Milliseconds()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// picture draws 16 × 16 pixels, the same every time.
func picture() ([]byte, error) {
	img := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for y := range 16 {
		for x := range 16 {
			img.Set(x, y, color.RGBA{R: uint8(x * 16), G: uint8(y * 16), B: 128, A: 255})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		return nil, fmt.Errorf("encode the picture: %w", err)
	}
	return out.Bytes(), nil
}

package server

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// largeResponse is a response in binary form, and its text.
func largeResponse(t *testing.T) (*pb.CallToolResponse, string) {
	t.Helper()
	text := strings.Repeat("x", 100<<10)
	m, err := jsonrpc.Decode([]byte(`{"id":1,"result":{"content":[{"type":"text","text":"` + text + `"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := convert.ToolResponse(m.Result, m.Known, 0)
	if err != nil || len(response.ProtoReflect().GetUnknown()) < len(text) {
		t.Fatalf("the response is not in binary form, %v", err)
	}
	return response, text
}

func TestLargeResponsesAreEncodedWherever(t *testing.T) {
	textOf := func(wire []byte) string {
		got := new(pb.CallToolResponse)
		if err := proto.Unmarshal(wire, got); err != nil {
			t.Fatal(err)
		}
		return got.GetResult().GetContent()[0].GetText().GetText()
	}
	var codec binaryCodec
	response, text := largeResponse(t)
	var buffer, behind bytes.Buffer
	behind.WriteString("before")
	var piece encoded
	if err := codec.MarshalWrite(t.Context(), &piece, response); err != nil || textOf(piece) != text {
		t.Errorf("in a piece of its own: %d bytes, %v", len(piece), err)
	}
	if err := codec.MarshalWrite(t.Context(), &behind, response); err != nil || textOf(behind.Bytes()[len("before"):]) != text {
		t.Errorf("behind something: %d bytes, %v", behind.Len(), err)
	}
	var out bytes.Buffer
	if err := new(jsonCodec).MarshalWrite(t.Context(), &out, response); err != nil {
		t.Fatal(err)
	}
	fromJSON := new(pb.CallToolResponse)
	if err := protojson.Unmarshal(out.Bytes(), fromJSON); err != nil || fromJSON.GetResult().GetContent()[0].GetText().GetText() != text {
		t.Errorf("as JSON: %.100s, %v", &out, err)
	}
	if err := codec.MarshalWrite(t.Context(), &buffer, response); err != nil || textOf(buffer.Bytes()) != text {
		t.Errorf("in a buffer: %d bytes, %v", buffer.Len(), err)
	}
	if len(response.ProtoReflect().GetUnknown()) > 0 {
		t.Error("the response still has what is the buffer's")
	}
}

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func asConnect(err error) *connect.Error {
	found, _ := errors.AsType[*connect.Error](err)
	return found
}

// describe shows an error with its details.
func describe(err error) string {
	found := asConnect(err)
	if found == nil {
		return fmt.Sprint(err)
	}
	parts := []string{found.Error()}
	for _, d := range found.Details() {
		message, err := connectproto.UnmarshalErrorDetail(d)
		parts = append(parts, fmt.Sprintf("[%v %v]", message, err))
	}
	return strings.Join(parts, " ")
}

// firstText returns the text of the first content.
func firstText(t *testing.T, result *pb.ToolResult) string {
	t.Helper()
	if len(result.GetContent()) == 0 {
		t.Fatalf("result has no content: %v", result)
	}
	return result.GetContent()[0].GetText().GetText()
}

// pages walks a list to its end with the smallest steps and returns all items.
func pages[T any](t *testing.T, page func(token string) (items []T, next string, err error)) []T {
	t.Helper()
	var all []T
	seen := map[string]bool{}
	for token := ""; ; {
		items, next, err := page(token)
		if err != nil {
			t.Fatalf("page %q: %s", token, describe(err))
		}
		if len(items) > 2 {
			t.Fatalf("page %q has %d items, want at most 2", token, len(items))
		}
		all = append(all, items...)
		if next == "" {
			return all
		}
		if seen[next] {
			t.Fatalf("page token %q came twice", next)
		}
		seen[next] = true
		token = next
	}
}

// names collects one field of every item.
func names[T any](items []T, name func(T) string) []string {
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = name(item)
	}
	return list
}

func pbStruct(t *testing.T, fields map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

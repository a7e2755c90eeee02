// Package mcpbridgegrpc has grpc-go stubs of the API, generated for tests; the messages are those of the product.
package mcpbridgegrpc

import pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"

//go:generate env BUF_CACHE_DIR=../../../.cache/buf ../../../.cache/npm/node_modules/.bin/buf generate --template ../../../buf.gen.yaml ../../../../proto -o ../../..

// The generated stubs name the messages as if they were of this package.
type (
	CallToolInteractiveRequest    = pb.CallToolInteractiveRequest
	CallToolInteractiveResponse   = pb.CallToolInteractiveResponse
	CallToolRequest               = pb.CallToolRequest
	CallToolResponse              = pb.CallToolResponse
	CallToolStreamRequest         = pb.CallToolStreamRequest
	CallToolStreamResponse        = pb.CallToolStreamResponse
	CancelTaskRequest             = pb.CancelTaskRequest
	CancelTaskResponse            = pb.CancelTaskResponse
	CompleteRequest               = pb.CompleteRequest
	CompleteResponse              = pb.CompleteResponse
	GetPromptRequest              = pb.GetPromptRequest
	GetPromptResponse             = pb.GetPromptResponse
	GetTargetRequest              = pb.GetTargetRequest
	GetTargetResponse             = pb.GetTargetResponse
	GetTaskRequest                = pb.GetTaskRequest
	GetTaskResponse               = pb.GetTaskResponse
	ListPromptsRequest            = pb.ListPromptsRequest
	ListPromptsResponse           = pb.ListPromptsResponse
	ListResourceTemplatesRequest  = pb.ListResourceTemplatesRequest
	ListResourceTemplatesResponse = pb.ListResourceTemplatesResponse
	ListResourcesRequest          = pb.ListResourcesRequest
	ListResourcesResponse         = pb.ListResourcesResponse
	ListTargetsRequest            = pb.ListTargetsRequest
	ListTargetsResponse           = pb.ListTargetsResponse
	ListToolsRequest              = pb.ListToolsRequest
	ListToolsResponse             = pb.ListToolsResponse
	ReadResourceRequest           = pb.ReadResourceRequest
	ReadResourceResponse          = pb.ReadResourceResponse
	UpdateTaskRequest             = pb.UpdateTaskRequest
	UpdateTaskResponse            = pb.UpdateTaskResponse
	WatchPromptsRequest           = pb.WatchPromptsRequest
	WatchPromptsResponse          = pb.WatchPromptsResponse
	WatchResourcesRequest         = pb.WatchResourcesRequest
	WatchResourcesResponse        = pb.WatchResourcesResponse
	WatchTargetsRequest           = pb.WatchTargetsRequest
	WatchTargetsResponse          = pb.WatchTargetsResponse
	WatchTaskRequest              = pb.WatchTaskRequest
	WatchTaskResponse             = pb.WatchTaskResponse
	WatchToolsRequest             = pb.WatchToolsRequest
	WatchToolsResponse            = pb.WatchToolsResponse
)

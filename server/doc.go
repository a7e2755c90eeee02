// Package server is the caller's side of the bridge: the gRPC, gRPC-Web and
// Connect services in front of MCP servers.
//
// A call passes through the layers in this order:
//
//	listener      server.go, http.go: one port, HTTP/1.1 and h2c; it puts a
//	              [Peer] into the context and does nothing else
//	interceptors  interceptors.go: the caller's own (telemetry), then trace id
//	              and access log, drain, panics, request errors
//	services      tools.go, resources.go, prompts.go, completion.go, tasks.go,
//	              health.go, grpchealth.go: one file a service
//	calls         calls.go: target, lease, request, error; outcome.go: results
//	              by type; visits.go: demands to visit a URL as questions
//	streams       pump.go: the one sender of a stream; feed.go: what waits for
//	              it, bounded; stream.go, interactive.go with questions.go,
//	              watchtask.go, watch.go
//	lists         lists.go, paging.go: fan-out over targets, pages and tokens
//	conversion    internal/convert: MCP JSON to protobuf and back
//
// errors.go is the only place where an RPC code is chosen; errors_detail.go
// keeps a whole error below 4 KiB and errors_text.go words it. codec.go is the
// strict JSON codec of the Connect protocol.
//
// The handler's goroutine is the only one that sends on a stream; what the stream
// tells about runs beside it and is waited for. The package starts no goroutine
// that outlives a call, except for the reader of an interactive one where the
// listener cannot end a read; [Server.Serve] runs on its caller's goroutine.
package server

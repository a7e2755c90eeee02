// Package mcpclient is a client for servers of the Model Context Protocol, of
// both eras: the stateless one of 2026-07-28 and the handshake-based one of
// 2025-11-25 and older. The caller does not see which one a server speaks.
//
// # Layers
//
//	Client       operations, caches, timeouts, retries, one reconnect engine
//	  interceptors   one chain around every attempt of every message
//	  send           `_meta`, headers, encoding; the answer's outer form
//	transport    streamable HTTP, stdio, in-memory: moves single messages
//	jsonrpc      the codec of single messages
//
// A call passes once through them, on the caller's own goroutine where the
// transport is HTTP. Results come back as the bytes the server sent
// ([Result.Raw]): unknown members, nulls and exact numbers survive.
//
// # Goroutines
//
// A [Client] owns all of its goroutines and [Client.Close] waits for them: one
// that watches the live connection, one per subscription, one per connection
// attempt, and short ones for a cancellation, an answer to the server, a shared
// list fetch, a lane with work, or a state change to tell. Transports own their
// readers.
//
// # Files
//
//	client.go       Client, New, Start, Close, state changes
//	engine.go       the reconnect engine: acquire, attempts, loss, pacing
//	connect.go      era detection and version choice
//	handshake.go    server/discover, initialize, what servers declare
//	send.go, result.go  one request from the caller to the wire and back
//	rounds.go, input.go, elicit.go  questions of the server, and repeated requests
//	answer.go, dialog.go  questions that a call's own caller answers, in both eras
//	tasks.go, taskwait.go  the tasks extension
//	legacytask*.go  tools that 2025-11-25 has called as tasks
//	subscription*.go  change notifications of both eras behind one handle
//	health.go       probes of a quiet server
//	dispatch.go     the in-flight cap, lanes
//	progress.go     progress and log messages of single requests
//	clock.go        timeouts that can be extended and stand still
//	toolresult.go   results as values
//	observe.go      connection attempts and waits; what ties requests together
//	stat.go         what is counted, and the ends of connections
//	listener.go, handlers.go, presets.go  who is told, who answers, other clients' settings
//	failure.go      timeouts, error classification, what may be retried
//	operations.go   tools, resources, prompts, completion
//	list.go, page.go  list caches; pages
//	paramheader.go  x-mcp-header: tool parameters mirrored into HTTP headers
//	inbound.go      what servers send on their own account
//	meta.go, call.go, options.go, errors.go, status.go, version.go  the vocabulary
//
// # Non-obvious
//
//   - A request is sent twice only if the first one surely did not start, or
//     its method is safe. A tool never runs twice because of this package.
//   - A connection found broken by one call is closed only when the other
//     calls on it are over.
//   - A caller that leaves ends its wait, never a shared connection attempt or
//     list fetch.
//   - The body of a request must not be reused after a failed call: the
//     network may still be reading it.
package mcpclient

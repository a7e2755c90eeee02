// Package transport carries JSON-RPC messages to and from MCP servers:
// streamable HTTP of both eras, the deprecated HTTP+SSE, child processes on
// stdio, sockets, and memory for tests. It matches answers with requests and
// keeps sessions, streams and processes; it knows nothing of what the messages
// mean, does not negotiate and never retries a request whose outcome is
// unknown.
//
// A fault hurts only the request or, where framing is lost, the connection it
// occurred on. Every goroutine and process is owned by its connection and gone
// when Close returns.
//
// Files: transport.go and errors.go are the seam. http.go is the HTTP
// connection, http_client.go its client, exchange.go one request of it,
// http_send.go writes requests, http_reply.go reads replies, readall.go their
// bodies, http_stream.go follows event streams, sse.go parses them, headers.go
// encodes header values.
// mux.go matches answers on a shared stream with their calls; over it,
// old_sse.go is HTTP+SSE, to which http_fallback.go switches, and stream.go
// frames lines over any byte stream, stream_read.go reads them; command.go
// starts a server under it, process.go ends it, stderr.go keeps what it says
// there, supervisor_linux.go and supervise_linux.go are the two sides of one
// more process that leaves nothing behind; socket.go connects a socket, pipe.go
// is memory. redact.go replaces secrets in foreign text.
package transport

import (
	"context"
	"net/http"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Transport makes connections to one MCP server. Implementations are safe for
// concurrent use and must not be copied after their first Dial.
type Transport interface {
	// Dial makes a connection whose inbound requests and notifications go to h
	// (nil = dropped). For stdio it starts the process; for streamable HTTP it
	// does no I/O. ctx bounds the dial only. Dial may be called again, also while an
	// earlier connection still lives.
	Dial(ctx context.Context, h Handler) (Conn, error)
	// Name is one of the Name constants.
	Name() string
}

// Handler receives what the server sends on its own account. It is called on
// a reader goroutine, in order of arrival per stream, and must not block. What
// came before a response on the same stream is handed over before Call
// returns that response. The message may be kept.
type Handler func(Inbound)

// Inbound is one request or notification from the server.
type Inbound struct {
	Message *jsonrpc.Message
	// Origin is our request whose own stream carried the message (HTTP); zero
	// on a shared stream (stdio, the GET stream).
	Origin jsonrpc.ID
}

// Request is one outgoing message. The transport only reads it.
type Request struct {
	// ID is the id inside Body; zero for a notification.
	ID     jsonrpc.ID
	Method string
	// Body is the whole JSON-RPC message, on one line, without a line end. It
	// must not change before the call has returned, nor afterwards when the
	// call ended with an error: the network may still be reading it.
	Body []byte
	// Version becomes the MCP-Protocol-Version header on HTTP; "" = no header
	// (a legacy initialize).
	Version string
	// Modern is true from 2026-07-28 on: Mcp-Method and Mcp-Name headers, no
	// session, no resumption.
	Modern bool
	// Name is the source of Mcp-Name, verbatim: tool or prompt name, URI, task
	// id. The header is sent when Name is not empty or HasName is set.
	Name    string
	HasName bool
	// Answered, when set, is called on the reader's goroutine as soon as the
	// response has arrived, before anything that follows it on the same stream.
	// It must not block.
	Answered func()
	// Rare says that nothing else is expected for some time: plain HTTP closes a
	// connection at once that it would give up unused anyway.
	Rare bool
	// Header holds further headers of this request with encoded values; nil =
	// none. Headers of the protocol itself win.
	Header http.Header
}

// Negotiated is the outcome of version negotiation.
type Negotiated struct {
	Modern  bool
	Version string
}

// Conn is one connection to an MCP server. All methods are safe for concurrent
// use.
type Conn interface {
	// Call sends a request and waits for its response, which may hold an
	// error. It returns as soon as ctx ends, with the context's error wrapped,
	// and [ErrUnsent] when nothing was sent.
	// Other failures are an [*Error]. Two calls with the same id at the same
	// time are refused.
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
	// Notify sends a notification.
	Notify(ctx context.Context, r *Request) error
	// Reply sends body, our response to a request of a legacy server.
	Reply(ctx context.Context, body []byte, version string) error
	// Ready says that negotiation is over. On HTTP it opens the optional GET
	// stream of legacy servers; elsewhere it does nothing.
	Ready(n Negotiated)
	// PerRequestStreams is true where abandoning a Call closes a stream of its
	// own, which tells a modern server to stop (streamable HTTP). It turns
	// false when an initialize ends in the HTTP+SSE fallback, and only then.
	PerRequestStreams() bool
	// Done is closed when the connection can carry nothing any more; on
	// streamable HTTP only by Close.
	Done() <-chan struct{}
	// Err says why Done was closed; nil before that.
	Err() error
	// Close ends the connection and fails what is pending. It returns when all
	// goroutines and processes of the connection are gone, or, with what went
	// wrong, when ctx ends. Further calls wait for the first and return nil.
	Close(ctx context.Context) error
}

// DefaultMaxReplyBytes bounds one inbound message where no limit is set.
const DefaultMaxReplyBytes = 64 << 20

// Names of the transports.
const (
	NameStdio  = "stdio"
	NameHTTP   = "streamable_http"
	NameSSE    = "sse"
	NameUnix   = "unix"
	NameTCP    = "tcp"
	NameMemory = "memory"
)

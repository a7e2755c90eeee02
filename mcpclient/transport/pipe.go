package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// NewPipe returns a transport whose connections end in this process, for
// tests and for servers in the same binary. They use no sockets, so they work
// in a testing/synctest bubble when NewPipe is called inside of it.
func NewPipe() (client Transport, server *PipeServer) {
	server = &PipeServer{dialed: make(chan net.Conn), closed: make(chan struct{})}
	return pipeTransport{server}, server
}

// PipeServer is the other end of a [NewPipe] transport. Its methods are safe
// for concurrent use.
type PipeServer struct {
	dialed  chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

// Accept waits for the next Dial and returns the server's end of its
// connection: lines of JSON-RPC in both directions. Writes wait for the reader.
func (p *PipeServer) Accept(ctx context.Context) (io.ReadWriteCloser, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, fmt.Errorf("accept on the memory transport: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("accept on the memory transport: %w", ctx.Err())
	}
}

// Close makes further dials fail; accepted connections live on.
func (p *PipeServer) Close() { p.closing.Do(func() { close(p.closed) }) }

type pipeTransport struct{ server *PipeServer }

func (t pipeTransport) Name() string { return NameMemory }

// Dial waits until the server accepts.
func (t pipeTransport) Dial(ctx context.Context, h Handler) (Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case t.server.dialed <- theirs:
		return NewStream(ours, h, StreamOptions{}), nil
	case <-t.server.closed:
		return nil, &Error{Kind: NotSent, Message: "the server in memory was closed"}
	case <-ctx.Done():
		return nil, fmt.Errorf("dial the server in memory: %w", ctx.Err())
	}
}

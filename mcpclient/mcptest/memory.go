package mcptest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// StartMemoryHTTP serves s by net/http over in-memory connections until the
// test ends. It works inside synctest bubbles, where sockets do not. Requests
// to the URL must go through the returned client. The test fails for every
// violation left at its end.
func StartMemoryHTTP(t TB, s *Server) (url string, client *http.Client) {
	t.Helper()
	s.init()
	l := &memoryListener{s: s, conns: make(chan net.Conn), done: make(chan struct{})}
	s.onDisconnect(l.cut)
	server := &http.Server{Handler: s}
	var work sync.WaitGroup
	work.Go(func() { _ = server.Serve(l) }) // ends with ErrServerClosed
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 64}
	Check(t, s)
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
		_ = server.Close() // closes the listener, which cannot fail
		work.Wait()
	})
	return "http://mcptest.invalid/mcp", &http.Client{Transport: transport}
}

// memoryListener hands one end of a net.Pipe to Accept for every dial.
type memoryListener struct {
	s     *Server
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}

	mu   sync.Mutex // protects open
	open []net.Conn // the server's ends, closed ones too
}

// cut closes all connections.
func (l *memoryListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close() // of a pipe, which cannot fail
	}
	l.open = nil
}

func (l *memoryListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if l.s.isDown() {
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: memoryAddr{}, Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		l.mu.Lock()
		l.open = append(l.open, server)
		l.mu.Unlock()
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr{} }

type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "memory" }

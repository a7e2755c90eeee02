package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// shutdown closes the listeners, tells callers to go elsewhere, and returns
// once the connections have ended, or with ctx's error. It may be called again.
func (f *grpcFront) shutdown(ctx context.Context) error {
	f.stopping.Do(func() {
		f.dropSilent()
		go func() { // ends with the last handler
			f.server().GracefulStop()
			close(f.stopped)
		}()
	})
	// What a caller leaves untaken must not hold the shutdown once no call is left.
	grace := time.NewTimer(f.limits.grace)
	defer grace.Stop()
	for {
		select {
		case <-f.stopped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-f.idle:
			grace.Reset(f.limits.grace)
		case <-grace.C:
			if f.running.Load() == 0 {
				f.close()
				return nil
			}
		}
	}
}

// close closes the connections. It waits a little for the handlers, which were
// cancelled before.
func (f *grpcFront) close() {
	done := make(chan struct{})
	go func() { // ends with the last handler
		f.server().Stop()
		<-f.stopped
		close(done)
	}()
	limit := time.NewTimer(forcedGrace)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}

// dropSilent closes the connections on which nothing has come, for which
// grpc-go would wait, and those that are still to come.
func (f *grpcFront) dropSilent() {
	f.mu.Lock()
	f.drained = true
	silent := f.silent
	f.silent = map[net.Conn]struct{}{}
	f.mu.Unlock()
	for conn := range silent {
		_ = conn.Close() // of a connection that nobody uses
	}
}

// handshake makes the connections of grpc-go known before anything has come on
// them.
type handshake struct{ front *grpcFront }

var errNoClient = errors.New("these credentials are for servers")

func (h handshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	f := h.front
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.drained {
		return nil, nil, errDraining
	}
	f.silent[conn] = struct{}{}
	return &greetedConn{Conn: conn, front: f}, plaintext{}, nil
}

func (h handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errNoClient
}

func (h handshake) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: plaintext{}.AuthType()}
}

func (h handshake) Clone() credentials.TransportCredentials { return h }

func (h handshake) OverrideServerName(string) error { return errNoClient }

// plaintext says that the connection is not protected.
type plaintext struct{}

func (plaintext) AuthType() string { return "insecure" }

// greetedConn notices the first bytes of its caller.
type greetedConn struct {
	net.Conn

	front   *grpcFront
	greeted sync.Once
}

func (c *greetedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.greeted.Do(c.forget)
	return n, err
}

func (c *greetedConn) Close() error {
	c.greeted.Do(c.forget)
	return c.Conn.Close()
}

func (c *greetedConn) forget() {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	delete(c.front.silent, c.Conn)
}

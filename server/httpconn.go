package server

import (
	"crypto/tls"
	"net"
	"runtime"
)

const (
	// readAhead is how much is read of a connection at once: a small call whole.
	readAhead = 4 << 10
	// smallWrite: a write below it gets company before it costs a system call.
	smallWrite = 4 << 10
)

// batchingListener accepts connections for net/http's HTTP/2, which reads the
// header of a frame and its payload in two system calls, and writes the header,
// the message and the trailer of an answer in three.
type batchingListener struct{ net.Listener }

func (l batchingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	if _, encrypted := conn.(*tls.Conn); encrypted { // net/http has to see it, and it has buffers
		return conn, nil
	}
	return &batchingConn{Conn: conn}, nil
}

// batchingConn reads ahead, and writes a little later. Like all users of it,
// net/http reads in one goroutine at a time.
type batchingConn struct {
	net.Conn

	room  []byte // nil = not needed at present
	ahead []byte // what was read and not taken yet, in room
}

// Read reads ahead where little is asked for, except for the one byte by which
// net/http notices that a caller on HTTP/1.1 has gone.
func (c *batchingConn) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		if len(p) <= 1 || len(p) >= readAhead {
			c.room = nil
			return c.Conn.Read(p) //nolint:wrapcheck // net/http looks at it
		}
		if c.room == nil {
			c.room = make([]byte, readAhead)
		}
		n, err := c.Conn.Read(c.room)
		if n == 0 {
			return 0, err //nolint:wrapcheck // as above
		}
		c.ahead = c.room[:n] // an error comes again
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// Write lets others run first, whose frames go out with the next write then:
// HTTP/2 writes in a goroutine of its own, and collects meanwhile.
func (c *batchingConn) Write(p []byte) (int, error) {
	if len(p) < smallWrite {
		runtime.Gosched()
	}
	return c.Conn.Write(p) //nolint:wrapcheck // net/http looks at it
}

// CloseWrite is what net/http asks for before it closes a connection whose
// caller is still sending.
func (c *batchingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // as above
	}
	return nil
}

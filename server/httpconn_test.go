package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// piecesConn gives what it holds, a piece at each read, the last one along with
// the end.
type piecesConn struct {
	net.Conn

	pieces     [][]byte
	reads      int
	halfClosed bool
}

func (c *piecesConn) Read(p []byte) (int, error) {
	c.reads++
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	if len(c.pieces) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (c *piecesConn) CloseWrite() error {
	c.halfClosed = true
	return nil
}

func TestReadingAheadLosesNothing(t *testing.T) {
	small, large := bytes.Repeat([]byte("frame"), 200), bytes.Repeat([]byte("large"), 4000)
	under := &piecesConn{pieces: [][]byte{small, large, []byte("x"), small}}
	conn := &batchingConn{Conn: under}
	var got []byte
	for _, size := range []int{9, 500, 491, 9, 16 << 10, 9, 2000, 1, 32 << 10} {
		p := make([]byte, size)
		n, err := conn.Read(p)
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		got = append(got, p[:n]...)
	}
	rest, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if got = append(got, rest...); !bytes.Equal(got, bytes.Join([][]byte{small, large, []byte("x"), small}, nil)) {
		t.Fatalf("read %d bytes, not the %d that were sent", len(got), 2*len(small)+len(large)+1)
	}
}

func TestAFrameIsReadAtOnce(t *testing.T) {
	under := &piecesConn{pieces: [][]byte{make([]byte, 9+1000), make([]byte, 1)}}
	conn := &batchingConn{Conn: under}
	for _, size := range []int{9, 1000} {
		if _, err := io.ReadFull(conn, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if under.reads != 1 {
		t.Errorf("%d reads of the connection, want 1", under.reads)
	}
	if n, _ := conn.Read(make([]byte, readAhead)); n != 1 || conn.room != nil {
		t.Errorf("a large read of an empty connection got %d bytes and kept its room", n)
	}
	if err := conn.CloseWrite(); err != nil || !under.halfClosed {
		t.Errorf("half a close does not reach the connection; error %v", err)
	}
}

// dribble writes one byte after the other.
type dribble struct{ net.Conn }

func (d dribble) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := d.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestHTTP2IsUnderstoodHoweverItsBytesCome(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"at once":   func(c net.Conn) net.Conn { return c },
		"byte-wise": func(c net.Conn) net.Conn { return dribble{c} },
	} {
		caller := b.grpcGo(overGRPC, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		}))
		for _, text := range []string{"short", strings.Repeat("long ", 2000)} {
			res := &pb.CallToolResponse{}
			if err := caller.Invoke(t.Context(), callTool, echoing(text), res); err != nil || !strings.Contains(res.String(), text) {
				t.Errorf("%s: a text of %d bytes: %.200s, error %v", name, len(text), res, err)
			}
		}
	}
}

func TestRequestsThatComeTogetherAreAllAnswered(t *testing.T) {
	caller := one(t, shop(mcptest.Modern)).ready().raw()
	const headers, body = "Content-Type: application/json\r\nContent-Length: 15\r\n", `{"name":"echo"}`
	for range 2 { // the connection goes on
		caller.send(callTool, headers, body+"POST "+callTool+" HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"+body)
		for range 2 {
			if res, text := caller.receive(); res.StatusCode != 200 {
				t.Errorf("%s: %s", res.Status, text)
			}
		}
	}
}

// acceptor gives one connection.
type acceptor struct {
	net.Listener

	conn net.Conn
}

func (a acceptor) Accept() (net.Conn, error) { return a.conn, nil }

func TestATLSConnectionIsLeftAsItIs(t *testing.T) {
	encrypted := tls.Server(&piecesConn{}, &tls.Config{MinVersion: tls.VersionTLS12})
	if conn, err := (batchingListener{acceptor{conn: encrypted}}).Accept(); err != nil || conn != net.Conn(encrypted) {
		t.Errorf("net/http sees %T, %v instead of the TLS connection", conn, err)
	}
}

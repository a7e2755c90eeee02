package mcptest

import (
	"net"
	"net/http/httptest"
)

// StartHTTP serves s on a loopback port until the test ends and returns the
// URL of its endpoint. The test fails for every violation left then.
func StartHTTP(t TB, s *Server) string {
	t.Helper()
	s.init()
	ts := httptest.NewUnstartedServer(s)
	ts.Listener = &downListener{ts.Listener, s}
	ts.Start()
	s.onDisconnect(ts.CloseClientConnections)
	Check(t, s)
	t.Cleanup(func() {
		s.Close() // first, since ts.Close waits for open exchanges
		ts.Close()
	})
	return ts.URL + "/mcp"
}

// downListener closes new connections at once while the server is down.
type downListener struct {
	net.Listener
	s *Server
}

func (l *downListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.s.isDown() {
			return c, err
		}
		_ = c.Close() // that is the fault
	}
}

package transport

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// serveSocket answers every request on every connection with {}, after junk.
func serveSocket(t *testing.T, network, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			say(conn, "welcome\n")
			r := bufio.NewReader(conn)
			for {
				line, err := r.ReadBytes('\n')
				if err != nil {
					break
				}
				if m, err := jsonrpc.Decode(line); err == nil && m.Method == "bye" {
					break
				} else if err == nil && m.Kind == jsonrpc.Request {
					say(conn, "%s\n", jsonrpc.AppendResult(nil, m.ID, nil))
				}
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener
}

func TestSocketsCarryTheStdioFraming(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serveSocket(t, "unix", path)
	tcp := serveSocket(t, "tcp", "127.0.0.1:0").Addr().String()
	for _, tr := range []*Socket{{Network: "unix", Address: path}, {Network: "tcp", Address: tcp}} {
		t.Run(tr.Network, func(t *testing.T) {
			if tr.Name() != tr.Network {
				t.Error(tr.Name())
			}
			conn := dial(t, tr, nil)
			for id := range int64(100) {
				m, err := conn.Call(t.Context(), legacy(id, "x"))
				wantResult(t, m, err, id, "{}")
			}
			for range 2 {
				if err := conn.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			wantError(t, conn.Err(), Closed)
			conn = dial(t, tr, nil)
			_, err := conn.Call(t.Context(), legacy(1, "bye"))
			wantError(t, err, Lost)
			<-conn.Done()
			wantError(t, conn.Err(), Lost)
		})
	}
}

func TestSocketsThatCannotBeReachedAreNamed(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := tcp.Addr().String()
	_ = tcp.Close()
	for name, tt := range map[string]struct {
		s    Socket
		says string
	}{
		"no file":        {Socket{Network: "unix", Address: dir + "/none"}, "there is no socket " + dir + "/none"},
		"nobody listens": {Socket{Network: "unix", Address: dead}, "nothing listens on the socket " + dead},
		"no socket":      {Socket{Network: "unix", Address: file}, "socket " + file},
		"long path":      {Socket{Network: "unix", Address: dir + strings.Repeat("x", 200)}, "too long"},
		"refused":        {Socket{Network: "tcp", Address: closed}, closed + " refuses connections"},
		"no host":        {Socket{Network: "tcp", Address: "no-such-host.invalid:1"}, "host name"},
		"no port":        {Socket{Network: "tcp", Address: "localhost"}, "host:port"},
		"no address":     {Socket{Network: "unix"}, "path of the socket"},
		"network":        {Socket{Network: "udp", Address: "h:1"}, "use unix or tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tt.s.Dial(t.Context(), nil)
			if e := wantError(t, err, NotSent); !strings.Contains(e.Message, tt.says) {
				t.Errorf("message %q does not say %q", e.Message, tt.says)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Socket{Network: "tcp", Address: closed}).Dial(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial with a dead context: %v", err)
	}
}

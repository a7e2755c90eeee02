package balance

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server that can be stopped and started on one port.
type node struct {
	t       testing.TB
	handler http.Handler
	addr    string
	running sync.WaitGroup
	server  *http.Server
}

func (n *node) url() string { return "http://" + n.addr + "/mcp" }

// startNode serves handler until the test ends.
func startNode(t testing.TB, handler http.Handler) *node {
	t.Helper()
	n := &node{t: t, handler: handler, addr: "127.0.0.1:0"}
	n.start()
	t.Cleanup(n.stop)
	return n
}

func (n *node) start() {
	n.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.addr = l.Addr().String()
	server := &http.Server{Handler: n.handler, ReadHeaderTimeout: time.Minute}
	n.server = server
	n.running.Go(func() { _ = server.Serve(l) }) // it ends with stop
}

// stop breaks all connections and refuses new ones.
func (n *node) stop() {
	if n.server != nil {
		_ = n.server.Close()
		n.running.Wait()
		n.server = nil
	}
}

// mcp starts n MCP servers, each made by make.
func mcp(t testing.TB, n int, build func(i int) *mcptest.Server) ([]*node, []*mcptest.Server) {
	t.Helper()
	var nodes []*node
	var servers []*mcptest.Server
	for i := range n {
		s := build(i)
		s.ManyClients = true
		mcptest.Check(t, s)
		servers = append(servers, s)
		nodes = append(nodes, startNode(t, s))
	}
	return nodes, servers
}

func urls(nodes []*node) []string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.url())
	}
	return list
}

// target is what a test calls: a transport over a balancer.
type target struct {
	*transport.HTTP
	lb   *Balancer
	base *http.Transport // once a connection was dialed
}

// over returns a target that is closed after the test's clients.
func over(t testing.TB, urls []string, o Options, adjust ...func(*http.Transport)) *target {
	t.Helper()
	lb, err := New(urls, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := lb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	out := &target{lb: lb}
	out.HTTP = &transport.HTTP{URL: urls[0], SSEFallback: transport.SSENever, Wrap: func(base *http.Transport) http.RoundTripper {
		out.base = base
		for _, f := range adjust {
			f(base)
		}
		return lb.Wrap(base)
	}}
	return out
}

func (tg *target) dial(t testing.TB) transport.Conn {
	t.Helper()
	conn, err := tg.Dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func (tg *target) client(t testing.TB) *mcpclient.Client {
	t.Helper()
	c, err := mcpclient.New(tg.HTTP, mcpclient.Options{
		Info:      mcpclient.Implementation{Name: "test", Version: "1"},
		Reconnect: mcpclient.ReconnectOptions{Interval: 10 * time.Millisecond, MaxInterval: 100 * time.Millisecond},
		Changes:   mcpclient.ChangeOptions{NoTools: true, NoResources: true, NoPrompts: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// modern is a call of the modern era.
func modern(method string) *transport.Request {
	return &transport.Request{
		ID: jsonrpc.IntID(1), Method: method, Version: "2026-07-28", Modern: true,
		Body: jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), method, []byte(`{}`)),
	}
}

func legacy(method string) *transport.Request {
	r := modern(method)
	r.Version, r.Modern = "2025-11-25", false
	return r
}

// answer writes the response to the request that modern and legacy make.
func answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)) // a client that left is no concern
}

func wantKind(t testing.TB, err error, kind transport.ErrorKind) *transport.Error {
	t.Helper()
	e, ok := errors.AsType[*transport.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("error %v, want kind %v", err, kind)
	}
	return e
}

// refusing returns the URL of a port at which nothing listens.
func refusing(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	return server.URL + "/mcp"
}

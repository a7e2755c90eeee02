package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bridge is a whole bridge on a loopback port, in front of fake servers.
type bridge struct {
	*Server
	t      *testing.T
	url    string
	addr   string
	fast   string     // address of the listener that is for gRPC alone
	served chan error // what Serve returned
	ended  chan error // what ServeGRPC returned
	set    *targets.Set
	cfg    *config.Config // of set, to be changed and reloaded
	logs   *logBuffer
}

// logBuffer is a log that a test may read while it grows.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// targetConfig is one target of a test: a fake server, or a URL.
type targetConfig struct {
	server *mcptest.Server
	url    string
	change func(*config.Target)
}

// start serves the fake servers until the test ends. Options.Targets is set
// here.
func start(t *testing.T, opts Options, configs map[string]targetConfig) *bridge {
	t.Helper()
	b := &bridge{t: t, served: make(chan error, 1), ended: make(chan error, 1), logs: &logBuffer{}}
	cfg := config.Default()
	for name, c := range configs {
		target := config.NewTarget(config.TransportStreamableHTTP)
		target.URL = c.url
		if c.server != nil {
			target.URL = mcptest.StartHTTP(t, c.server)
		}
		if c.change != nil {
			c.change(target)
		}
		cfg.Targets[name] = target
	}
	logger := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	set, err := targets.New(cfg, targets.Deps{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	set.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := set.Close(ctx); err != nil {
			t.Errorf("close targets: %v", err)
		}
	})
	opts.Targets, opts.Logger, b.set, b.cfg = set, logger, set, cfg
	if b.Server, err = New(opts); err != nil {
		t.Fatal(err)
	}
	l, fast := loopback(t), loopback(t)
	b.addr, b.fast = l.Addr().String(), fast.Addr().String()
	b.url = "http://" + b.addr
	go func() { b.served <- b.Serve(l) }()
	go func() { b.ended <- b.ServeGRPC(fast) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if err := errors.Join(<-b.served, <-b.ended); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return b
}

// loopback listens on a port of this machine.
func loopback(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// one is start with a single target, "shop".
func one(t *testing.T, server *mcptest.Server) *bridge {
	t.Helper()
	return start(t, Options{}, map[string]targetConfig{"shop": {server: server}})
}

// ready waits until all targets are connected.
func (b *bridge) ready() *bridge {
	b.t.Helper()
	for _, target := range b.set.All() {
		lease, err := target.Acquire(b.t.Context(), targets.Caller{})
		if err != nil {
			b.t.Fatal(err)
		}
		err = lease.Client().Connect(b.t.Context())
		lease.Release()
		if err != nil {
			b.t.Fatal(err)
		}
		if target.Isolation() == targets.Shared {
			b.seenReady(target.Name())
		}
	}
	return b
}

// seenReady waits until all can see that a target is ready, which comes behind its connection.
func (b *bridge) seenReady(name string) {
	b.t.Helper()
	watcher := b.set.Watch(name)
	defer watcher.Close()
	ready := slices.ContainsFunc(watcher.Initial(), func(e targets.Event) bool { return e.Status.State == pool.StateReady })
	for !ready {
		e, err := watcher.Next(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		ready = e.Status.State == pool.StateReady
	}
}

// The ways to call the bridge.
const (
	overGRPC        = "gRPC"
	overFastGRPC    = "gRPC on its own listener"
	overGRPCWeb     = "gRPC-Web over HTTP/1.1"
	overConnect     = "Connect over h2c"
	overConnectJSON = "Connect JSON over HTTP/1.1"
	overConnectGet  = "Connect GET over HTTP/1.1"
)

func protocols() []string {
	return []string{overGRPC, overFastGRPC, overGRPCWeb, overConnect, overConnectJSON, overConnectGet}
}

// client returns a client of one protocol, with more options.
func (b *bridge) client(protocol string, more ...connecthttp.Option) *connect.Client {
	b.t.Helper()
	options := map[string][]connecthttp.Option{
		overGRPC:        {connecthttp.WithGRPC()},
		overFastGRPC:    {connecthttp.WithGRPC()},
		overGRPCWeb:     {connecthttp.WithGRPCWeb()},
		overConnect:     nil,
		overConnectJSON: {connecthttp.WithProtoJSON()},
		overConnectGet:  {connecthttp.WithHTTPGet()},
	}[protocol]
	options = append(append(options, connecthttp.WithReadMaxBytes(64<<20)), more...)
	url := b.url
	if protocol == overFastGRPC {
		url = "http://" + b.fast
	}
	h2 := protocol == overGRPC || protocol == overFastGRPC || protocol == overConnect
	return connect.NewClient(connecthttp.NewTransport(httpClient(b.t, h2), url, options...))
}

// httpClient speaks HTTP/1.1 or h2c; its connections are closed at the end.
func httpClient(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (b *bridge) tools(protocol string) mcpbridgev1connect.ToolsServiceClient {
	return mcpbridgev1connect.NewToolsServiceClient(b.client(protocol))
}

func (b *bridge) resources(protocol string) mcpbridgev1connect.ResourcesServiceClient {
	return mcpbridgev1connect.NewResourcesServiceClient(b.client(protocol))
}

func (b *bridge) prompts(protocol string) mcpbridgev1connect.PromptsServiceClient {
	return mcpbridgev1connect.NewPromptsServiceClient(b.client(protocol))
}

func (b *bridge) completion(protocol string) mcpbridgev1connect.CompletionServiceClient {
	b.t.Helper()
	return mcpbridgev1connect.NewCompletionServiceClient(b.client(protocol))
}

// healthClient calls grpc.health.v1 with the bridge's own descriptor.
type healthClient struct {
	client  *connect.Client
	service protoreflect.ServiceDescriptor
	file    protoreflect.FileDescriptor
}

func (b *bridge) health(protocol string) *healthClient {
	b.t.Helper()
	file, err := healthFile()
	if err != nil {
		b.t.Fatal(err)
	}
	return &healthClient{client: b.client(protocol), service: file.Services().Get(0), file: file}
}

func (h *healthClient) spec(method protoreflect.Name, streamType connect.StreamType) connect.Spec {
	return connect.Spec{StreamType: streamType, Procedure: fmt.Sprintf("/grpc.health.v1.Health/%s", method), Schema: h.service.Methods().ByName(method)}
}

func (h *healthClient) request(service string) proto.Message {
	m := dynamicpb.NewMessage(h.file.Messages().ByName("HealthCheckRequest"))
	m.Set(m.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfString(service))
	return m
}

func (h *healthClient) response() *dynamicpb.Message {
	return dynamicpb.NewMessage(h.file.Messages().ByName("HealthCheckResponse"))
}

func statusOf(m *dynamicpb.Message) protoreflect.EnumNumber {
	return m.Get(m.Descriptor().Fields().ByNumber(1)).Enum()
}

func (h *healthClient) check(ctx context.Context, service string) (protoreflect.EnumNumber, error) {
	out := h.response()
	err := h.client.CallUnary(ctx, h.spec("Check", connect.StreamTypeUnary), h.request(service), out)
	return statusOf(out), err
}

// watch returns the next status of a stream at each call.
func (h *healthClient) watch(ctx context.Context, service string) (next func() (protoreflect.EnumNumber, error), err error) {
	stream, err := h.client.CallServerStream(ctx, h.spec("Watch", connect.StreamTypeServer), h.request(service))
	if err != nil {
		return nil, err
	}
	return func() (protoreflect.EnumNumber, error) {
		out := h.response()
		err := stream.Receive(out)
		return statusOf(out), err
	}, nil
}

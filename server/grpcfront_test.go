package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// listenersForGRPC are the ways to reach the API by gRPC.
func listenersForGRPC() []string { return []string{overGRPC, overFastGRPC} }

// at is the address that a protocol is served at.
func (b *bridge) at(protocol string) string {
	if protocol == overFastGRPC {
		return b.fast
	}
	return b.addr
}

// grpcGo connects as callers with grpc-go do.
func (b *bridge) grpcGo(protocol string, options ...grpc.DialOption) *grpc.ClientConn {
	b.t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+b.at(protocol), options...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return conn
}

// echoing is the request whose answer is its own argument.
func echoing(text string) *pb.CallToolRequest {
	return &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"text":"` + text + `"}`), JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT}
}

func TestMetadataPassesBothListenersAlike(t *testing.T) {
	const raw = "\x00\xff\x80 not text"
	var got []string
	var peer Peer
	record := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			info, _ := connect.CallInfoForServerContext(ctx)
			peer = PeerFrom(ctx)
			got = append(got[:0], info.RequestHeader().Values("X-Words")...)
			for _, value := range info.RequestHeader().Values("X-Raw-Bin") {
				data, err := connect.DecodeBinaryHeader(value)
				if err != nil {
					t.Errorf("%q: %v", value, err)
				}
				got = append(got, string(data))
			}
			if host := info.RequestHeader().Get("Host"); !strings.HasPrefix(host, "127.0.0.1:") {
				t.Errorf("host %q", host)
			}
			for _, header := range []*connect.Header{info.ResponseHeader(), info.ResponseTrailer()} {
				header.Add("X-Back", "one")
				header.Add("X-Back", "two")
				header.Set("X-Back-Bin", connect.EncodeBinaryHeader([]byte(raw)))
			}
			return next(ctx, spec, stream)
		}
	}
	b := start(t, Options{Interceptors: []connect.ServerInterceptor{record}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	for _, protocol := range listenersForGRPC() {
		for _, tool := range []string{"echo", "nothing"} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-words", "a", "x-words", "b", "x-raw-bin", raw, "x-raw-bin", "")
			var header, trailer metadata.MD
			err := b.grpcGo(protocol).Invoke(ctx, callTool, &pb.CallToolRequest{Name: tool}, &pb.CallToolResponse{}, grpc.Header(&header), grpc.Trailer(&trailer))
			if (err == nil) != (tool == "echo") {
				t.Errorf("%s %s: %v", protocol, tool, err)
			}
			if strings.Join(got, "|") != "a|b|"+raw+"|" {
				t.Errorf("%s %s: the handler got %q", protocol, tool, got)
			}
			if peer.Protocol != "HTTP/2.0" || !strings.HasPrefix(peer.Addr, "127.0.0.1:") || peer.ReadDeadline == nil || peer.StopReading == nil || peer.TLS != nil {
				t.Errorf("%s: peer %+v", protocol, peer)
			}
			for part, md := range map[string]metadata.MD{"header": header, "trailer": trailer} {
				if strings.Join(md["x-back"], "|") != "one|two" || strings.Join(md["x-back-bin"], "|") != raw {
					t.Errorf("%s %s: %s %q", protocol, tool, part, md)
				}
			}
			if tool == "echo" && header.Get(HeaderTarget)[0] != "shop" {
				t.Errorf("%s: header %q", protocol, header)
			}
		}
	}
}

func TestMessagesOfAnySizePassBothListenersAlike(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	for _, protocol := range listenersForGRPC() {
		for _, size := range []int{0, 1, 900, 70_000, 3_000_000} {
			text := strings.Repeat("0123456789", size/10)
			for _, call := range []grpc.CallOption{grpc.EmptyCallOption{}, grpc.UseCompressor("gzip")} {
				res := &pb.CallToolResponse{}
				if err := b.grpcGo(protocol).Invoke(t.Context(), callTool, echoing(text), res, call, grpc.MaxCallRecvMsgSize(16<<20)); err != nil {
					t.Errorf("%s, %d bytes: %v", protocol, size, err)
				} else if got := res.GetResult().GetStructuredContentJson() + res.GetResult().GetContent()[0].GetText().GetText(); !strings.Contains(got, text) {
					t.Errorf("%s, %d bytes: the answer has %d", protocol, size, len(got))
				}
			}
		}
	}
}

// A caller that does not watch its deadline itself may see nothing but the end of
// the stream.
func TestADeadlineEndsTheCallOnTheFastListener(t *testing.T) {
	server := shop(mcptest.Modern)
	server.Tools[0].Call = mcptest.Silence()
	over, done := returned()
	b := start(t, Options{Interceptors: []connect.ServerInterceptor{over}}, map[string]targetConfig{"shop": {server: server}}).ready()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.fast+callTool, strings.NewReader(frame(0, "\x12\x04echo")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Grpc-Timeout", "100m")
	res, err := httpClient(t, true).Do(req)
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	// the reset may be late
	if answered := err == nil && res.Trailer.Get("Grpc-Status") == "4"; !answered && (err == nil || !strings.Contains(err.Error(), "CANCEL")) {
		t.Errorf("the stream ended with %v", err)
	}
	wantError(t, <-done, connect.CodeDeadlineExceeded, reasonTimeout)
	if _, err := server.WaitFor(t.Context(), mcptest.MethodAborted, 1); err != nil {
		t.Error(err)
	}
}

func TestAPanicOfAnInterceptorIsAnErrorOnTheFastListener(t *testing.T) {
	broken := func(connect.ServerFunc) connect.ServerFunc {
		return func(context.Context, connect.Spec, connect.ServerStream) error { panic("secret value") }
	}
	b := start(t, Options{Interceptors: []connect.ServerInterceptor{broken}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}})
	_, err := b.tools(overFastGRPC).CallTool(t.Context(), &pb.CallToolRequest{Name: "echo"})
	wantError(t, err, connect.CodeInternal, reasonInternal, "log")
	if strings.Contains(err.Error(), "secret") || !strings.Contains(b.logs.String(), "secret value") {
		t.Errorf("%v; log:\n%s", err, b.logs)
	}
}

// unread opens a watch that the caller does not read, with the smallest window.
func (b *bridge) unread(uri string) grpc.ClientStream {
	b.t.Helper()
	stream, err := b.grpcGo(overFastGRPC, grpc.WithStaticStreamWindowSize(65535), grpc.WithStaticConnWindowSize(65535)).
		NewStream(b.t.Context(), &grpc.StreamDesc{ServerStreams: true}, watchResources)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(&pb.WatchResourcesRequest{Uris: []string{uri}}), stream.CloseSend()); err != nil {
		b.t.Fatal(err)
	}
	if err := stream.RecvMsg(&pb.WatchResourcesResponse{}); err != nil { // ready
		b.t.Fatal(err)
	}
	return stream
}

func TestACallerThatDoesNotReadLosesItsStreamOnTheFastListener(t *testing.T) {
	server := shop(mcptest.Legacy)
	over, done := returned()
	b := start(t, Options{limits: limits{stream: 200 * time.Millisecond}, Interceptors: []connect.ServerInterceptor{over}}, map[string]targetConfig{"shop": {server: server}})
	big := "db:///" + strings.Repeat("x", maxURIBytes-6)
	b.unread(big)
	quick := b.watchResources(t.Context(), overFastGRPC, &pb.WatchResourcesRequest{Uris: []string{big}})
	quick.wants("ready false " + big)
	stall(t, server, big, quick)
	wantError(t, <-done, connect.CodeDeadlineExceeded, reasonTimeout)
	updated(server, big)
	quick.wants("updated " + big)
}

func TestWhatIsLeftUntakenDoesNotHoldTheShutdownOfTheFastListener(t *testing.T) {
	server := shop(mcptest.Legacy)
	over, done := returned()
	b := start(t, Options{limits: limits{grace: 200 * time.Millisecond}, Interceptors: []connect.ServerInterceptor{over}}, map[string]targetConfig{"shop": {server: server}})
	big := "db:///" + strings.Repeat("x", maxURIBytes-6)
	b.unread(big)
	quick := b.watchResources(t.Context(), overFastGRPC, &pb.WatchResourcesRequest{Uris: []string{big}})
	quick.wants("ready false " + big)
	stall(t, server, big, quick)
	b.endsWatchesSoon(done, 2)
}

func TestAConnectionOnWhichNothingComesDoesNotHoldTheShutdown(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for _, protocol := range listenersForGRPC() {
		if _, err := b.health(protocol).check(t.Context(), ""); err != nil { // else it may not serve yet
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", b.at(protocol))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	begin := time.Now()
	if err := b.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > readHeaderTimeout-time.Second {
		t.Errorf("the shutdown took %v", took)
	}
	if !refused(b.fast) || !refused(b.addr) {
		t.Error("a listener still accepts connections")
	}
}

func TestServingAfterTheShutdownEndsAtOnce(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Serve(loopback(t)), b.ServeGRPC(loopback(t))); err != nil {
		t.Error(err)
	}
}

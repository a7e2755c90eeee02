package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// exchangeGRPC posts the bytes of a gRPC request and returns those of the answer.
func (b *bridge) exchangeGRPC(protocol, procedure string, headers map[string]string, body io.Reader) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://"+b.at(protocol)+procedure, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	res, err := httpClient(b.t, true).Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, string(answer)
}

// frames are the messages of an answer with their flags.
func frames(t *testing.T, answer string) (flags []byte, messages [][]byte) {
	t.Helper()
	for len(answer) > 0 {
		if len(answer) < 5 || len(answer) < 5+int(binary.BigEndian.Uint32([]byte(answer[1:5]))) {
			t.Fatalf("the answer ends within a message: %q", answer)
		}
		end := 5 + int(binary.BigEndian.Uint32([]byte(answer[1:5])))
		flags, messages = append(flags, answer[0]), append(messages, []byte(answer[5:end]))
		answer = answer[end:]
	}
	return flags, messages
}

func zipped(t *testing.T, data []byte) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func unzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAnswersOfGRPCAreCompressedWhereItHelps(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	for _, protocol := range listenersForGRPC() {
		for _, c := range []struct {
			name     string
			accepts  string
			zip      bool
			size     int
			compress bool
		}{
			{"nothing asked for", "", false, 4000, false},
			{"identity", "identity", false, 4000, false},
			{"large", "deflate, gzip", false, 4000, true},
			{"small", "gzip", false, 10, false},
			{"large, as the request is", "", true, 4000, true},
			{"small, though the request is", "gzip", true, 10, false},
		} {
			t.Run(protocol+"/"+c.name, func(t *testing.T) {
				headers := map[string]string{}
				if c.accepts != "" {
					headers["Grpc-Accept-Encoding"] = c.accepts
				}
				message := marshal(t, echoing(strings.Repeat("x", c.size)))
				body := frame(0, string(message))
				if c.zip {
					headers["Grpc-Encoding"] = "gzip"
					body = frame(1, zipped(t, message))
				}
				res, answer := b.exchangeGRPC(protocol, callTool, headers, strings.NewReader(body))
				flags, messages := frames(t, answer)
				if len(flags) != 1 || (flags[0] == 1) != c.compress || res.Trailer.Get("Grpc-Status") != "0" {
					t.Fatalf("flags %v, trailers %v", flags, res.Trailer)
				}
				if c.compress {
					if got := res.Header.Get("Grpc-Encoding"); got != "gzip" {
						t.Errorf("grpc-encoding %q", got)
					}
					messages[0] = unzipped(t, messages[0])
				}
				got := &pb.CallToolResponse{}
				if err := proto.Unmarshal(messages[0], got); err != nil || got.GetResult() == nil {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
	}
}

func TestLargeEventsOfAStreamAreCompressedAndSmallOnesNot(t *testing.T) {
	long := strings.Repeat("x", 4000)
	server := tooled(mcptest.Modern, func(_ context.Context, r *mcptest.Request) (any, error) {
		r.Progress(1, 0, "short")
		r.Progress(2, 0, long)
		return mcptest.Text("done"), nil
	})
	b := one(t, server).ready()
	for _, protocol := range listenersForGRPC() {
		_, answer := b.exchangeGRPC(protocol, mcpbridgev1connect.ToolsServiceCallToolStreamProcedure, map[string]string{"Grpc-Accept-Encoding": "gzip"},
			strings.NewReader(frame(0, string(marshal(t, workAt(0))))))
		flags, messages := frames(t, answer)
		var got []string
		for i, message := range messages {
			if flags[i] == 1 {
				message = unzipped(t, message)
			}
			e := &pb.CallToolStreamResponse{}
			if err := proto.Unmarshal(message, e); err != nil {
				t.Fatal(err)
			}
			if (e.GetProgress().GetMessage() == long) != (flags[i] == 1) {
				t.Errorf("%s: %.40s has flag %d", protocol, e, flags[i])
			}
			got = append(got, short(e))
		}
		if got := strings.Join(got, ", "); !strings.Contains(got, "progress 2 "+long+", outcome done") { // progress may be overtaken
			t.Errorf("%s: %s", protocol, got)
		}
	}
}

func TestMistakesInGRPCAreNamedOnBothListeners(t *testing.T) {
	b := start(t, Options{MaxRequestBytes: 10_000}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	const message, watch = "\x12\x04echo", "/grpc.health.v1.Health/Watch"
	bomb := zipped(t, bytes.Repeat([]byte{0}, 50_000_000))
	zip := map[string]string{"Grpc-Encoding": "gzip"}
	for _, protocol := range listenersForGRPC() {
		for _, c := range []struct {
			path    string
			headers map[string]string
			body    string
			code    string
			reason  reason
			names   string
		}{
			{watch, nil, frame(0, "") + frame(0, ""), "12", reasonInvalidParams, "exactly one request message"},
			{callTool, nil, frame(0, message) + frame(0, message), "12", reasonInvalidParams, "exactly one request message"},
			{callTool, nil, frame(0x7e, message), "3", reasonInvalidParams, "flags"},
			{callTool, nil, frame(1, message), "3", reasonInvalidParams, "marked as compressed"},
			{callTool, zip, frame(1, message), "3", reasonInvalidParams, "its compression"},
			{callTool, nil, frame(0, "\xff\xff\xff"), "3", reasonInvalidParams, "could not be decoded as mcpbridge.v1.CallToolRequest"},
			{callTool, nil, frame(0, message)[:7], "3", reasonInvalidParams, "ended before its message was complete"},
			{callTool, nil, frame(0, strings.Repeat("x", 10_001)), "8", reasonTooLarge, "listen.max_request_bytes"},
			{callTool, zip, frame(1, bomb), "8", reasonTooLarge, "listen.max_request_bytes"},
			{"/mcpbridge.v1.ToolsService/Nope", nil, frame(0, ""), "12", reasonMethodNotSupported, `this bridge does not serve "mcpbridge.v1.ToolsService/Nope"`},
			{callTool, map[string]string{"Content-Type": "application/grpc+json"}, frame(0, `{"nam":"echo"}`), "3", reasonJSONInvalid, "nam"},
		} {
			t.Run(protocol+"/"+c.names, func(t *testing.T) {
				res, answer := b.exchangeGRPC(protocol, c.path, c.headers, strings.NewReader(c.body))
				code, got, text := grpcAnswer(t, res, answer)
				if code != c.code || got != string(c.reason) || !strings.Contains(text, c.names) {
					t.Errorf("got %s %s %q, want %s %s with %q", code, got, text, c.code, c.reason, c.names)
				}
			})
		}
	}
}

// What grpc-go answers by itself has the codes that gRPC says, in its own words.
func TestWhatTheFastListenerRefusesInWordsOfGRPCGo(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	body := frame(0, "\x12\x04echo")
	for _, c := range []struct{ header, value, code, names string }{
		{"Grpc-Encoding", "br", "12", "br"},
		{"Grpc-Timeout", "soon", "13", "malformed grpc-timeout"},
		{"X-Raw-Bin", "***", "13", "x-raw-bin"},
		{"Content-Type", "application/json", "3", "application/json"},
		{"Content-Type", "application/grpc+thrift", "3", "application/grpc+json"},
	} {
		res, answer := b.exchangeGRPC(overFastGRPC, callTool, map[string]string{c.header: c.value}, strings.NewReader(body))
		if code, _, text := grpcAnswer(t, res, answer); code != c.code || !strings.Contains(text, c.names) {
			t.Errorf("%s %s: %s %q, want %s with %q", c.header, c.value, code, text, c.code, c.names)
		}
	}
}

func TestJSONPassesBothListenersAlike(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	for _, protocol := range listenersForGRPC() {
		res, answer := b.exchangeGRPC(protocol, callTool, map[string]string{"Content-Type": "application/grpc+json"}, strings.NewReader(frame(0, `{"name":"echo"}`)))
		_, messages := frames(t, answer)
		if res.Header.Get("Content-Type") != "application/grpc+json" || len(messages) != 1 || !strings.Contains(string(messages[0]), `"result":`) {
			t.Errorf("%s: %v %s", protocol, res.Header, answer)
		}
	}
}

func TestASlowRequestIsNotWaitedForOnEitherListener(t *testing.T) {
	b := start(t, Options{limits: limits{body: 100 * time.Millisecond}}, map[string]targetConfig{"shop": {server: shop(mcptest.Modern)}}).ready()
	for _, protocol := range listenersForGRPC() {
		for name, sent := range map[string]string{"nothing": "", "half a message": frame(0, "\x12\x04echo")[:7], "no end": frame(0, "\x12\x04echo")} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				body, stall := io.Pipe()
				defer stall.Close()
				go func() { _, _ = stall.Write([]byte(sent)) }() // ends when the body is closed
				res, answer := b.exchangeGRPC(protocol, callTool, nil, body)
				code, reason, text := grpcAnswer(t, res, answer)
				if code != "4" || reason != string(reasonTimeout) || !strings.Contains(text, "did not arrive within 100ms") {
					t.Errorf("%s %s %q", code, reason, text)
				}
			})
		}
	}
}

package server

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// frame is one message as gRPC and the streams of Connect frame it.
func frame(flags byte, message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))) + message
}

// answerOf sends a request and returns code, reason and message of the error.
func answerOf(t *testing.T, b *bridge, path, contentType string, headers map[string]string, body string) (code, reason, message string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	res, text := do(t, req)
	if strings.HasPrefix(contentType, "application/grpc") {
		return grpcAnswer(t, res, text)
	}
	if strings.HasPrefix(contentType, "application/connect+") {
		text = text[min(5, len(text)):]
		var end struct{ Error json.RawMessage }
		if err := json.Unmarshal([]byte(text), &end); err != nil {
			t.Fatalf("%s %q: %v", res.Status, text, err)
		}
		text = string(end.Error)
	}
	return connectAnswer(t, text)
}

func connectAnswer(t *testing.T, text string) (code, reason, message string) {
	t.Helper()
	var answer struct {
		Code, Message string
		Details       []struct {
			Debug struct{ Reason, Domain string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if len(answer.Details) > 0 && answer.Details[0].Debug.Domain == errorDomain {
		reason = answer.Details[0].Debug.Reason
	}
	return answer.Code, reason, answer.Message
}

func grpcAnswer(t *testing.T, res *http.Response, text string) (code, reason, message string) {
	t.Helper()
	header := res.Header
	if len(res.Trailer) > 0 {
		header = res.Trailer
	}
	if header.Get("Grpc-Status") == "" && len(text) > 5 { // gRPC-Web after a body
		header = http.Header{}
		for line := range strings.SplitSeq(text[5:], "\r\n") {
			name, value, _ := strings.Cut(line, ":")
			header.Set(name, strings.TrimSpace(value))
		}
	}
	message, err := url.PathUnescape(header.Get("Grpc-Message"))
	if err != nil {
		t.Fatal(err)
	}
	details := &status.Status{}
	if err := proto.Unmarshal(decodeBin(t, header.Get("Grpc-Status-Details-Bin")), details); err != nil {
		t.Fatal(err)
	}
	for _, d := range details.GetDetails() {
		info := &errdetails.ErrorInfo{}
		if d.MessageIs(info) && d.UnmarshalTo(info) == nil && info.GetDomain() == errorDomain {
			reason = info.GetReason()
		}
	}
	return header.Get("Grpc-Status"), reason, message
}

// decodeBin decodes a header whose name ends in -bin.
func decodeBin(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestRequestsThatDoNotGetAsFarAsACallHaveAuthoredErrors(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	const (
		jsonType, connectStream, web = "application/json", "application/connect+json", "application/grpc-web+proto"
		good, watch                  = `{"name":"echo"}`, "/grpc.health.v1.Health/Watch"
		message                      = "\x12\x04echo"
	)
	for _, c := range []struct {
		path, contentType, header, value, body string
		code, reason, names                    string
	}{
		{callTool, jsonType, "connect-timeout-ms", "secret", good, "invalid_argument", "INVALID_PARAMS", "connect-timeout-ms: is not a number of milliseconds"},
		{callTool, jsonType, "connect-timeout-ms", "-1", good, "invalid_argument", "INVALID_PARAMS", "connect-timeout-ms"},
		{callTool, jsonType, "connect-timeout-ms", "99999999999999999999", good, "invalid_argument", "INVALID_PARAMS", "ten digits"},
		{callTool, jsonType, "connect-timeout-ms", "+5", good, "invalid_argument", "INVALID_PARAMS", "connect-timeout-ms"},
		{callTool, jsonType, "connect-protocol-version", "secret", good, "invalid_argument", "INVALID_PARAMS", `connect-protocol-version: is not a version`},
		{callTool, jsonType, "content-encoding", "secret", good, "unimplemented", "INVALID_PARAMS", "content-encoding: names a compression"},
		{watch, connectStream, "connect-timeout-ms", "secret", frame(0, "{}"), "invalid_argument", "INVALID_PARAMS", "connect-timeout-ms"},
		{watch, connectStream, "connect-protocol-version", "secret", frame(0, "{}"), "invalid_argument", "INVALID_PARAMS", "connect-protocol-version"},
		{watch, connectStream, "connect-content-encoding", "secret", frame(0, "{}"), "unimplemented", "INVALID_PARAMS", "connect-content-encoding"},
		{watch, connectStream, "x", "", "", "unimplemented", "INVALID_PARAMS", "exactly one request message"},
		{watch, connectStream, "x", "", frame(0x10, "{}"), "invalid_argument", "INVALID_PARAMS", "flags"},
		{watch, connectStream, "x", "", frame(2, "x"), "invalid_argument", "INVALID_PARAMS", "last frame"},
		{watch, connectStream, "x", "", `{"target": "shop"}`, "resource_exhausted", "TOO_LARGE", "the body lacks Connect's envelope, the five bytes"},
		{watch, connectStream, "x", "", "\x00\x10\x00\x00\x00", "resource_exhausted", "TOO_LARGE", "the request message is larger than"},
		{watch, connectStream, "x", "", "{}", "invalid_argument", "INVALID_PARAMS", "five bytes before it"},
		{callTool, web, "grpc-timeout", "secret", frame(0, message), "3", "INVALID_PARAMS", "grpc-timeout: is not a number"},
		{callTool, web, "grpc-timeout", "123456789S", frame(0, message), "3", "INVALID_PARAMS", "eight digits"},
		{callTool, web, "grpc-encoding", "secret", frame(1, message), "12", "INVALID_PARAMS", "grpc-encoding: names a compression"},
		{callTool, web, "x", "", "", "12", "INVALID_PARAMS", "exactly one request message"},
		{callTool, web, "x", "", frame(0, message) + frame(0, message), "12", "INVALID_PARAMS", "exactly one request message"},
		{callTool, web, "x", "", frame(0x7e, message), "3", "INVALID_PARAMS", "flags"},
		{callTool, web, "x", "", frame(0x7f, message), "3", "INVALID_PARAMS", "marked as compressed"},
		{callTool, web, "x", "", frame(1, message), "3", "INVALID_PARAMS", "grpc-encoding"},
		{callTool, web, "x", "", frame(0x80, "no header"), "3", "INVALID_PARAMS", "last frame"},
		{callTool, web, "x", "", frame(0, message)[:7], "3", "INVALID_PARAMS", "ended before its message was complete"},
		{callTool, web, "x", "", "\x00\x00", "3", "INVALID_PARAMS", "ended before its message was complete"},
		{callTool, "application/grpc", "grpc-timeout", "secret", frame(0, message), "3", "INVALID_PARAMS", "grpc-timeout"},
	} {
		t.Run(c.contentType+" "+c.header+" "+c.value+" "+c.names, func(t *testing.T) {
			code, reason, text := answerOf(t, b, c.path, c.contentType, map[string]string{c.header: c.value}, c.body)
			if code != c.code || reason != c.reason || !strings.Contains(text, c.names) {
				t.Errorf("got %s %s %q, want %s %s with %q", code, reason, text, c.code, c.reason, c.names)
			}
			for _, foreign := range []string{"secret", "strconv", "parse timeout", "protocol error", "envelope flags", "unary request"} {
				if strings.Contains(text, foreign) {
					t.Errorf("the text holds %q: %s", foreign, text)
				}
			}
		})
	}
	if strings.Contains(b.logs.String(), "secret") {
		t.Errorf("a header's value is in the log:\n%s", b.logs)
	}
	if want := "connect-timeout-ms: is not a number"; !strings.Contains(b.logs.String(), want) || !strings.Contains(b.logs.String(), "procedure="+callTool) {
		t.Errorf("refused requests are not in the log:\n%s", b.logs)
	}
}

func TestConnectGetMistakesAreNamed(t *testing.T) {
	b := one(t, shop(mcptest.Modern)).ready()
	const list = "/mcpbridge.v1.ToolsService/ListTools"
	for query, c := range map[string]struct {
		status int
		names  string
	}{
		"":                                    {415, "encoding"},
		"encoding=xml&message={}":             {415, "encoding=json"},
		"encoding=json":                       {400, "message"},
		"encoding=json&message={}&connect=v9": {400, "connect=v1"},
		"encoding=json&message={}&compression=snappy":    {501, "compression: names"},
		"encoding=json&base64=1&message=***":             {400, "message: is not URL-safe Base64"},
		"encoding=json&base64=1&message=" + "e30%2B":     {400, "Base64"},
		"encoding=json&compression=gzip&message=notgzip": {400, "compression"},
	} {
		res, text := get(t, b.url+list+"?"+query)
		_, reason, message := connectAnswer(t, text)
		if res.StatusCode != c.status || reason != "INVALID_PARAMS" || !strings.Contains(message, c.names) || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("?%s: %s %s %q (%s), want %d naming %q", query, res.Status, reason, message, res.Header.Get("Cache-Control"), c.status, c.names)
		}
	}
	for _, query := range []string{"encoding=json&message={}", "encoding=json&base64=1&message=e30", "encoding=json&base64=1&message=e30=", "encoding=json&message={}&connect=v1"} {
		if res, text := get(t, b.url+list+"?"+query); res.StatusCode != http.StatusOK {
			t.Errorf("?%s: %s %s", query, res.Status, text)
		}
	}
}

func TestBareStatusesCarryAnError(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	res, text := get(t, b.url+callTool+"?encoding=json&message={}")
	if code, reason, message := connectAnswer(t, text); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "POST" || code != "unimplemented" || reason != "METHOD_NOT_SUPPORTED" || !strings.Contains(message, "POST") {
		t.Errorf("GET: %s %v %s", res.Status, res.Header, text)
	}
	for _, contentType := range []string{"text/plain", "application/xml", "application/json; charset=utf-16", "application/connect+json", "application/grpc-web+xml", "application/grpc+xml"} {
		res, text := post(t, b.url+callTool, contentType, `{"name":"echo"}`)
		if code, reason, message := connectAnswer(t, text); res.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(res.Header.Get("Accept-Post"), "application/json") || code != "invalid_argument" || reason != "INVALID_PARAMS" || !strings.Contains(message, "content-type") {
			t.Errorf("%s: %s %v %s", contentType, res.Status, res.Header, text)
		}
	}
	res, text = post(t, b.url+"/mcpbridge.v1.ToolsService/WatchTools", "application/json", `{}`)
	if _, _, message := connectAnswer(t, text); res.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(message, "use application/connect+json or") || strings.Contains(message, "application/json") {
		t.Errorf("a stream: %s %s", res.Status, text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, b.url+callTool, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if res, text := do(t, req); res.StatusCode != http.StatusMethodNotAllowed || text != "" {
		t.Errorf("HEAD: %s %q", res.Status, text)
	}
}

func TestARefusedCompressionNamesThoseThatWork(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for contentType, headers := range map[string][2]string{
		"application/json":           {"Content-Encoding", "Accept-Encoding"},
		"application/grpc-web+proto": {"Grpc-Encoding", "Grpc-Accept-Encoding"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+callTool, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		req.Header.Set(headers[0], "br")
		if res, _ := do(t, req); res.Header.Get(headers[1]) != "gzip" {
			t.Errorf("%s: %v", contentType, res.Header)
		}
	}
}

func TestTimeoutHeadersAreReadAsTheProtocolsSay(t *testing.T) {
	for text, want := range map[string]time.Duration{"5S": 5 * time.Second, "1m": time.Millisecond, "2M": 2 * time.Minute, "3H": 3 * time.Hour, "0n": 0, "99999999u": 99999999 * time.Microsecond} {
		if got, bad := grpcTimeout(text); bad != nil || got == nil || *got != want {
			t.Errorf("grpc-timeout %q: %v, %v", text, got, bad)
		}
	}
	for _, text := range []string{"", "99999999H"} {
		if got, bad := grpcTimeout(text); bad != nil || got != nil {
			t.Errorf("grpc-timeout %q: %v, %v, want none", text, got, bad)
		}
	}
	for _, text := range []string{"S", "5", "5s", "-5S", "+5S", " 5S", "5.0S", "123456789S"} {
		if _, bad := grpcTimeout(text); bad == nil {
			t.Errorf("grpc-timeout %q is accepted", text)
		}
	}
	if got, bad := connectTimeout("9999999999"); bad != nil || got == nil || *got != 9999999999*time.Millisecond {
		t.Errorf("got %v, %v", got, bad)
	}
}

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

const hello = "héllo 世界"

// echoBridge serves one target, "one", that has the tool echo.
func echoBridge(t *testing.T) *bridge {
	t.Helper()
	config, _ := gosdkHTTP(t, "-stateless")
	return serve(t, map[string]target{"one": config})
}

func TestGeneratedConnectClientsWorkInEveryProtocol(t *testing.T) {
	b := echoBridge(t)
	for name, options := range map[string][]connecthttp.Option{
		"gRPC":              nil,
		"gRPC-Web":          {connecthttp.WithGRPCWeb()},
		"Connect":           {connecthttp.WithSendGzip()},
		"Connect with JSON": {connecthttp.WithProtoJSON()},
		"Connect with GET":  {connecthttp.WithHTTPGet()},
	} {
		t.Run(name, func(t *testing.T) {
			c := b.clients(t, options...)
			result := c.result(t, &pb.CallToolRequest{Name: "echo", Arguments: pbStruct(t, map[string]any{"text": hello})})
			if got := firstText(t, result); got != hello {
				t.Errorf("echo returned %q", got)
			}
			list, err := c.tools.ListTools(t.Context(), &pb.ListToolsRequest{})
			if err != nil || len(list.GetTools()) < 11 {
				t.Errorf("ListTools: %v, %s", list, describe(err))
			}
			_, err = c.tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "nothing"})
			got, _ := wantError(t, err, connect.CodeNotFound, "TOOL_NOT_FOUND")
			if detail[*pb.JsonRpcError](t, got).GetCode() != -32602 {
				t.Errorf("no JsonRpcError with -32602 in %s", describe(got))
			}
		})
	}
}

func TestGrpcGoWorks(t *testing.T) {
	conn := echoBridge(t).grpc(t)
	tools := mcpbridgegrpc.NewToolsServiceClient(conn)
	response, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "echo", Arguments: pbStruct(t, map[string]any{"text": hello})})
	if err != nil || firstText(t, response.GetResult()) != hello {
		t.Errorf("echo: %v, %v", response, err)
	}
	_, err = tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "nothing"})
	if s := status.Convert(err); s.Code() != codes.NotFound || len(s.Details()) < 2 {
		t.Errorf("unknown tool: %v %v", err, s.Details())
	}
	targets, err := mcpbridgegrpc.NewHealthServiceClient(conn).ListTargets(t.Context(), &pb.ListTargetsRequest{})
	if err != nil || len(targets.GetTargets()) != 1 {
		t.Errorf("ListTargets: %v, %v", targets, err)
	}
}

func TestGrpcurlWorksByReflection(t *testing.T) {
	grpcurl := cacheDir("bin", "grpcurl")
	if _, err := os.Stat(grpcurl); err != nil {
		needReal(t, "grpcurl is not installed; run test/setup.sh")
	}
	b := echoBridge(t)
	code, out, errOut := run(t, "", grpcurl, "-plaintext", b.grpcAddr, "list")
	for _, service := range []string{"mcpbridge.v1.ToolsService", "mcpbridge.v1.HealthService", "grpc.health.v1.Health"} {
		if code != 0 || !strings.Contains(out, service) {
			t.Errorf("list does not name %s: %d %s%s", service, code, out, errOut)
		}
	}
	code, out, errOut = run(t, "", grpcurl, "-plaintext", b.grpcAddr, "describe", "mcpbridge.v1.CallToolRequest")
	if code != 0 || !strings.Contains(out, "arguments_json") {
		t.Errorf("describe: %d %s%s", code, out, errOut)
	}
	code, out, errOut = run(t, "", grpcurl, "-plaintext", "-d", `{"name":"echo","arguments":{"text":"`+hello+`"}}`, b.grpcAddr, "mcpbridge.v1.ToolsService/CallTool")
	if code != 0 || !strings.Contains(out, hello) {
		t.Errorf("echo: %d %s%s", code, out, errOut)
	}
	code, out, errOut = run(t, "", grpcurl, "-plaintext", "-d", `{"name":"nothing"}`, b.grpcAddr, "mcpbridge.v1.ToolsService/CallTool")
	if code != 64+int(codes.NotFound) || !strings.Contains(errOut, "TOOL_NOT_FOUND") || !strings.Contains(errOut, "JsonRpcError") {
		t.Errorf("unknown tool: %d %s%s", code, out, errOut)
	}
	code, out, errOut = run(t, "", grpcurl, "-plaintext", "-d", `{"service":"target/one"}`, b.grpcAddr, "grpc.health.v1.Health/Check")
	if code != 0 || !strings.Contains(out, `"SERVING"`) {
		t.Errorf("health: %d %s%s", code, out, errOut)
	}
}

func TestBufCurlWorksByReflectionInEveryProtocol(t *testing.T) {
	buf := cacheDir("npm", "node_modules", ".bin", "buf")
	if _, err := os.Stat(buf); err != nil {
		needReal(t, "buf is not installed; run test/setup.sh")
	}
	if _, err := exec.LookPath("node"); err != nil {
		needReal(t, "node, which starts buf, is not on PATH")
	}
	b := echoBridge(t)
	for _, protocol := range []string{"grpc", "grpcweb", "connect"} {
		t.Run(protocol, func(t *testing.T) {
			base := "http://" + b.at(protocol)
			code, out, errOut := run(t, "", buf, "curl", "--protocol", protocol, "-d", `{"name":"echo","arguments":{"text":"`+hello+`"}}`, base+"/mcpbridge.v1.ToolsService/CallTool")
			if code != 0 || !strings.Contains(out, hello) {
				t.Errorf("echo: %d %s%s", code, out, errOut)
			}
			code, out, errOut = run(t, "", buf, "curl", "--protocol", protocol, "-d", `{"name":"nothing"}`, base+"/mcpbridge.v1.ToolsService/CallTool")
			if code != 8*int(codes.NotFound) || !strings.Contains(errOut, "google.rpc.ErrorInfo") || !strings.Contains(errOut, "nothing") {
				t.Errorf("unknown tool: %d %s%s", code, out, errOut)
			}
		})
	}
	code, out, errOut := run(t, "", buf, "curl", "--list-methods", "http://"+b.addr)
	if code != 0 || !strings.Contains(out, "mcpbridge.v1.PromptsService/GetPrompt") {
		t.Errorf("--list-methods: %d %s%s", code, out, errOut)
	}
}

func TestCurlWorksWithPlainJSON(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		needReal(t, "curl is not on PATH")
	}
	base := "http://" + echoBridge(t).addr + "/mcpbridge.v1."
	post := func(procedure, body string) (string, map[string]any) {
		t.Helper()
		_, out, _ := run(t, body, curl, "-sS", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "--data-binary", "@-", base+procedure)
		text, code, _ := strings.Cut(out, "\n")
		var document map[string]any
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatalf("%s answered %s", procedure, out)
		}
		return code, document
	}
	code, document := post("ToolsService/CallTool", `{"name":"echo","arguments":{"text":"`+hello+`"}}`)
	if text, _ := json.Marshal(document); code != "200" || !strings.Contains(string(text), hello) {
		t.Errorf("echo: %s %v", code, document)
	}
	for name, test := range map[string]struct{ body, code, status, says string }{
		"unknown tool":         {`{"name":"nothing"}`, "404", "not_found", "nothing"},
		"misspelt field":       {`{"name":"echo","argumnets":{}}`, "400", "invalid_argument", "argumnets"},
		"number beyond 2^53":   {`{"name":"echo","arguments":{"n":9007199254740993}}`, "400", "invalid_argument", "arguments_json"},
		"body that is no JSON": {`hello`, "400", "invalid_argument", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, document := post("ToolsService/CallTool", test.body)
			message, _ := document["message"].(string)
			if code != test.code || document["code"] != test.status || !strings.Contains(message, test.says) {
				t.Errorf("%s %v, want %s %s naming %q", code, document, test.code, test.status, test.says)
			}
		})
	}
}

func TestConnectGetWorksForWhatHasNoSideEffects(t *testing.T) {
	b := echoBridge(t)
	get := func(procedure, message string, encode bool) *http.Response {
		t.Helper()
		query := url.Values{"encoding": {"json"}, "connect": {"v1"}, "message": {message}}
		if encode {
			query.Set("base64", "1")
			query.Set("message", base64.RawURLEncoding.EncodeToString([]byte(message)))
		}
		response, err := http.Get("http://" + b.addr + "/mcpbridge.v1." + procedure + "?" + query.Encode())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	for _, encode := range []bool{false, true} {
		response := get("ToolsService/ListTools", `{"pageSize":2}`, encode)
		var list struct {
			Tools         []struct{ Name string }
			NextPageToken string
		}
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != 200 || len(list.Tools) != 2 || list.NextPageToken == "" {
			t.Errorf("ListTools: %s %v %v", response.Status, list, err)
		}
	}
	if response := get("ResourcesService/ReadResource", `{"uri":"test://static/one"}`, false); response.StatusCode != 200 {
		t.Errorf("ReadResource: %s", response.Status)
	}
	if response := get("ToolsService/CallTool", `{"name":"echo"}`, false); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("CallTool by GET: %s, want 405", response.Status)
	}
}

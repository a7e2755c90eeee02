package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// descriptors writes what dynamic clients need to know of the API to a file, imports first.
func descriptors(t *testing.T) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	add(pb.File_mcpbridge_v1_tools_proto)
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "descriptors.binpb")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// connectES runs the client testdata/streams.mjs to its end and returns the events it printed. It takes pairs of an RPC
// and its request.
func connectES(t *testing.T, b *bridge, protocol, httpVersion string, rpcs ...string) []map[string]any {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		needReal(t, "node is not on PATH")
	}
	if _, err := os.Stat(cacheDir("npm", "node_modules", "@connectrpc", "connect-node")); err != nil {
		needReal(t, "@connectrpc/connect-node is not installed; run test/setup.sh")
	}
	args := []string{"NODE_PACKAGES=" + cacheDir("npm"), node, "testdata/streams.mjs", protocol, httpVersion, "http://" + b.at(protocol), descriptors(t)}
	code, out, errOut := run(t, "", "env", append(args, rpcs...)...)
	if code != 0 {
		t.Fatalf("node ended with %d: %s%s", code, out, errOut)
	}
	var events []map[string]any
	for line := range strings.Lines(out) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("node printed %s", out)
		}
		events = append(events, event)
	}
	return events
}

// kinds returns the one member that each event has.
func kinds(events []map[string]any) string {
	var list []string
	for _, event := range events {
		for kind := range event {
			list = append(list, kind)
		}
	}
	return strings.Join(list, " ")
}

const (
	fiveReceipts = "progress progress progress progress progress outcome"
	askForAName  = `{"call":{"target":"http-modern","name":"ask","clientCapabilities":{"elicitation":{"form":true}}}}`
)

func TestConnectESReadsStreamsInEveryProtocol(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	b := serve(t, targets)
	for _, over := range []struct{ protocol, version string }{
		{"connect", "1.1"}, {"connect", "2"}, {"grpcweb", "1.1"}, {"grpcweb", "2"}, {"grpc", "2"},
	} {
		t.Run(over.protocol+" over HTTP "+over.version, func(t *testing.T) {
			t.Parallel()
			rpcs := []string{
				"call", fmt.Sprintf(`{"call":{"target":"http-modern","name":"receipts","arguments":{"label":"es-%s-%s","steps":5}}}`, over.protocol, over.version),
				"watch", `{"target":"http-legacy"}`,
			}
			want := fiveReceipts + " ready changed"
			if over.protocol != "grpcweb" && over.version != "1.1" { // those that can stream both ways
				rpcs = append(rpcs, "ask", askForAName)
				want += " inputRequest outcome"
			}
			events := connectES(t, b, over.protocol, over.version, rpcs...)
			if text := fmt.Sprint(events); kinds(events) != want || strings.Contains(want, "inputRequest") != strings.Contains(text, "Hello, Ada!") {
				t.Errorf("events %s", text)
			}
		})
	}
}

func TestConnectESOverHTTP1IsToldThatItCannotAnswer(t *testing.T) {
	t.Parallel()
	targets, _ := everyGosdk(t)
	events := connectES(t, serve(t, targets), "connect", "1.1", "ask", askForAName)
	if text := fmt.Sprint(events); strings.Contains(kinds(events), "inputRequest") || !strings.Contains(text, "HTTP") {
		t.Errorf("events %s, want an error that names HTTP", text)
	}
}

// bufCurl configures buf curl.
func bufCurl(t *testing.T, b *bridge, protocol, method string, more ...string) *exec.Cmd {
	t.Helper()
	buf := cacheDir("npm", "node_modules", ".bin", "buf")
	if _, err := os.Stat(buf); err != nil {
		needReal(t, "buf is not installed; run test/setup.sh")
	}
	if _, err := exec.LookPath("node"); err != nil {
		needReal(t, "node, which starts buf, is not on PATH")
	}
	args := append([]string{"curl", "--protocol", protocol, "--http2-prior-knowledge"}, more...)
	cmd := exec.CommandContext(t.Context(), buf, append(args, "http://"+b.at(protocol)+"/mcpbridge.v1.ToolsService/"+method)...)
	cmd.Env = append(os.Environ(), "BUF_CACHE_DIR="+cacheDir("buf"))
	return cmd
}

func TestBufCurlReadsStreamsOfServerEverythingInEveryProtocol(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"everything": everythingHTTP(t)})
	for _, protocol := range []string{"grpc", "grpcweb", "connect"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			out, err := bufCurl(t, b, protocol, "CallToolStream", "-d", `{"call":{"name":"trigger-long-running-operation","arguments":{"duration":0.5,"steps":5}}}`).CombinedOutput()
			at := 0
			for n := range 5 {
				if next := strings.Index(string(out[at:]), fmt.Sprintf(`"progress": %d`, n+1)); next >= 0 {
					at += next
				} else {
					at = len(out)
				}
			}
			if err != nil || !strings.Contains(string(out[at:]), "Long running operation completed") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A person at a terminal answers in just this way: the question is on the screen before the answer is typed.
func TestBufCurlAnswersQuestionsOfServerEverything(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"everything": everythingHTTP(t)})
	for name, dialog := range map[string]struct{ start, answer, want string }{
		"elicitation": {
			`{"call":{"name":"trigger-elicitation-request","client_capabilities":{"elicitation":{"form":true}}}}`,
			`{"action":"accept","content":{"name":"Ada Lovelace","integer":7}}`, "Ada Lovelace",
		},
		"sampling": {
			`{"call":{"name":"trigger-sampling-request","arguments":{"prompt":"p","maxTokens":5},"client_capabilities":{"sampling":{}}}}`,
			`{"role":"assistant","model":"m","content":{"type":"text","text":"typed by hand"}}`, "typed by hand",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := bufCurl(t, b, "grpc", "CallToolInteractive", "-d", "@-")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(in, "{\"start\":%s}\n", dialog.start)
			printed := bufio.NewReader(out)
			next := func() (event struct {
				InputRequest *struct{ ID, Method string }
				Outcome      json.RawMessage
			}) {
				var document bytes.Buffer
				for depth := 0; ; {
					line, err := printed.ReadString('\n')
					document.WriteString(line)
					depth += strings.Count(line, "{") - strings.Count(line, "}") // no string here has braces
					if err != nil || depth == 0 && strings.TrimSpace(document.String()) != "" {
						break
					}
				}
				if err := json.Unmarshal(document.Bytes(), &event); err != nil {
					t.Errorf("buf printed %s, %s", document.String(), errOut.String())
				}
				return event
			}
			if question := next(); question.InputRequest == nil {
				t.Errorf("the first event is %v", question)
			} else {
				fmt.Fprintf(in, "{\"input_response\":{\"id\":%q,\"result\":%s}}\n", question.InputRequest.ID, dialog.answer)
			}
			if outcome := next(); !strings.Contains(string(outcome.Outcome), dialog.want) {
				t.Errorf("the outcome is %s", outcome.Outcome)
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, errOut.String())
			}
		})
	}
}

// Whoever has curl and a shell can read a stream: each event is JSON behind five bytes.
func TestCurlReadsAStreamOverHTTP1WhileTheToolWaits(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		needReal(t, "curl is not on PATH")
	}
	targets, _ := everyGosdk(t)
	b := serve(t, targets)
	s := b.stubs(t)
	for _, name := range []string{"http-modern", "http-legacy", "stdio"} {
		t.Run(name, func(t *testing.T) {
			request := fmt.Sprintf(`{"call":{"target":%q,"name":"receipts","arguments":{"label":"curl","steps":5}}}`, name)
			cmd := exec.CommandContext(t.Context(), curl, "-sS", "-N", "--http1.1", "-H", "Content-Type: application/connect+json", "--data-binary", "@-", "http://"+b.addr+"/mcpbridge.v1.ToolsService/CallToolStream")
			cmd.Stdin = io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request)))), strings.NewReader(request))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var seen []string
			for {
				var head [5]byte
				if _, err := io.ReadFull(out, head[:]); err != nil {
					t.Fatalf("after %v: %v", seen, err)
				}
				body := make([]byte, binary.BigEndian.Uint32(head[1:]))
				if _, err := io.ReadFull(out, body); err != nil {
					t.Fatal(err)
				}
				if head[0]&2 != 0 { // the end
					if string(body) != "{}" {
						t.Errorf("the stream ended with %s", body)
					}
					break
				}
				var event map[string]any
				if err := json.Unmarshal(body, &event); err != nil {
					t.Fatalf("event %s: %v", body, err)
				}
				seen = append(seen, kinds([]map[string]any{event}))
				if event["progress"] != nil {
					s.must(t, name, "receipt", fmt.Sprintf(`{"label":"curl","steps":%d}`, len(seen)))
				}
			}
			if got := strings.Join(seen, " "); got != fiveReceipts {
				t.Errorf("events %s", got)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

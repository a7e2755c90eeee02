package convert

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var corpusDir = flag.String("corpus", "testdata/corpus", "folder of answers of MCP servers, see testdata/README.md")

// corpusLists maps the ending of a file of the corpus to its list member and the type of its items.
var corpusLists = map[string][2]string{
	"tools":             {"tools", "tool"},
	"resources":         {"resources", "resource"},
	"resourceTemplates": {"resourceTemplates", "resourceTemplate"},
	"prompts":           {"prompts", "prompt"},
}

// corpusResults maps a method to the type of its result.
var corpusResults = map[string]string{
	"tools/call": "toolResult", "resources/read": "readResourceResult", "prompts/get": "getPromptResult", "completion/complete": "completeResult",
}

func TestAnswersOfRealServersLoseNothing(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*corpusDir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus in %s: %v", *corpusDir, err)
	}
	counts := map[string]int{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, s := range corpusSamples(t, file) {
				checkLossless(t, converterOf(t, s.typ), s.raw)
				counts[s.typ]++
			}
		})
	}
	t.Logf("%d files: %v", len(files), counts)
}

type sample struct {
	typ string
	raw []byte
}

// corpusSamples takes one file of the corpus apart.
func corpusSamples(t testing.TB, file string) (out []sample) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSuffix(filepath.Base(file), ".json")
	ending := base[strings.LastIndexByte(base, '-')+1:]
	decode := func(v any) {
		if err := json.Unmarshal(raw, v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	switch ending {
	case "calls":
		var calls []struct {
			Method string
			Result json.RawMessage
		}
		decode(&calls)
		for _, c := range calls {
			typ := corpusResults[c.Method]
			if c.Method == "" {
				typ = "toolResult"
			}
			if c.Result == nil || typ == "" {
				continue
			}
			var head struct{ ResultType string }
			if err := json.Unmarshal(c.Result, &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if head.ResultType == "input_required" {
				typ = "inputRequired"
			}
			out = append(out, sample{typ, c.Result})
		}
	case "initialize", "discover":
		var server struct {
			ServerInfo json.RawMessage
			Meta       struct {
				ServerInfo json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
			} `json:"_meta"`
		}
		decode(&server)
		for _, info := range []json.RawMessage{server.ServerInfo, server.Meta.ServerInfo} {
			if info != nil {
				out = append(out, sample{"implementation", info})
			}
		}
	default:
		list, ok := corpusLists[ending]
		if !ok {
			t.Fatalf("%s: what is %q?", file, ending)
		}
		var members map[string]json.RawMessage
		decode(&members)
		var items []json.RawMessage
		if err := json.Unmarshal(members[list[0]], &items); err != nil && members[list[0]] != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, item := range items {
			out = append(out, sample{list[1], item})
		}
	}
	return out
}

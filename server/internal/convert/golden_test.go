package convert

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
)

var update = flag.Bool("update", false, "rewrite testdata/golden/*.proto.json")

func TestGoldenConversions(t *testing.T) {
	inputs, err := filepath.Glob("testdata/golden/*.mcp.json")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no golden inputs: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".mcp.json")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			typ, _, _ := strings.Cut(name, ".")
			c := converterOf(t, typ)
			checkLossless(t, c, raw)
			m, err := c.convert(raw, 0)
			if err != nil {
				t.Fatal(err)
			}
			// protojson varies its whitespace on purpose.
			text, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, text, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			golden := strings.TrimSuffix(input, ".mcp.json") + ".proto.json"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s changed (-golden +now), rewrite with -update if this is meant:\n%s", name, diff)
			}
		})
	}
}

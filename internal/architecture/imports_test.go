// Package architecture keeps the arrows between the packages of this module
// true. It holds tests only.
package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mcpbridge/mcpbridge/"

// allowed says which packages of ours a package may import outside of tests.
// A new package must be added here: who may import whom is decided in review.
var allowed = map[string][]string{
	"cmd/bridge":              {"internal/admin", "internal/config", "internal/demo", "internal/targets", "mcpclient", "mcpclient/transport", "otel", "server"},
	"examples/goclient":       {"gen/mcpbridge/v1", "gen/mcpbridge/v1/mcpbridgev1connect"},
	"examples/interactive":    {"gen/mcpbridge/v1", "gen/mcpbridge/v1/mcpbridgev1connect"},
	"internal/admin":          nil,
	"internal/balance":        {"mcpclient/transport"},
	"internal/config":         nil,
	"internal/demo":           nil,
	"internal/targets":        {"internal/balance", "internal/config", "mcpclient", "mcpclient/pool", "mcpclient/transport"},
	"mcpclient":               {"mcpclient/jsonrpc", "mcpclient/rawjson", "mcpclient/transport"},
	"mcpclient/jsonrpc":       {"mcpclient/rawjson"},
	"mcpclient/mcptest":       nil,
	"mcpclient/pool":          {"mcpclient"},
	"mcpclient/rawjson":       nil,
	"mcpclient/transport":     {"mcpclient/jsonrpc", "mcpclient/rawjson"},
	"otel":                    {"mcpclient", "mcpclient/jsonrpc", "mcpclient/pool"},
	"server":                  {"gen/mcpbridge/v1", "gen/mcpbridge/v1/mcpbridgev1connect", "internal/targets", "mcpclient", "mcpclient/jsonrpc", "mcpclient/pool", "mcpclient/rawjson", "server/internal/convert"},
	"server/internal/convert": {"gen/mcpbridge/v1", "mcpclient/rawjson"},
}

// reserved says which packages (with what is below them) alone may import a
// foreign one outside of tests.
var reserved = map[string][]string{
	"connectrpc.com":                                   {"examples", "otel", "server"},
	"google.golang.org/protobuf":                       {"examples", "server"},
	"google.golang.org/genproto":                       {"examples", "server"},
	"google.golang.org/grpc":                           {"server"},
	"go.opentelemetry.io":                              {"cmd/bridge", "otel"},
	"github.com/prometheus":                            {"otel"},
	"net/http/pprof":                                   {"internal/admin"},
	"github.com/modelcontextprotocol/go-sdk":           {"internal/demo"},
	"github.com/fsnotify":                              {"cmd/bridge"},
	"github.com/spf13":                                 {"cmd/bridge"},
	"github.com/bufbuild/httplb":                       {"internal/balance"},
	"github.com/goccy/go-yaml":                         {"internal/config"},
	"github.com/google/go-cmp":                         nil,
	"go.uber.org/goleak":                               nil,
	"testing":                                          nil,
	"net/http/httptest":                                {"mcpclient/mcptest"},
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest": nil,
}

// within reports whether name is root or below it.
func within(name, root string) bool { return name == root || strings.HasPrefix(name, root+"/") }

// violations lists what one file imports against the two tables.
func violations(pkg string, imports []string) []string {
	var found []string
	may, listed := allowed[pkg]
	if !listed {
		found = append(found, "the package is not in the import table; add it with what it may import")
	}
	for _, imp := range imports {
		if rest, ours := strings.CutPrefix(imp, module); ours && !slices.Contains(may, rest) {
			found = append(found, "must not import "+rest)
		}
		for foreign, owners := range reserved {
			if within(imp, foreign) && !slices.ContainsFunc(owners, func(o string) bool { return within(pkg, o) }) {
				found = append(found, "must not import "+imp+"; only "+strings.Join(owners, ", ")+" and tests may")
			}
		}
	}
	return found
}

// The files are parsed here, not listed by the go command: the test cache
// knows which files a test opened, so a bad import is never hidden by it.
func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	root := os.DirFS("../..")
	seen := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || name == "gen") {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); name != "." && err == nil {
				return fs.SkipDir // a module of its own
			}
			return nil
		case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, spec := range file.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, imp)
		}
		pkg := path.Dir(name)
		seen[pkg] = true
		for _, v := range violations(pkg, imports) {
			t.Errorf("%s: %s", name, v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range allowed {
		if !seen[pkg] {
			t.Errorf("the import table lists %s, which has no Go files; remove it", pkg)
		}
	}
}

func TestTheTablesCatchBadImports(t *testing.T) {
	for _, tt := range []struct {
		pkg, imp string
		bad      bool
	}{
		{"mcpclient", module + "server", true},
		{"mcpclient", module + "mcpclient/pool", true},
		{"mcpclient", module + "mcpclient/transport", false},
		{"mcpclient", "connectrpc.com/connect/v2", true},
		{"mcpclient/transport", "google.golang.org/protobuf/proto", true},
		{"mcpclient/pool", "go.opentelemetry.io/otel/trace", true},
		{"server", "github.com/modelcontextprotocol/go-sdk/mcp", true},
		{"server", "connectrpc.com/connect/v2", false},
		{"server/internal/convert", "google.golang.org/protobuf/types/known/structpb", false},
		{"internal/demo", "github.com/modelcontextprotocol/go-sdk/mcp", false},
		{"internal/targets", "testing", true},
		{"internal/targets", "testing/fstest", true},
		{"internal/newcomer", "fmt", true},
	} {
		if got := violations(tt.pkg, []string{tt.imp}); (len(got) > 0) != tt.bad {
			t.Errorf("%s importing %s: %q, want bad = %t", tt.pkg, tt.imp, got, tt.bad)
		}
	}
}

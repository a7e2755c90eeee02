package mcpclient_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// clientDoc is the documentation of the package, which is two files.
func clientDoc(t *testing.T) string {
	t.Helper()
	var both strings.Builder
	for _, name := range []string{"client.md", "client-options.md"} {
		text, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		both.Write(append(text, '\n'))
	}
	return both.String()
}

func TestTheCodeOfTheDocumentationIsInTheExamples(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(clientDoc(t), -1)
	if len(blocks) < 2 {
		t.Fatalf("the documentation has %d blocks of Go code", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(string(examples), block[1]) {
			t.Errorf("this code is not in example_test.go:\n%s", block[1])
		}
	}
}

func TestEveryTestThatTheDocumentationNamesExists(t *testing.T) {
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, folder := range []string{".", "../internal/targets"} {
		files, err := filepath.Glob(folder + "/*_test.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllSubmatch(source, -1) {
				declared[string(m[1])] = true
			}
		}
	}
	named := regexp.MustCompile(`\bTest[A-Z0-9]\w+`).FindAllString(clientDoc(t), -1)
	if len(named) < 50 {
		t.Errorf("the documentation names only %d tests", len(named))
	}
	for _, name := range named {
		if !declared[name] {
			t.Errorf("%s does not exist", name)
		}
	}
}

// The options of other clients are listed here once more, so that none can
// fall out of the documentation.
func TestTheDocumentationKnowsEveryOptionOfTheOtherClients(t *testing.T) {
	doc := clientDoc(t)
	for section, options := range map[string]string{
		"LangChain4j": `transport key clientName clientVersion protocolVersion initializationTimeout protocolDetectionTimeout
			toolExecutionTimeout resourcesTimeout promptsTimeout toolExecutionTimeoutErrorMessage pingTimeout reconnectInterval
			autoHealthCheck autoHealthCheckInterval roots cacheToolList cacheResourceList cachePromptList listener addListener
			addListeners logHandler progressHandler metaSupplier toolResultExtractor onResourceUpdated subscribeToToolListChanges
			subscribeToPromptListChanges subscribeToResourceListChanges multiRoundTripMaxRetries build`,
		"Nexus": `setClientInfo setClientCapabilities setLogger setMaxInFlightDispatches setRequestIdFactory setProgressTokenFactory
			setMetaExtrasFactory setRequestTimeout setMaxRequestTimeout setRetryLostRequests`,
		"C#": `Capabilities ClientInfo Handlers DiscoverProbeTimeout InitializationTimeout ProtocolVersion InitializeMeta
			MaxConsecutiveStuckPolls`,
		"Spring AI Alibaba": `enabled ping delay stop type init startScheduledPolling startReconnectTask getToolCallback`,
	} {
		_, text, found := strings.Cut(doc, "\n## "+section+"\n")
		if !found {
			t.Errorf("there is no section %s", section)
		}
		text, _, _ = strings.Cut(text, "\n#")
		for option := range strings.FieldsSeq(options) {
			row := ""
			for line := range strings.Lines(text) {
				if first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|"); strings.Contains(first, "`"+option+"`") {
					row = line
				}
			}
			if row == "" {
				t.Errorf("%s: no row for %s", section, option)
			} else if !strings.Contains(row, "Test") {
				t.Errorf("%s: the row of %s names no test", section, option)
			}
		}
	}
}

func TestTheDocumentationKnowsEveryOption(t *testing.T) {
	doc := clientDoc(t)
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for f := range typ.Fields() {
			switch {
			case f.Type.Kind() == reflect.Struct && f.Name != "Info" && f.Name != "Capabilities":
				walk(prefix+f.Name+".", f.Type)
			case !strings.Contains(doc, "`"+prefix+f.Name+"`"):
				t.Errorf("the option %s%s is neither in docs/client.md nor in docs/client-options.md", prefix, f.Name)
			}
		}
	}
	walk("", reflect.TypeFor[mcpclient.Options]())
}

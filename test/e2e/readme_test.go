package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// readmeBlock is a marked shell block:
//
//	<!-- test:NAME --> or <!-- test:NAME background --> or <!-- test:NAME prints "TEXT" -->
//	```sh
//	commands
//	```
//
// Blocks run in order with "bridge", grpcurl and buf on PATH, in the root of the repository. A background block keeps
// running until the end of the test; the next block starts when 127.0.0.1:8080, the default address, accepts.
var readmeBlock = regexp.MustCompile("(?m)^<!-- test:(\\S+)( background)?(?: prints \"([^\"]*)\")? -->\n+```sh\n((?s:.*?))^```$")

const defaultAddress = "127.0.0.1:8080"

func TestTheReadmesCommandsWork(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := readmeBlock.FindAllStringSubmatch(string(readme), -1)
	if marks := strings.Count(string(readme), "<!-- test:"); len(blocks) != marks || marks == 0 {
		t.Fatalf("README.md has %d marks and %d blocks that follow one in the expected form", marks, len(blocks))
	}
	if conn, err := net.Dial("tcp", defaultAddress); err == nil {
		conn.Close()
		t.Fatalf("something else listens on %s, which the README uses", defaultAddress)
	}
	bin := t.TempDir()
	if err := os.Symlink(bridgeBinary, filepath.Join(bin, "bridge")); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{bin, cacheDir("venv-stubs", "bin"), cacheDir("bin"), cacheDir("npm", "node_modules", ".bin"), os.Getenv("PATH")}, string(os.PathListSeparator))
	for _, block := range blocks {
		name, background, prints, script := block[1], block[2] != "", block[3], block[4]
		if tool := missingTool(path, script); tool != "" {
			if os.Getenv("REQUIRE_REAL") == "1" {
				t.Fatalf("README block %s needs %s, which is not installed", name, tool)
			}
			t.Logf("SKIP: README block %s needs %s, which is not installed", name, tool)
			continue
		}
		cmd := exec.Command("sh", "-eu", "-c", script)
		cmd.Dir = root
		cmd.Env = append(cleanEnv(), "PATH="+path, "BUF_CACHE_DIR="+cacheDir("buf"))
		p := start(t, "README block "+name, cmd)
		if background {
			waitListening(t, p)
			continue
		}
		if code, out := p.exited(t); code != 0 || !strings.Contains(out, prints) {
			t.Errorf("README block %s ended with %d, want 0 and %q in its output:\n%s", name, code, prints, out)
		}
	}
}

// missingTool names a tool that a block needs and that could not be installed.
func missingTool(path, script string) string {
	if strings.Contains(script, "grpc_tools") {
		if _, err := os.Stat(cacheDir("stubs.stamp")); err != nil {
			return "grpcio-tools for Python"
		}
	}
	for _, tool := range []string{"buf", "grpcurl", "curl"} {
		needed := strings.HasPrefix(script, tool+" ") || strings.Contains(script, "\n"+tool+" ")
		if needed && !slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, tool))
			return err == nil
		}) {
			return tool
		}
	}
	return ""
}

func waitListening(t *testing.T, p *process) {
	t.Helper()
	eventually(t, p.name, func() string {
		select {
		case <-p.done:
			t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.out.String())
		default:
		}
		conn, err := net.DialTimeout("tcp", defaultAddress, time.Second)
		if err != nil {
			return err.Error()
		}
		conn.Close()
		return ""
	})
}

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// The binaries under test, built once a run.
var bridgeBinary, gosdkBinary string

// TestMain builds the bridge and the Go fixture. BRIDGE_BIN names a bridge that is already built. Some tests have the
// bridge run this binary as a scripted server.
func TestMain(m *testing.M) {
	mcptest.MainStdio(faultScripts)
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "mcpbridge-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	gosdkBinary = filepath.Join(dir, "gosdk")
	if err := build("..", "-o", gosdkBinary, "./fixtures/gosdk"); err != nil {
		return 0, err
	}
	bridgeBinary = os.Getenv("BRIDGE_BIN")
	if bridgeBinary == "" {
		bridgeBinary = filepath.Join(dir, "bridge")
		if err := build("../..", "-race", "-o", bridgeBinary, "./cmd/bridge"); err != nil {
			return 0, err
		}
	}
	// Much of what runs in parallel here waits for time to pass, so that it may be more than there are processors, and
	// some of it measures time, so that it may not be any number. The command line has the last word.
	if err := flag.Set("test.parallel", "16"); err != nil {
		return 0, err
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		err = goleak.Find()
	}
	return code, err
}

func build(dir string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}

// cacheDir is a path below test/.cache, where setup.sh puts things.
func cacheDir(path ...string) string {
	dir, err := filepath.Abs(filepath.Join(append([]string{"..", ".cache"}, path...)...))
	if err != nil {
		panic(err) // the working directory is gone
	}
	return dir
}

// Package zoo drives the client directly against real MCP servers of many makes: what each of them is found to be, what
// it lists, one call, and the odd behaviour that a client can trip over. "make test-zoo" installs the servers and runs
// the tests; without ZOO=1 in the environment they do nothing. Linux only: the search for orphans reads /proc.
package zoo

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("ZOO") != "1" {
		fmt.Println("zoo: nothing was run; use make test-zoo")
		return
	}
	goleak.VerifyTestMain(m)
}

package e2e

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func TestASecondSignalEndsTheBridgeAtOnce(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]target{"child": {"command": []string{bridgeBinary, "demo-server"}}}, withAdmin)
	tools := b.clients(t).tools
	if _, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "slow", Arguments: pbStruct(t, map[string]any{"ms": 0})}); err != nil { // it is connected now
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := tools.CallTool(t.Context(), &pb.CallToolRequest{Name: "slow", Arguments: pbStruct(t, map[string]any{"ms": 300_000})})
		done <- err
	}()
	url := b.admin(t)
	eventually(t, "the call is under way", func() string {
		if _, body := get(t, url+"/metrics"); !strings.Contains(body, `mcpbridge_pool_in_flight{mcpbridge_target="child"} 1`) {
			return "it holds no place"
		}
		return ""
	})
	signal := func() {
		if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	signal() // the same, as timeout sends it
	b.waitOutput(t, regexp.MustCompile(`shutting down`))
	select {
	case err := <-done:
		t.Fatalf("the call was cut by the first signal: %v", err)
	case <-b.done:
		t.Fatal("the first signal did not wait for the call")
	case <-time.After(300 * time.Millisecond): // what must not happen
	}
	begin := time.Now()
	signal()
	wantError(t, <-done, connect.CodeUnknown, "OUTCOME_UNKNOWN")
	code, out := b.exited(t)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the bridge took %v to end", took)
	}
	if code != 0 || strings.Count(out, `msg="calls were cut off`) != 1 || !strings.Contains(out, "second signal") || !strings.HasSuffix(out, "msg=stopped\n") {
		t.Errorf("code %d: %s", code, tail(out, 2000))
	}
}

package e2e

import (
	"net/url"
	"os/exec"
	"syscall"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func TestATargetThatComesBackIsServedAgain(t *testing.T) {
	for name, flags := range map[string][]string{"HTTP": {"-stateless"}, "HTTP with sessions that the server forgets": nil} {
		t.Run(name, func(t *testing.T) {
			first := start(t, "gosdk", exec.Command(gosdkBinary, append(flags, "-http", "127.0.0.1:0")...))
			endpoint := first.waitOutput(t, listening)[1]
			u, err := url.Parse(endpoint)
			if err != nil {
				t.Fatal(err)
			}
			comesBack(t, target{"url": endpoint}, func() { first.stop(t) }, func() {
				start(t, "gosdk again", exec.Command(gosdkBinary, append(flags, "-http", u.Host)...)).waitOutput(t, listening)
			})
		})
	}
	t.Run("stdio", func(t *testing.T) {
		config, log := gosdkStdio(t)
		comesBack(t, config, func() {
			pid := log.matching(t, func(e event) bool { return e.Kind == "start" })[0].PID
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, func() {}) // the bridge starts it itself
	})
}

// comesBack ends a server under a bridge, starts it again and expects calls to work again, with no help.
func comesBack(t *testing.T, config target, end, restart func()) {
	config["reconnect"] = map[string]string{"interval": "100ms", "max_interval": "1s"}
	b := serve(t, map[string]target{"one": config})
	c := b.clients(t)
	echo := &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"text":"x"}`)}
	c.result(t, echo)

	end()
	restart()
	eventually(t, "a call", func() string {
		if _, err := c.tools.CallTool(t.Context(), echo); err != nil {
			return describe(err)
		}
		return ""
	})
	health := healthpb.NewHealthClient(b.grpc(t))
	eventually(t, "health", func() string {
		response, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "target/one"})
		if err != nil || response.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return response.GetStatus().String()
		}
		return ""
	})
}

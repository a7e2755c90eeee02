package targets

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// lines is a log that tells when a line with some text was written.
type lines struct {
	mu   sync.Mutex // protects the fields below
	buf  bytes.Buffer
	want string
	seen chan struct{} // closed once want was written
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.buf.Write(b)
	if l.want != "" && strings.Contains(l.buf.String(), l.want) {
		l.want = ""
		close(l.seen)
	}
	return n, err
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestAServersLogReachesOursWithoutSecrets(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Legacy, mcptest.Modern} {
		t.Run(fmt.Sprint(era), func(t *testing.T) {
			out := &lines{want: "last words", seen: make(chan struct{})}
			srv := &mcptest.Server{
				Era: era, Capabilities: `{"logging":{},"tools":{}}`,
				Tools: []mcptest.Tool{{Name: "talk", Call: func(_ context.Context, r *mcptest.Request) (any, error) {
					for _, data := range []any{"key is topsecret", map[string]string{"text": "last words"}} {
						r.Notify("notifications/message", map[string]any{"level": "critical", "logger": "db", "data": data})
					}
					return mcptest.Text("done"), nil
				}}},
			}
			c := httpTarget(mcptest.StartHTTP(t, srv))
			c.Headers = map[string]config.Secret{"X-Key": "topsecret"}
			c.ServerLogLevel = config.ServerLogWarning
			s := newSet(t, Deps{Logger: slog.New(slog.NewTextHandler(out, nil))}, map[string]*config.Target{"x": c})
			if _, err := call(t, s, "x", "talk"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-out.seen:
			case <-t.Context().Done():
			}
			for _, want := range []string{`level=ERROR msg="the server logged a message" target=x severity=critical logger=db data="\"key is [redacted]\""`, "last words"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("want %s in\n%s", want, out)
				}
			}
			if strings.Contains(out.String(), "topsecret") {
				t.Errorf("the secret is in\n%s", out)
			}
			if e, err := srv.WaitFor(t.Context(), "tools/call", 1); err != nil || era == mcptest.Modern && string(e.Meta(mcpclient.MetaLogLevel)) != `"warning"` {
				t.Errorf("%v, %s", err, e.Raw)
			}
			if era == mcptest.Legacy && srv.Count("logging/setLevel") != 1 {
				t.Errorf("logging/setLevel came %d times", srv.Count("logging/setLevel"))
			}
		})
	}
}

func TestLogMessagesKeepTheirSeverityAndLoseTheirExcess(t *testing.T) {
	for level, want := range map[mcpclient.LogLevel]string{
		mcpclient.LogDebug: "DEBUG", mcpclient.LogInfo: "INFO", mcpclient.LogNotice: "INFO", mcpclient.LogWarning: "WARN",
		mcpclient.LogError: "ERROR", mcpclient.LogCritical: "ERROR", mcpclient.LogAlert: "ERROR", mcpclient.LogEmergency: "ERROR", "loud": "INFO",
	} {
		var out bytes.Buffer
		log := serverLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), strings.ToUpper)
		log(t.Context(), mcpclient.LogMessage{Level: level, Data: jsontext.Value(`"` + strings.Repeat("ä", maxServerLog) + `"`)})
		if got := out.String(); !strings.Contains(got, "level="+want) || len(got) > maxServerLog+300 || !strings.Contains(got, "ÄÄ…") {
			t.Errorf("%s: %.200s… (%d bytes), want %s", level, got, len(got), want)
		}
	}
	var out bytes.Buffer
	serverLog(slog.New(slog.NewTextHandler(&out, nil)), func(string) string { t.Error("redacted for nothing"); return "" })(t.Context(), mcpclient.LogMessage{Level: mcpclient.LogDebug})
	if out.Len() > 0 {
		t.Errorf("below our level: %s", out.String())
	}
}

func TestAServersLogIsDroppedUnlessAskedFor(t *testing.T) {
	c := config.NewTarget(config.TransportAuto)
	if o := newBuilder(Deps{}).options("x", c); o.LogLevel != "" {
		t.Errorf("the level is %q", o.LogLevel)
	}
}

func TestStderrLosesTheSecretsOfItsTarget(t *testing.T) {
	child := mcptest.StartChild(t, "talkative")
	c := childTarget(child)
	c.Env["API_KEY"], c.Env["PEM"] = "topsecret", "line one\nline two"
	s := newSet(t, Deps{}, map[string]*config.Target{"x": c})
	if _, err := call(t, s, "x", "env"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.current.Load().byName["x"].StderrTail(), "|"); got != "using [redacted] now|cert [redacted] loaded" {
		t.Errorf("stderr = %q", got)
	}
	if got := s.current.Load().byName["x"].Redact("topsecret!"); got != "[redacted]!" {
		t.Errorf("Redact gave %q", got)
	}
}

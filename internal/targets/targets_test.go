package targets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestMain(m *testing.M) {
	mcptest.MainStdio(map[string]func() *mcptest.Server{
		"talkative": func() *mcptest.Server {
			return &mcptest.Server{
				Stdio: mcptest.StdioOptions{Stderr: []string{"using " + os.Getenv("API_KEY") + " now", "cert " + os.Getenv("PEM") + " loaded"}},
				Tools: []mcptest.Tool{{Name: "env", Call: mcptest.Respond(mcptest.Text("ok"))}},
			}
		},
		"quitter": func() *mcptest.Server {
			return &mcptest.Server{Era: mcptest.Legacy, Initialize: mcptest.Exit(3)}
		},
		"fragile": func() *mcptest.Server {
			return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "die", Call: mcptest.Exit(3)}, {Name: "hang", Call: mcptest.Silence()}, {Name: "hi"}}}
		},
		"stubborn": func() *mcptest.Server {
			return &mcptest.Server{
				Era: mcptest.Legacy, Stdio: mcptest.StdioOptions{IgnoreEOF: true, IgnoreTERM: true},
				Tools: []mcptest.Tool{{Name: "hang", Call: mcptest.Silence()}},
			}
		},
		"legacy": func() *mcptest.Server {
			return &mcptest.Server{Era: mcptest.Legacy, Stdio: mcptest.StdioOptions{Stderr: []string{"ready to serve"}}, Tools: []mcptest.Tool{
				{Name: "env", Call: func(context.Context, *mcptest.Request) (any, error) {
					return map[string]any{"content": []any{}, "structuredContent": os.Environ()}, nil
				}},
			}}
		},
	})
	goleak.VerifyTestMain(m)
}

func httpTarget(url string) *config.Target {
	c := config.NewTarget(config.TransportAuto)
	c.URL = url
	return c
}

func childTarget(child *mcptest.Child) *config.Target {
	c := config.NewTarget(config.TransportStdio)
	c.Command = []string{child.Path}
	c.Env = map[string]config.Secret{}
	for _, entry := range child.Env {
		name, value, _ := strings.Cut(entry, "=")
		c.Env[name] = config.Secret(value)
	}
	return c
}

// deadURL is an address where nobody listens.
func deadURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprintf("http://%s/mcp", l.Addr())
}

func newSet(t *testing.T, d Deps, targets map[string]*config.Target) *Set {
	t.Helper()
	cfg := config.Default()
	cfg.Targets = targets
	s, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// call runs a tool of a target.
func call(t *testing.T, s *Set, target, tool string) (*mcpclient.Result, error) {
	t.Helper()
	tg, err := s.Get(target)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := tg.Acquire(t.Context(), Caller{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	return lease.Client().CallTool(t.Context(), tool, nil, nil)
}

func TestOneDeadTargetDoesNotHurtTheOthers(t *testing.T) {
	srv := &mcptest.Server{Tools: []mcptest.Tool{{Name: "hi", Call: mcptest.Respond(mcptest.Text("hello"))}}}
	child := mcptest.StartChild(t, "legacy")
	s := newSet(t, Deps{Version: "9.9.9"}, map[string]*config.Target{
		"web": httpTarget(mcptest.StartHTTP(t, srv)), "dead": httpTarget(deadURL(t)), "child": childTarget(child),
	})
	s.Start()

	result, err := call(t, s, "web", "hi")
	if err != nil || !strings.Contains(string(result.Raw), "hello") {
		t.Errorf("web: %v", err)
	}
	if _, err = call(t, s, "child", "env"); err != nil {
		t.Errorf("child: %v", err)
	}
	_, err = call(t, s, "dead", "hi")
	if e, ok := errors.AsType[*mcpclient.Error](err); !ok || e.Kind != mcpclient.KindUnavailable || !e.SafeToRetry {
		t.Errorf("dead: %v, want unavailable and safe to retry", err)
	}

	names := []string{}
	for _, tg := range s.All() {
		names = append(names, tg.Name()+"/"+tg.TransportName())
	}
	if got := strings.Join(names, " "); got != "child/stdio dead/streamable_http web/streamable_http" {
		t.Errorf("All = %s", got)
	}
	web, child2 := s.current.Load().byName["web"], s.current.Load().byName["child"]
	if st := web.Status(); st.State != pool.StateReady || st.Server.Era != mcpclient.EraModern || web.Stat().Connections != 1 || web.StderrTail() != nil {
		t.Errorf("web = %+v", st)
	}
	if st := child2.Status(); st.Server == nil || st.Server.Era != mcpclient.EraLegacy {
		t.Errorf("child = %+v", st)
	}
	if st := s.current.Load().byName["dead"].Status(); st.State == pool.StateReady || st.LastError == nil {
		t.Errorf("dead = %+v", st)
	}
	if got := strings.Join(child2.StderrTail(), "|"); !strings.Contains(got, "ready to serve") {
		t.Errorf("stderr = %q", got)
	}

	e, err := srv.WaitFor(t.Context(), "tools/call", 1)
	if err != nil {
		t.Fatal(err)
	}
	if info := string(e.Meta(mcpclient.MetaClientInfo)); !strings.Contains(info, `"bridge - web"`) || !strings.Contains(info, `"9.9.9"`) {
		t.Errorf("client info = %s", info)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := child.WaitFor(t.Context(), mcptest.MethodEOF, 1); err != nil {
		t.Errorf("the child was not ended by closing stdin: %v", err)
	}
	if _, err := web.Acquire(t.Context(), Caller{}); !errors.Is(err, &mcpclient.Error{Kind: mcpclient.KindClosed}) {
		t.Errorf("Acquire after Close = %v", err)
	}
}

func TestTargetsOfOneURLHaveSessionsOfTheirOwn(t *testing.T) {
	srv := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "hi"}}}
	url := mcptest.StartHTTP(t, srv)
	s := newSet(t, Deps{}, map[string]*config.Target{"a": httpTarget(url), "b": httpTarget(url)})
	for _, name := range []string{"a", "b"} {
		if _, err := call(t, s, name, "hi"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := srv.Count("initialize"); got != 2 {
		t.Errorf("sessions = %d, want 2", got)
	}
	if got := srv.Count(mcptest.MethodDelete); got != 2 {
		t.Errorf("deleted sessions = %d, want 2", got)
	}
}

func TestLazyTargetsConnectAtTheFirstCall(t *testing.T) {
	srv := &mcptest.Server{Tools: []mcptest.Tool{{Name: "hi"}}}
	c := httpTarget(mcptest.StartHTTP(t, srv))
	c.Lazy = true
	s := newSet(t, Deps{}, map[string]*config.Target{"only": c})
	s.Start()
	if got := s.All()[0].Status().State; got != pool.StateIdle {
		t.Errorf("state after Start = %v, want idle", got)
	}
	if _, err := call(t, s, "", "hi"); err != nil {
		t.Fatal(err)
	}
	if got := s.All()[0].Status().State; got != pool.StateReady {
		t.Errorf("state after a call = %v, want ready", got)
	}
}

func TestGetSaysWhatCanBeNamed(t *testing.T) {
	none := newSet(t, Deps{}, nil)
	if _, err := none.Get(""); err == nil || !strings.Contains(err.Error(), "no target is configured") {
		t.Errorf("no targets: %v", err)
	}
	one := newSet(t, Deps{}, map[string]*config.Target{"a": httpTarget("http://127.0.0.1:1/")})
	if tg, err := one.Get(""); err != nil || tg.Name() != "a" {
		t.Errorf("only one: %v", err)
	}
	many := map[string]*config.Target{}
	for i := range 12 {
		many[fmt.Sprintf("t%02d", i)] = httpTarget("http://127.0.0.1:1/")
	}
	s := newSet(t, Deps{}, many)
	_, err := s.Get("")
	if !errors.Is(err, ErrRequired) || !strings.Contains(err.Error(), "t00, t01") || !strings.Contains(err.Error(), "2 more") {
		t.Errorf("several: %v", err)
	}
	_, err = s.Get("T00")
	e, ok := errors.AsType[*NotFoundError](err)
	if !ok || e.Name != "T00" || !strings.Contains(err.Error(), `"T00" is not configured; use one of t00`) {
		t.Errorf("unknown: %v", err)
	}
	if _, err = s.Get(strings.Repeat("x", 5000)); len(err.Error()) > 300 {
		t.Errorf("a long name makes a long error: %d bytes", len(err.Error()))
	}
	if _, err = one.Get("b"); err == nil || !strings.HasSuffix(err.Error(), "use a") {
		t.Errorf("unknown of one: %v", err)
	}
}

func TestNewNamesEveryTargetThatCannotBeBuilt(t *testing.T) {
	cfg := config.Default()
	cfg.Targets = map[string]*config.Target{"a": httpTarget("ftp://x/"), "b": nil, "ok": httpTarget("http://x/")}
	_, err := New(cfg, Deps{})
	if err == nil || !strings.Contains(err.Error(), "target a: ") || !strings.Contains(err.Error(), "target b: ") {
		t.Errorf("New = %v", err)
	}
}

func TestChildrenInheritOnlyWhatTheyNeed(t *testing.T) {
	child := mcptest.StartChild(t, "legacy")
	s := newSet(t, Deps{Environ: []string{"PATH=/usr/bin:/bin", "HOME=/h", "LC_ALL=C", "AWS_SECRET_ACCESS_KEY=secret", "HTTPS_PROXY=x"}},
		map[string]*config.Target{"child": childTarget(child)})
	result, err := call(t, s, "", "env")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		StructuredContent []string `json:"structuredContent"`
	}
	if err := json.Unmarshal(result.Raw, &got); err != nil {
		t.Fatal(err)
	}
	joined := strings.Join(got.StructuredContent, "\n")
	for _, want := range []string{"HOME=/h", "LC_ALL=C", "MCPTEST_SCRIPT=legacy"} {
		if !strings.Contains(joined, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, secret := range []string{"AWS_", "HTTPS_PROXY"} {
		if strings.Contains(joined, secret) {
			t.Errorf("%s was inherited", secret)
		}
	}
}

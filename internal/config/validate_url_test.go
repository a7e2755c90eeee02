package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplicasDifferInHostAndPortOnly(t *testing.T) {
	for _, urls := range [][]string{
		{"https://a/mcp"},
		{"https://a/mcp", "https://b/mcp", "https://a:8443/mcp"},
		{"http://10.0.0.1:80/mcp?x=1", "http://[::1]/mcp?x=1"},
		{"http://a", "http://b/"},
		{"http://${TOKEN}.example/mcp", "http://b/mcp"},
	} {
		for _, transport := range []string{"auto", "streamable_http"} {
			text := "targets: {t: {urls: ['" + strings.Join(urls, "', '") + "'], headers: {X-A: a}, transport: " + transport + "}}"
			cfg, err := Parse("f", []byte(text), testEnv())
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			want := strings.Split(strings.ReplaceAll(strings.Join(urls, " "), "${TOKEN}", "s3cr3t"), " ")
			got := cfg.Targets["t"]
			if diff := cmp.Diff(want, got.URLs); diff != "" || got.URL != "" {
				t.Errorf("%s: %q (-want +got)\n%s", text, got.URL, diff)
			}
			if network, address, ok := got.Socket(); ok {
				t.Errorf("%s: is the socket %s %s", text, network, address)
			}
		}
	}
}

func TestProblemsOfReplicasAreReported(t *testing.T) {
	urls := func(list string) string { return ofTarget("urls: [" + list + "]") }
	const differs = "differs from the others in its scheme, path or query; replicas of one server differ in host and port only"
	checkProblems(t, []problem{
		{"none", urls(""), "f:3:11: targets.t.urls: must not be empty; write the URL of every replica, such as [https://a.example/mcp, https://b.example/mcp]"},
		{"one text", ofTarget("urls: http://a"), "f:3:11: targets.t.urls: must be a list, not a single value; write [first, second]"},
		{"an empty one", urls("http://a, ''"), "f:3:22: targets.t.urls[1]: must be an http:// or https:// URL"},
		{"a null", urls("~"), `f:3:12: targets.t.urls[0]: has no value`},
		{"an unset variable", urls("http://a, '${NOPE}'"), "f:3:22: targets.t.urls[1]: the environment variable NOPE is not set"},
		{"url, too", ofTarget("url: http://a\nurls: [http://b]"), "f:3:5: targets.t: has both a url and urls; keep one of them, and put every replica into urls"},
		{"url and none", ofTarget("url: http://a\nurls: []"), "f:3:5: targets.t: has both a url and urls"},
		{"command, too", ofChild("urls: [http://b]"), "f:3:5: targets.t: has both a command and urls; keep one of them"},
		{"command and none", ofChild("urls: []"), "f:3:5: targets.t: has both a command and urls"},
		{"a unix socket", urls("'unix:///run/s'"), "f:3:12: targets.t.urls[0]: must be an http:// or https:// URL, such as https://host/mcp; a socket can only be a single url"},
		{"a tcp socket", urls("http://a, 'tcp://h:1'"), "f:3:22: targets.t.urls[1]: must be an http:// or https:// URL"},
		{"no scheme", urls("a/mcp"), "targets.t.urls[0]: must be an http:// or https:// URL"},
		{"no host", urls("http:///mcp"), "targets.t.urls[0]: must be an http:// or https:// URL"},
		{"not a URL", urls("'http://a b'"), "targets.t.urls[0]: must be an http:// or https:// URL"},
		{"credentials", urls("http://a, 'http://u:p@b'"), "targets.t.urls[1]: must not contain a user name or password; put them into headers"},
		{"fragment", urls("'http://a#x'"), "targets.t.urls[0]: must not contain a # fragment"},
		{"bad port", urls("'http://a:0'"), "targets.t.urls[0]: has a port outside 1 to 65535"},
		{"another scheme", urls("http://a/mcp, https://b/mcp"), "f:3:26: targets.t.urls[1]: " + differs},
		{"another path", urls("http://a/mcp, http://b/mcp/"), "f:3:26: targets.t.urls[1]: " + differs},
		{"another query", urls("'http://a/mcp?x=1', 'http://b/mcp?x=2'"), "targets.t.urls[1]: " + differs},
		{"an empty query", urls("'http://a/mcp', 'http://b/mcp?'"), "targets.t.urls[1]: " + differs},
		{"the third differs", urls("http://a/1, http://b/1, http://b/2"), "targets.t.urls[2]: " + differs},
		{"one twice", urls("http://a/mcp, http://b/mcp, http://a/mcp"), "f:3:40: targets.t.urls[2]: has the host and port of urls[0]; remove one"},
		{"one twice in capitals", urls("http://a, 'http://A'"), "targets.t.urls[1]: has the host and port of urls[0]"},
		{"one twice by the default port", urls("https://b, https://a, 'https://a:443'"), "targets.t.urls[2]: has the host and port of urls[1]"},
		{"a bad one is not compared with", urls("ftp://a/x, http://b/y, http://c/y"), "targets.t.urls[0]: must be"},
		{"sse", ofTarget("urls: [http://a]\ntransport: sse"), "f:4:16: targets.t.transport: sse binds a session to one server, and any of the urls may get a request; write a single url, or remove sse"},
		{"stdio", ofTarget("urls: [http://a]\ntransport: stdio"), "f:4:16: targets.t.transport: stdio does not fit this target; remove it or write auto or streamable_http"},
		{"env", ofTarget("urls: [http://a]\nenv: {A: a}"), "f:4:11: targets.t.env: has no effect on a target with urls; remove it"},
		{"cwd", ofTarget("urls: [http://a]\ncwd: /"), "targets.t.cwd: has no effect on a target with urls"},
		{"header", ofTarget("urls: [http://a]\nheaders: {Host: a}"), "targets.t.headers.Host: is set by the bridge itself"},
	})
}

func TestASocketIsNoDirectory(t *testing.T) {
	const text = "targets.t.url: names a directory; write the path of the socket in it, such as unix:///run/server.sock"
	checkProblems(t, []problem{
		{"root", ofTarget("url: unix:///"), "f:3:10: " + text},
		{"root twice", ofTarget("url: unix:////"), text},
		{"root by a dot", ofTarget("url: unix:///."), text},
		{"a slash at the end", ofTarget("url: unix:///run/"), text},
		{"no path", ofTarget("url: 'unix://'"), "f:3:10: targets.t.url: must be unix:// with an absolute path and nothing else"},
	})
	if _, err := ParseMCPJSON("f", []byte(`{"mcpServers": {"t": {"url": "unix:///"}}}`), testEnv()); err == nil || !strings.Contains(err.Error(), "names a directory") {
		t.Errorf("in the mcpServers format: %v", err)
	}
}

func TestNoProblemOfReplicasShowsASecret(t *testing.T) {
	for _, list := range []string{
		"'${TOKEN}'", "'http://${TOKEN}:x@h'", "'http://h/${TOKEN}', 'http://i'", "'http://${TOKEN}', 'http://${TOKEN}'", "'http://h:${TOKEN}'",
	} {
		_, err := Parse("f", []byte("targets: {t: {urls: ["+list+"]}}"), testEnv())
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

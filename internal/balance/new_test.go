package balance

import (
	"strings"
	"testing"
)

func TestReplicasDifferInHostAndPortOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		urls []string
		want string // part of the error; "" = none
	}{
		"none":              {nil, "at least one"},
		"one":               {[]string{"http://a/mcp"}, ""},
		"hosts and ports":   {[]string{"http://a/mcp?x=1", "http://b/mcp?x=1", "http://a:8080/mcp?x=1"}, ""},
		"an empty path":     {[]string{"http://a", "http://b/"}, ""},
		"schemes":           {[]string{"http://a/mcp", "https://b/mcp"}, "URL 2 (b) has another scheme"},
		"paths":             {[]string{"http://a/mcp", "http://b/mcp", "http://c/other"}, "URL 3 (c) has another path"},
		"queries":           {[]string{"http://a/mcp?x=1", "http://b/mcp?x=2"}, "URL 2 (b) has another query"},
		"users":             {[]string{"http://u:p@a/mcp", "http://u:q@b/mcp"}, "URL 2 (b) has another user name or password"},
		"one named twice":   {[]string{"http://a/mcp", "http://b/mcp", "http://A:80/mcp"}, "URL 3 is the same replica as URL 1"},
		"no URL at all":     {[]string{"http://a/mcp", "b:c:d"}, "URL 2: "},
		"another transport": {[]string{"unix:///socket"}, "URL 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tt.urls, Options{})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q in it", err, tt.want)
			case err != nil && (strings.Contains(err.Error(), "x=") || strings.Contains(err.Error(), ":q")):
				t.Errorf("error %q shows what may be secret", err)
			}
		})
	}
}

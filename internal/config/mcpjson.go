package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
)

// mcpServer is one entry of the mcpServers format as its many readers write
// it. Keys that are not named here are ignored.
type mcpServer struct {
	Type      string            `yaml:"type"`
	Transport string            `yaml:"transport"`
	Command   string            `yaml:"command"`
	Args      []string          `yaml:"args"`
	Env       map[string]Secret `yaml:"env"`
	Cwd       string            `yaml:"cwd"`
	URL       string            `yaml:"url"`
	HTTPURL   string            `yaml:"httpUrl"`
	ServerURL string            `yaml:"serverUrl"`
	Headers   map[string]Secret `yaml:"headers"`
	Disabled  bool              `yaml:"disabled"`
	Enabled   bool              `yaml:"enabled"`
}

// mcpFile has the two names under which the map of servers is found.
type mcpFile struct {
	MCPServers map[string]*mcpServer `yaml:"mcpServers"`
	Servers    map[string]*mcpServer `yaml:"servers"`
}

// LoadMCPJSON reads and parses the file at path with the environment of the
// process. See [ParseMCPJSON].
func LoadMCPJSON(path string) (map[string]*Target, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the mcpServers file cannot be read: %w", err)
	}
	return ParseMCPJSON(path, data, Env{})
}

// ParseMCPJSON reads the JSON that other MCP hosts use, {"mcpServers": {NAME:
// {command, args, env, cwd} or {url, headers}}}, and returns its servers as
// targets with default settings. Disabled servers are left out and unknown
// keys ignored. Characters that a target name cannot have become "-". name
// stands for the file in errors.
func ParseMCPJSON(name string, data []byte, env Env) (map[string]*Target, error) {
	r := newReport(name)
	targets := map[string]*Target{}
	if doc := parseJSON(data, r); doc != nil {
		d := decoder{report: r, env: env, lenient: true, element: func(*node, reflect.Type) reflect.Value {
			return reflect.ValueOf(&mcpServer{Enabled: true})
		}}
		dropDisabled(doc)
		var file mcpFile
		d.value(doc, reflect.ValueOf(&file).Elem(), "")
		r.servers("mcpServers", file.MCPServers, targets)
		r.servers("servers", file.Servers, targets)
		if !r.isSet("mcpServers") && !r.isSet("servers") && len(r.errs) == 0 {
			r.add("mcpServers", "is missing; the file must be {\"mcpServers\": {NAME: {...}}}")
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return targets, nil
}

// dropDisabled removes the servers that are switched off before their
// variables are looked up.
func dropDisabled(doc *node) {
	for _, key := range []string{"mcpServers", "servers"} {
		servers := doc.get(key)
		if servers == nil {
			continue
		}
		servers.fields = slices.DeleteFunc(servers.fields, func(f field) bool {
			disabled, enabled := f.value.get("disabled"), f.value.get("enabled")
			return disabled != nil && disabled.text == "true" || enabled != nil && enabled.text == "false"
		})
	}
}

func (r *report) servers(key string, servers map[string]*mcpServer, targets map[string]*Target) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		at := entry(key, name)
		targetName := strings.Map(func(c rune) rune {
			if invalidInTargetName(c) {
				return '-'
			}
			return c
		}, name)
		if !validTargetName(targetName) {
			r.add(at, "the name must have 1 to 64 characters")
		}
		if targets[targetName] != nil {
			r.add(at, "becomes the target %s, and so does another server; rename one of them", targetName)
		}
		targets[targetName] = r.server(at, servers[name])
	}
}

func (r *report) server(key string, s *mcpServer) *Target {
	urls := slices.DeleteFunc([]string{s.URL, s.HTTPURL, s.ServerURL}, func(u string) bool { return u == "" })
	kind := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s.Type + s.Transport))
	switch {
	case r.failed(key):
	case s.Command == "" && len(urls) == 0:
		r.add(key, "needs a command or a url")
	case s.Command != "" && len(urls) > 0 || len(urls) > 1:
		r.add(key, "has more than one of command, url, httpUrl and serverUrl; keep one of them")
	case isCommandLine(s.Command):
		r.add(key+".command", `holds a program and its arguments; move the arguments to args, such as "command": "npx", "args": ["-y", "package"]`)
	case s.Command != "":
		t := NewTarget(TransportStdio)
		t.Command = append([]string{s.Command}, s.Args...)
		t.Env, t.Cwd = s.Env, s.Cwd
		if kind != "" && kind != "stdio" {
			r.add(key, "has a command but the type %q; only stdio fits", s.Type+s.Transport)
		}
		r.mcpTarget(key, t)
		return t
	default:
		t := NewTarget(TransportAuto)
		t.URL, t.Headers = urls[0], s.Headers
		switch kind {
		case "", "url":
		case "sse":
			t.Transport = TransportSSE
		case "http", "streamablehttp":
			t.Transport = TransportStreamableHTTP
		default:
			r.add(key, "has a url but the type %q; write http or sse", s.Type+s.Transport)
		}
		if _, _, ok := t.Socket(); ok && t.Transport != TransportAuto {
			r.add(key, "has the url of a socket but the type %q; remove the type", s.Type+s.Transport)
			t.Transport = TransportAuto
		}
		r.mcpTarget(key, t)
		return t
	}
	return NewTarget(TransportAuto)
}

// mcpTarget checks what the format can set; its keys are the target's own
// except for the arguments, which follow the program in one list.
func (r *report) mcpTarget(key string, t *Target) {
	if len(t.Command) > 0 {
		r.child(key, t)
		return
	}
	r.endpoint(key+".url", t.URL)
	r.headers(key+".headers", t.Headers)
}

package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// config checks every value of c and the combinations inside one target.
func (r *report) config(c *Config) {
	r.address(c.Listen.Address)
	r.positive("listen.max_request_bytes", int64(c.Listen.MaxRequestBytes), "16MiB")
	oneOf(r, "log.level", c.Log.Level, logLevels())
	oneOf(r, "log.format", c.Log.Format, logFormats())
	r.duration("shutdown.timeout", c.Shutdown.Timeout)
	if c.ClientInfo.Name == "" {
		r.add("client_info.name", "must not be empty; MCP servers are told it")
	}
	if u := c.ClientInfo.WebsiteURL; u != "" {
		if parsed, err := url.Parse(u); err != nil || !isHTTP(parsed) {
			r.add("client_info.website_url", "must be an absolute http or https URL")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Targets)) {
		key := "targets." + name
		if !validTargetName(name) {
			r.add(key, "a target name has 1 to 64 of the characters a-z A-Z 0-9 . _ -")
		}
		if c.Targets[name] == nil {
			r.add(key, "has no settings; give it a command or a url")
			continue
		}
		r.target(key, c.Targets[name])
	}
}

func (r *report) target(key string, t *Target) {
	switch {
	case len(t.Command) > 0 && t.URL != "":
		r.add(key, "has both a command and a url; keep one of them")
	case len(t.Command) > 0:
		r.stdioTarget(key, t)
	case t.URL != "":
		r.httpTarget(key, t)
	case r.failed(key):
	case r.isSet(key + ".command"):
		r.add(key+".command", "must not be empty; write the program and its arguments, such as [npx, -y, package]")
	default:
		r.add(key, "needs a command (a child process) or a url (an HTTP server)")
	}
	oneOf(r, key+".protocol_version", t.ProtocolVersion, protocolVersions())
	r.timeouts(key+".timeouts", &t.Timeouts)
	r.count(key+".pool.max_in_flight", t.Pool.MaxInFlight)
	r.count(key+".pool.max_queue", t.Pool.MaxQueue)
	r.positive(key+".reconnect.interval", int64(t.Reconnect.Interval), "5s")
	if t.Reconnect.MaxInterval < t.Reconnect.Interval {
		r.add(key+".reconnect.max_interval", "%v is below reconnect.interval, %v; raise it", t.Reconnect.MaxInterval, t.Reconnect.Interval)
	}
	r.roots(key+".roots", t.Roots)
	r.positive(key+".max_reply_bytes", int64(t.MaxReplyBytes), "64MiB")
}

// failed reports a problem that was found inside key before, after which
// "it is missing" would only mislead.
func (r *report) failed(key string) bool {
	return slices.ContainsFunc(r.errs, func(e Error) bool {
		return e.Key == key || strings.HasPrefix(e.Key, key+".")
	})
}

func (r *report) stdioTarget(key string, t *Target) {
	r.useless(key+".headers", "a target with a command")
	r.transport(key, t.Transport, TransportStdio)
	r.child(key, t)
	r.positive(key+".restart.stop_timeout", int64(t.Restart.StopTimeout), "10s")
}

// child checks what is handed to the operating system.
func (r *report) child(key string, t *Target) {
	if t.Command[0] == "" {
		r.add(key+".command[0]", "must name a program")
	}
	for i, arg := range t.Command {
		if strings.ContainsRune(arg, 0) {
			r.add(fmt.Sprintf("%s.command[%d]", key, i), "must not contain a NUL character")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			r.add(key+".env", "%q is not the name of an environment variable", name)
		} else if strings.ContainsRune(t.Env[name].Reveal(), 0) {
			r.add(key+".env."+name, "must not contain a NUL character")
		}
	}
}

func (r *report) httpTarget(key string, t *Target) {
	for _, name := range []string{"env", "cwd", "restart"} {
		r.useless(key+"."+name, "a target with a url")
	}
	r.transport(key, t.Transport, TransportAuto, TransportStreamableHTTP)
	r.endpoint(key+".url", t.URL)
	r.headers(key+".headers", t.Headers)
}

// transport checks that a known transport is one of those that fit the target.
func (r *report) transport(key string, value Transport, fitting ...Transport) {
	key += ".transport"
	if slices.Contains(transports(), value) && !slices.Contains(fitting, value) {
		r.add(key, "%s does not fit this target; remove it or write %s", value, orList(fitting))
		return
	}
	oneOf(r, key, value, transports())
}

// useless reports a setting of the file that the target's kind ignores.
func (r *report) useless(key, where string) {
	if r.isSet(key) {
		r.add(key, "has no effect on %s; remove it", where)
	}
}

// endpoint never quotes the URL: a reference in it may have brought a secret.
func (r *report) endpoint(key, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !isHTTP(u):
		r.add(key, "must be an absolute http:// or https:// URL, such as https://host/mcp")
	case u.User != nil:
		r.add(key, "must not contain a user name or password; put them into headers, as Authorization")
	case u.Fragment != "":
		r.add(key, "must not contain a # fragment; it is never sent")
	case u.Port() != "" && !validPort(u.Port()):
		r.add(key, "has a port outside 1 to 65535")
	}
}

func isHTTP(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func validPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

func (r *report) timeouts(key string, t *Timeouts) {
	r.duration(key+".tool", t.Tool)
	r.duration(key+".resource", t.Resource)
	r.duration(key+".prompt", t.Prompt)
	r.duration(key+".completion", t.Completion)
	r.duration(key+".initialize", t.Initialize)
	r.duration(key+".detect", t.Detect)
	for _, name := range slices.Sorted(maps.Keys(t.Tools)) {
		r.duration(key+".tools."+name, t.Tools[name])
		if name == "" {
			r.add(key+".tools", "has an empty tool name")
		}
	}
}

func (r *report) roots(key string, roots []Root) {
	seen := make(map[string]bool, len(roots))
	for i, root := range roots {
		at := fmt.Sprintf("%s[%d].uri", key, i)
		u, err := url.Parse(root.URI)
		switch {
		case err != nil || u.Scheme != "file" || !strings.HasPrefix(u.Path, "/"):
			r.add(at, "must be a file:// URI with an absolute path, such as file:///srv/data")
		case seen[root.URI]:
			r.add(at, "is listed twice; remove one")
		}
		seen[root.URI] = true
	}
}

func (r *report) address(address string) {
	const key = "listen.address"
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		r.add(key, "must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		r.add(key, "has a port outside 0 to 65535")
	}
}

// safeAddress refuses an address that other machines reach, because the
// listener has neither TLS nor authentication.
func (r *report) safeAddress(l *Listen) {
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil || l.Insecure || isLoopback(host) {
		return
	}
	r.add("listen.address", "%s can be reached from other machines, and the listener has no TLS and no authentication; "+
		"listen on 127.0.0.1, or set listen.insecure to true (--insecure) where something else protects it", l.Address)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func validTargetName(name string) bool {
	return len(name) > 0 && len(name) <= 64 && strings.IndexFunc(name, invalidInTargetName) < 0
}

func invalidInTargetName(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
}

func (r *report) duration(key string, d time.Duration) {
	if d < 0 {
		r.add(key, "must not be negative; 0s means no limit")
	}
}

func (r *report) count(key string, n int) {
	if n < 0 {
		r.add(key, "must not be negative; 0 means no limit")
	}
}

func (r *report) positive(key string, n int64, sample string) {
	if n <= 0 {
		r.add(key, "must be more than zero, such as %s", sample)
	}
}

func oneOf[T ~string](r *report, key string, value T, allowed []T) {
	if slices.Contains(allowed, value) {
		return
	}
	r.add(key, "must be %s", orList(allowed))
}

// orList writes a, b or c.
func orList[T ~string](values []T) string {
	var b strings.Builder
	for i, v := range values {
		switch {
		case i == 0:
		case i == len(values)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}

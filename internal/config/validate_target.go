package config

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func (r *report) target(key string, t *Target) {
	switch {
	case len(t.Command) > 0 && t.URL != "":
		r.add(key, "has both a command and a url; keep one of them")
	case len(t.Command) > 0:
		r.stdioTarget(key, t)
	case t.URL != "":
		r.urlTarget(key, t)
	case r.failed(key):
	case r.isSet(key + ".command"):
		r.add(key+".command", "must not be empty; write the program and its arguments, such as [npx, -y, package]")
	default:
		r.add(key, "needs a command (a child process) or a url (an HTTP server)")
	}
	r.versions(key, t)
	r.timeouts(key+".timeouts", &t.Timeouts)
	r.count(key+".pool.max_in_flight", t.Pool.MaxInFlight)
	r.count(key+".pool.max_queue", t.Pool.MaxQueue)
	r.health(key+".health", &t.Health)
	r.reconnect(key+".reconnect", &t.Reconnect)
	if t.Input.MaxRounds < 0 {
		r.add(key+".input.max_rounds", "must not be negative; 0 means that the bridge answers no round itself")
	}
	r.positive(key+".tasks.max_stuck_polls", int64(t.Tasks.MaxStuckPolls), "60")
	r.positive(key+".tasks.poll_interval", int64(t.Tasks.PollInterval), "1s")
	r.count(key+".dispatch.max_in_flight", t.Dispatch.MaxInFlight)
	oneOf(r, key+".server_log_level", t.ServerLogLevel, serverLogLevels())
	r.roots(key+".roots", t.Roots)
	r.positive(key+".max_reply_bytes", int64(t.MaxReplyBytes), "64MiB")
	r.positive(key+".max_list_bytes", int64(t.MaxListBytes), "64MiB")
}

func (r *report) versions(key string, t *Target) {
	oneOf(r, key+".protocol_version", t.ProtocolVersion, protocolVersions())
	const minimum = ".minimum_protocol_version"
	switch pin := string(t.ProtocolVersion); {
	case !slices.Contains(minimumVersions(), t.MinimumProtocolVersion):
		r.add(key+minimum, `must be %s, or "" for none`, orList(minimumVersions()[1:]))
	case t.ProtocolVersion != VersionAuto && pin < string(t.MinimumProtocolVersion):
		r.add(key+minimum, "%s is newer than the protocol_version %s; remove one of them", t.MinimumProtocolVersion, pin)
	}
}

func (r *report) health(key string, h *Health) {
	if h.Interval <= 0 {
		r.add(key+".interval", "must be more than zero, such as 30s; health.enabled: false switches the probes off")
	}
	r.positive(key+".timeout", int64(h.Timeout), "10s")
	r.positive(key+".failures", int64(h.Failures), "2")
}

func (r *report) reconnect(key string, c *Reconnect) {
	r.positive(key+".interval", int64(c.Interval), "5s")
	if c.MaxInterval < c.Interval {
		r.add(key+".max_interval", "%v is below reconnect.interval, %v; raise it", c.MaxInterval, c.Interval)
	}
	if !(c.Multiplier >= 1) || math.IsInf(c.Multiplier, 0) { // NaN fails the comparison
		r.add(key+".multiplier", "must be 1 or more, such as 2; 1 always waits for reconnect.interval")
	}
	r.count(key+".max_attempts", c.MaxAttempts)
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
	} else if isCommandLine(t.Command[0]) {
		r.add(key+".command[0]", "holds a program and its arguments; make each an item of its own, such as [npx, -y, package]")
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

// isCommandLine reports whether text was meant for a shell, and is not the
// name of a program. A path may contain spaces.
func isCommandLine(text string) bool {
	words := strings.Fields(text)
	return len(words) > 1 && !strings.ContainsAny(words[0], `/\`)
}

func (r *report) urlTarget(key string, t *Target) {
	for _, name := range []string{"env", "cwd", "restart"} {
		r.useless(key+"."+name, "a target with a url")
	}
	if _, _, ok := t.Socket(); ok {
		r.useless(key+".headers", "a socket, which has none")
		r.transport(key, t.Transport, TransportAuto)
	} else {
		r.transport(key, t.Transport, TransportAuto, TransportStreamableHTTP, TransportSSE)
	}
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
	case err == nil && u.Scheme == schemeUnix:
		r.socketPath(key, u)
	case err == nil && u.Scheme == schemeTCP:
		if u.Hostname() == "" || !validPort(u.Port()) || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" || u.User != nil {
			r.add(key, "must be tcp:// with a host, a port from 1 to 65535 and nothing else, such as tcp://host:9000")
		}
	case err != nil || !isHTTP(u):
		r.add(key, "must be an http:// or https:// URL, such as https://host/mcp, or unix:///path or tcp://host:port for a socket")
	case u.User != nil:
		r.add(key, "must not contain a user name or password; put them into headers, as Authorization")
	case u.Fragment != "":
		r.add(key, "must not contain a # fragment; it is never sent")
	case u.Port() != "" && !validPort(u.Port()):
		r.add(key, "has a port outside 1 to 65535")
	}
}

// maxSocketPath is what the address of a Unix socket holds on Linux.
const maxSocketPath = 107

func (r *report) socketPath(key string, u *url.URL) {
	switch {
	case u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery+u.Fragment != "" || u.User != nil:
		r.add(key, "must be unix:// with an absolute path and nothing else, such as unix:///run/server.sock")
	case len(u.Path) > maxSocketPath || strings.ContainsRune(u.Path, 0):
		r.add(key, "has a path that no socket can have: at most %d bytes without a NUL", maxSocketPath)
	}
}

// Schemes of URLs whose server speaks the framing of stdio on a socket.
const (
	schemeUnix = "unix"
	schemeTCP  = "tcp"
)

// Socket returns what to dial when URL is that of a socket: the network, "unix"
// or "tcp", and the address.
func (t *Target) Socket() (network, address string, ok bool) {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil:
	case u.Scheme == schemeUnix:
		return "unix", u.Path, true
	case u.Scheme == schemeTCP:
		return "tcp", u.Host, true
	}
	return "", "", false
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
	r.duration(key+".max", t.Max)
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

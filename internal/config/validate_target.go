package config

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
)

func (r *report) target(key string, t *Target) {
	urls := len(t.URLs) > 0 || r.isSet(key+".urls")
	switch {
	case len(t.Command) > 0 && t.URL != "":
		r.add(key, "has both a command and a url; keep one of them")
	case len(t.Command) > 0 && urls:
		r.add(key, "has both a command and urls; keep one of them")
	case t.URL != "" && urls:
		r.add(key, "has both a url and urls; keep one of them, and put every replica into urls")
	case len(t.Command) > 0:
		r.stdioTarget(key, t)
	case t.URL != "":
		r.urlTarget(key, t)
	case len(t.URLs) > 0:
		r.urlsTarget(key, t)
	case r.failed(key):
	case urls:
		r.add(key+".urls", "must not be empty; write the URL of every replica, such as [https://a.example/mcp, https://b.example/mcp]")
	case r.isSet(key + ".command"):
		r.add(key+".command", "must not be empty; write the program and its arguments, such as [npx, -y, package]")
	default:
		r.add(key, "needs a command (a child process) or a url (an HTTP server)")
	}
	r.versions(key, t)
	r.timeouts(key+".timeouts", &t.Timeouts)
	r.pool(key+".pool", &t.Pool)
	r.health(key+".health", &t.Health)
	r.reconnect(key+".reconnect", &t.Reconnect)
	if t.Input.MaxRounds < 0 {
		r.add(key+".input.max_rounds", "must not be negative; 0 means that the bridge answers no round itself")
	}
	r.positive(key+".tasks.max_stuck_polls", int64(t.Tasks.MaxStuckPolls), "60")
	r.positive(key+".tasks.poll_interval", int64(t.Tasks.PollInterval), "1s")
	r.count(key+".dispatch.max_in_flight", t.Dispatch.MaxInFlight)
	r.baggage(key+".baggage", &t.Baggage)
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
	r.restart(key+".restart", &t.Restart)
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
			r.add(entry(key+".env", name), "must not contain a NUL character")
		}
	}
}

// isCommandLine reports whether text was meant for a shell, and is not the
// name of a program. A path may contain spaces.
func isCommandLine(text string) bool {
	words := strings.Fields(text)
	return len(words) > 1 && !strings.ContainsAny(words[0], `/\`)
}

// useless reports a setting of the file that the target's kind ignores.
func (r *report) useless(key, where string) {
	if r.isSet(key) {
		r.add(key, "has no effect on %s; remove it", where)
	}
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
		r.duration(entry(key+".tools", name), t.Tools[name])
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

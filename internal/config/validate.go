package config

import (
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
	r.address("listen.address", c.Listen.Address)
	r.grpc(&c.Listen)
	r.admin(&c.Listen)
	r.positive("listen.max_request_bytes", int64(c.Listen.MaxRequestBytes), "16MiB")
	oneOf(r, "log.level", c.Log.Level, logLevels())
	oneOf(r, "log.format", c.Log.Format, logFormats())
	oneOf(r, "log.access", c.Log.Access, logAccesses())
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
		key := entry("targets", name)
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

func (r *report) address(key, address string) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		r.add(key, "must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		r.add(key, "has a port outside 0 to 65535")
	}
}

func (r *report) grpc(l *Listen) {
	const key = "listen.grpc.address"
	switch {
	case l.GRPC.Address == "":
		return
	case same(l.GRPC.Address, l.Address):
		r.add(key, "is that of listen.address, which takes gRPC as well; this listener needs one of its own, such as 127.0.0.1:9090")
	}
	r.address(key, l.GRPC.Address)
}

// same reports whether two listeners want the same address.
func same(a, b string) bool { return a == b && !strings.HasSuffix(a, ":0") }

func (r *report) admin(l *Listen) {
	const key = "listen.admin"
	switch {
	case l.Admin.Address == "":
		if l.Admin.Pprof {
			r.add(key+".pprof", "is served by the admin listener only; set %s.address, such as 127.0.0.1:9464", key)
		}
		return
	case same(l.Admin.Address, l.Address):
		r.add(key+".address", "is that of listen.address; the admin listener needs one of its own, such as 127.0.0.1:9464")
	case same(l.Admin.Address, l.GRPC.Address):
		r.add(key+".address", "is that of listen.grpc.address; the admin listener needs one of its own, such as 127.0.0.1:9464")
	}
	r.address(key+".address", l.Admin.Address)
}

// safeAddresses refuses addresses that other machines reach, because the
// listeners have neither TLS nor authentication.
func (r *report) safeAddresses(l *Listen) {
	for _, at := range []struct{ key, address string }{{"listen.address", l.Address}, {"listen.grpc.address", l.GRPC.Address}} {
		if !l.Insecure && isExposed(at.address) {
			r.add(at.key, "%s can be reached from other machines, and the listener has no TLS and no authentication; "+
				"listen on 127.0.0.1, or set listen.insecure to true (--insecure) where something else protects it", at.address)
		}
	}
	if !l.Admin.Insecure && l.Admin.Address != "" && isExposed(l.Admin.Address) {
		r.add("listen.admin.address", "%s can be reached from other machines, and the listener has no TLS and no authentication; "+
			"listen on 127.0.0.1, or set listen.admin.insecure to true (--insecure) where something else protects it", l.Admin.Address)
	}
}

// isExposed reports whether other machines may reach a valid address.
func isExposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !isLoopback(host)
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

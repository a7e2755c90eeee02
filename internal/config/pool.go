package config

import "time"

// Pool bounds the connections of one target and the calls on them.
type Pool struct {
	// Isolation says which callers may share a connection.
	Isolation Isolation `yaml:"isolation"`

	// MaxConnections of the target exist at once. Never zero. A configuration
	// that does not set it gets 1 for IsolationShared, 256 for the others.
	// More than 1 with IsolationShared declares that the server keeps no state
	// between calls.
	MaxConnections int `yaml:"max_connections"`

	// MaxInFlight calls of the target run at once. Zero means no limit.
	MaxInFlight int `yaml:"max_in_flight"`

	// MaxInFlightPerConnection calls run at once on one connection. Zero means
	// no limit but MaxInFlight.
	MaxInFlightPerConnection int `yaml:"max_in_flight_per_connection"`

	// MaxQueue calls wait for a place. Zero means no limit.
	MaxQueue int `yaml:"max_queue"`

	// MaxInteractive connections are leased to one interactive call each, which
	// a server with a handshake needs. Never zero.
	MaxInteractive int `yaml:"max_interactive"`

	// IdleTimeout closes a connection that has been without a call for so long:
	// every one of a key, and with IsolationShared every one but the first. Zero
	// means never.
	IdleTimeout time.Duration `yaml:"idle_timeout"`

	// MaxLifetime replaces a connection that is older. Zero means never.
	MaxLifetime time.Duration `yaml:"max_lifetime"`
}

// Restart governs the child process of a stdio target.
type Restart struct {
	// Max restarts may happen within Window. Zero means no limit.
	Max int `yaml:"max"`

	// Window is never zero for a stdio target.
	Window time.Duration `yaml:"window"`

	// StopTimeout is all the time that a child has from the closing of its
	// stdin until it is killed. Never zero for a stdio target.
	StopTimeout time.Duration `yaml:"stop_timeout"`
}

// maxConnections is the default of [Pool.MaxConnections].
func (i Isolation) maxConnections() int {
	if i == IsolationShared {
		return 1
	}
	return 256
}

// poolDefaults fills in what depends on other settings, once those are known.
func (r *report) poolDefaults(c *Config) {
	for name, t := range c.Targets {
		if !r.isSet(entry("targets", name) + ".pool.max_connections") {
			t.Pool.MaxConnections = t.Pool.Isolation.maxConnections()
		}
	}
}

func (r *report) pool(key string, p *Pool) {
	if p.Isolation == IsolationPerCaller {
		r.add(key+".isolation", "per_caller needs callers that are authenticated, and no listener of this bridge authenticates them; use per_key")
	} else {
		oneOf(r, key+".isolation", p.Isolation, isolations())
	}
	if p.MaxConnections < 1 {
		r.add(key+".max_connections", "must be 1 or more; remove it for the default, which is 1 with isolation shared and 256 with the others")
	}
	r.count(key+".max_in_flight", p.MaxInFlight)
	r.count(key+".max_in_flight_per_connection", p.MaxInFlightPerConnection)
	r.count(key+".max_queue", p.MaxQueue)
	r.positive(key+".max_interactive", int64(p.MaxInteractive), "16")
	r.age(key+".idle_timeout", p.IdleTimeout)
	r.age(key+".max_lifetime", p.MaxLifetime)
}

func (r *report) age(key string, d time.Duration) {
	if d < 0 {
		r.add(key, "must not be negative; 0s means never")
	}
}

func (r *report) restart(key string, s *Restart) {
	r.count(key+".max", s.Max)
	if s.Window <= 0 {
		r.add(key+".window", "must be more than zero, such as 60s; restart.max: 0 permits any number of restarts")
	}
	r.positive(key+".stop_timeout", int64(s.StopTimeout), "10s")
}

package config

import "time"

// Health probes a connection on which nothing has come in for Interval.
type Health struct {
	Enabled  bool          `yaml:"enabled"`
	Interval time.Duration `yaml:"interval"`

	// Timeout bounds one probe. Any answer proves life, even an error.
	Timeout time.Duration `yaml:"timeout"`

	// Failures probes in a row must fail before the connection is replaced.
	Failures int `yaml:"failures"`
}

// Reconnect is the backoff between attempts to reach a lost server: from
// Interval by Multiplier to MaxInterval, with jitter.
type Reconnect struct {
	Interval    time.Duration `yaml:"interval"`
	MaxInterval time.Duration `yaml:"max_interval"`

	// Multiplier is at least 1, which keeps every wait at Interval.
	Multiplier float64 `yaml:"multiplier"`

	// MaxAttempts may fail in a row before the target is given up until the
	// bridge is started again. Zero means no limit.
	MaxAttempts int `yaml:"max_attempts"`
}

// Cache says which lists of a server the bridge may keep.
type Cache struct {
	Tools     bool `yaml:"tools"`
	Resources bool `yaml:"resources"` // and resource templates
	Prompts   bool `yaml:"prompts"`

	// IgnoreTTL keeps lists until the server reports a change, whatever time to
	// live it gave them.
	IgnoreTTL bool `yaml:"ignore_ttl"`
}

// Changes says which change notifications of a modern server the bridge
// subscribes to. Legacy servers send them unasked.
type Changes struct {
	Tools     bool `yaml:"tools"`
	Resources bool `yaml:"resources"`
	Prompts   bool `yaml:"prompts"`
}

// Input bounds multi-round-trip requests.
type Input struct {
	// MaxRounds is how often the bridge itself answers and repeats one request.
	// Zero means never.
	MaxRounds int `yaml:"max_rounds"`
}

// Tasks controls the tasks extension.
type Tasks struct {
	// Enabled declares it to the server.
	Enabled bool `yaml:"enabled"`

	// MaxStuckPolls polls in a row may find a task waiting for input without a
	// new question; then it is cancelled. Never zero.
	MaxStuckPolls int `yaml:"max_stuck_polls"`

	// PollInterval is the wait between polls when the server names none. Never
	// zero.
	PollInterval time.Duration `yaml:"poll_interval"`
}

// Dispatch bounds what a server makes the bridge do at once: its requests, its
// notifications, deliveries of subscriptions.
type Dispatch struct {
	// MaxInFlight of them run. Zero means no limit, at that risk.
	MaxInFlight int `yaml:"max_in_flight"`
}

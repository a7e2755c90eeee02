package config

import (
	"math"
	"strconv"
	"time"
)

// Config is the whole configuration of one bridge process. A Config from
// [Default], [Load] or [Parse] has every default filled in; its zero value is
// not usable. It is plain data: copy it only with care for the maps inside.
type Config struct {
	Listen     Listen     `yaml:"listen"`
	Log        Log        `yaml:"log"`
	Shutdown   Shutdown   `yaml:"shutdown"`
	ClientInfo ClientInfo `yaml:"client_info"`

	// Targets are the MCP servers behind the bridge, by name.
	Targets map[string]*Target `yaml:"targets"`
}

// Listen says where callers connect.
type Listen struct {
	// Address is HOST:PORT for gRPC, gRPC-Web and Connect over HTTP/1.1 and
	// cleartext HTTP/2. An empty host means every interface. Port 0 picks one.
	Address string `yaml:"address"`

	// MaxRequestBytes bounds one request message of a caller. Never zero.
	MaxRequestBytes Size `yaml:"max_request_bytes"`

	// Insecure permits an address that other machines can reach although the
	// listener has neither TLS nor authentication.
	Insecure bool `yaml:"insecure"`
}

// Log says what the process logs to stderr.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`
}

// Shutdown says how the process ends.
type Shutdown struct {
	// Timeout bounds the wait for calls in flight after SIGTERM. Zero waits
	// for none of them.
	Timeout time.Duration `yaml:"timeout"`
}

// ClientInfo is how the bridge names itself to MCP servers. An empty Version
// means the version of the binary; the other fields may be empty except Name.
type ClientInfo struct {
	Name        string `yaml:"name"`
	Title       string `yaml:"title"`
	Version     string `yaml:"version"`
	Description string `yaml:"description"`
	WebsiteURL  string `yaml:"website_url"`
}

// Target is one MCP server: a child process (Command) or an HTTP endpoint
// (URL), never both.
type Target struct {
	// Command is the program and its arguments; no shell is involved.
	Command []string `yaml:"command"`

	// Env is added to the small environment that a child gets.
	Env map[string]Secret `yaml:"env"`

	// Cwd is the working directory of the child. Empty means the bridge's own.
	Cwd string `yaml:"cwd"`

	// URL is the MCP endpoint.
	URL string `yaml:"url"`

	// Headers are sent with every HTTP request to URL.
	Headers map[string]Secret `yaml:"headers"`

	// Transport is TransportStdio for every target with a Command.
	Transport Transport `yaml:"transport"`

	// ProtocolVersion pins the MCP revision, both requested and required.
	ProtocolVersion ProtocolVersion `yaml:"protocol_version"`

	Timeouts  Timeouts  `yaml:"timeouts"`
	Restart   Restart   `yaml:"restart"`
	Pool      Pool      `yaml:"pool"`
	Reconnect Reconnect `yaml:"reconnect"`
	Cache     Cache     `yaml:"cache"`

	// Lazy connects on the first call instead of at start.
	Lazy bool `yaml:"lazy"`

	// Roots are the directories that the server may ask for with roots/list.
	Roots []Root `yaml:"roots"`

	// MaxReplyBytes bounds one message of the server. Never zero.
	MaxReplyBytes Size `yaml:"max_reply_bytes"`
}

// Timeouts bound single operations of a target. Zero means no limit. A
// caller's own deadline always holds beside them.
type Timeouts struct {
	Tool       time.Duration `yaml:"tool"`
	Resource   time.Duration `yaml:"resource"`
	Prompt     time.Duration `yaml:"prompt"`
	Completion time.Duration `yaml:"completion"`

	// Initialize bounds connecting as a whole, Detect the question for the
	// protocol era inside it.
	Initialize time.Duration `yaml:"initialize"`
	Detect     time.Duration `yaml:"detect"`

	// Tools replaces Tool for single tools, by name.
	Tools map[string]time.Duration `yaml:"tools"`
}

// Restart governs the child process of a stdio target.
type Restart struct {
	// StopTimeout is all the time that a child has from the closing of its
	// stdin until it is killed. Never zero for a stdio target.
	StopTimeout time.Duration `yaml:"stop_timeout"`
}

// Pool bounds the calls that one target runs at the same time.
type Pool struct {
	// MaxInFlight calls run at once. Zero means no limit.
	MaxInFlight int `yaml:"max_in_flight"`

	// MaxQueue calls wait when MaxInFlight are running. Zero means no limit.
	MaxQueue int `yaml:"max_queue"`
}

// Reconnect is the backoff between attempts to reach a lost server.
type Reconnect struct {
	Interval    time.Duration `yaml:"interval"`
	MaxInterval time.Duration `yaml:"max_interval"`
}

// Cache says which lists of a server the bridge may keep.
type Cache struct {
	Tools     bool `yaml:"tools"`
	Resources bool `yaml:"resources"`
	Prompts   bool `yaml:"prompts"`
}

// Root is one directory offered to a server. URI is a file:// URI.
type Root struct {
	URI  string `yaml:"uri"`
	Name string `yaml:"name"`
}

// Transport is how a target is reached.
type Transport string

// TransportAuto is the default of a target with a URL; a target with a Command
// always ends as TransportStdio.
const (
	TransportAuto           Transport = "auto"
	TransportStreamableHTTP Transport = "streamable_http"
	TransportStdio          Transport = "stdio"
)

// ProtocolVersion is a revision of MCP, or VersionAuto.
type ProtocolVersion string

// VersionAuto lets the bridge ask the server. The others are the revisions it
// speaks, newest first.
const (
	VersionAuto     ProtocolVersion = "auto"
	Version20260728 ProtocolVersion = "2026-07-28"
	Version20251125 ProtocolVersion = "2025-11-25"
	Version20250618 ProtocolVersion = "2025-06-18"
	Version20250326 ProtocolVersion = "2025-03-26"
	Version20241105 ProtocolVersion = "2024-11-05"
)

// LogLevel is the least severe level that is logged.
type LogLevel string

// The levels of log/slog.
const (
	LevelDebug LogLevel = "debug"
	LevelInfo  LogLevel = "info"
	LevelWarn  LogLevel = "warn"
	LevelError LogLevel = "error"
)

// LogFormat is the form of a log line.
type LogFormat string

// FormatText is key=value, FormatJSON one JSON object a line.
const (
	FormatText LogFormat = "text"
	FormatJSON LogFormat = "json"
)

// The values that the enumerated settings accept, in the order in which an
// error lists them. The JSON Schema is tested against them.
func transports() []Transport {
	return []Transport{TransportAuto, TransportStreamableHTTP, TransportStdio}
}

func protocolVersions() []ProtocolVersion {
	return []ProtocolVersion{VersionAuto, Version20260728, Version20251125, Version20250618, Version20250326, Version20241105}
}

func logLevels() []LogLevel { return []LogLevel{LevelDebug, LevelInfo, LevelWarn, LevelError} }

func logFormats() []LogFormat { return []LogFormat{FormatText, FormatJSON} }

// Size is a number of bytes, written 512, 64KiB, 16MiB, 1GiB or, in powers of
// ten, 64KB, 16MB, 1GB.
type Size int64

// String writes s in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name   string
		factor Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= u.factor && s%u.factor == 0 {
			return strconv.FormatInt(int64(s/u.factor), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Int returns s for use as a length, at most math.MaxInt.
func (s Size) Int() int { return int(min(int64(s), math.MaxInt)) }

// Default returns the configuration of an empty file. It has no targets.
func Default() *Config {
	return &Config{
		Listen:     Listen{Address: "127.0.0.1:8080", MaxRequestBytes: 16 << 20},
		Log:        Log{Level: LevelInfo, Format: FormatText},
		Shutdown:   Shutdown{Timeout: 20 * time.Second},
		ClientInfo: ClientInfo{Name: "bridge"},
		Targets:    map[string]*Target{},
	}
}

// NewTarget returns a target with the defaults of its transport and neither
// Command nor URL set. A child process is given longer to start than an HTTP
// server, because package runners download it first.
func NewTarget(transport Transport) *Target {
	t := &Target{
		Transport:       transport,
		ProtocolVersion: VersionAuto,
		Timeouts: Timeouts{
			Tool:       60 * time.Second,
			Resource:   60 * time.Second,
			Prompt:     60 * time.Second,
			Completion: 60 * time.Second,
			Initialize: 30 * time.Second,
			Detect:     5 * time.Second,
		},
		Pool:          Pool{MaxInFlight: 1024, MaxQueue: 1024},
		Reconnect:     Reconnect{Interval: 5 * time.Second, MaxInterval: 60 * time.Second},
		Cache:         Cache{Tools: true, Resources: true, Prompts: true},
		MaxReplyBytes: 64 << 20,
	}
	if transport == TransportStdio {
		t.Timeouts.Initialize = 60 * time.Second
		t.Timeouts.Detect = 15 * time.Second
		t.Restart.StopTimeout = 10 * time.Second
	}
	return t
}
